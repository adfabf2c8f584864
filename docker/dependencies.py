"""Prints what the rig depends on: a layer that outlives its source: dependencies.py PYPROJECT [EXTRA]"""

import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
print("\n".join(project["optional-dependencies"][sys.argv[2]] if sys.argv[2:] else project["dependencies"]))
