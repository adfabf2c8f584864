"""The fake world and the programs made for it serve here, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "play"))
