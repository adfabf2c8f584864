"""The judge's synthetic recordings serve the flow's tests too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "judge"))
