"""``maru-e2e`` and ``python -m maru_e2e``."""

from __future__ import annotations

import sys
from typing import NoReturn

from maru_e2e import EXIT_USAGE, hidden


def main() -> NoReturn:
    if why := hidden():
        _refuse(why)
    try:
        from e2e.cli import main
    except ImportError as error:  # a traceback would end with 1, which is a verdict's
        _refuse(f"{error}; the installation is broken, install maru-e2e again.")
    main()


def _refuse(why: str) -> NoReturn:
    if sys.stderr is not None:
        sys.stderr.write(f"maru-e2e: {why}\n")
    raise SystemExit(EXIT_USAGE)


if __name__ == "__main__":
    main()
