"""The judge's synthetic recordings and the nights of other tests serve the report's tests too."""

import sys
from pathlib import Path

for room in ("judge", "nightly"):
    sys.path.insert(0, str(Path(__file__).parent.parent / room))
