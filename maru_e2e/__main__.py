"""``maru-e2e`` and ``python -m maru_e2e``."""

from __future__ import annotations

import sys
from typing import NoReturn

from maru_e2e import EXIT_USAGE, hidden


def main() -> NoReturn:
    if why := hidden():
        sys.stderr.write(f"maru-e2e: {why}\n")
        raise SystemExit(EXIT_USAGE)
    from e2e.cli import main

    main()


if __name__ == "__main__":
    main()
