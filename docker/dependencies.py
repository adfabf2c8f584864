"""Prints what the rig depends on: a layer that outlives its source: dependencies.py PYPROJECT NAME...

A NAME is an extra, or ``run`` for what every run needs.
"""

import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
groups = {"run": project["dependencies"], **project["optional-dependencies"]}
print("\n".join(line for name in sys.argv[2:] for line in groups[name]))
