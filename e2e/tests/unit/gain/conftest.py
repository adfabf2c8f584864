"""The player's fake world serves comparisons too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "play"))
