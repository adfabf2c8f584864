"""``python -m e2e``."""

from __future__ import annotations

from maru_e2e.__main__ import main

if __name__ == "__main__":
    main()
