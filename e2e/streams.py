"""Standard streams that can't fail: a closed pipe, a full disk or a terminal without UTF-8 costs words, no verdict.

What fails is forgotten where it happens, so that nobody (rich, a child, Python's own flush at exit) turns it into an
exit code.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO


def forgive() -> None:
    """Makes ``sys.stdout`` and ``sys.stderr`` such streams. A standard descriptor that is closed becomes the null
    device first: else a recording could get its number, and engines would print into it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            _forget(descriptor)
    sys.stdout = _forgiving(1, sys.stdout)
    sys.stderr = _forgiving(2, sys.stderr)


def _forget(descriptor: int) -> None:
    """From here on its words go nowhere, those of our children too."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, descriptor)
    if null != descriptor:
        os.close(null)


class _Forgiving(io.TextIOWrapper):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            _forget(self.fileno())
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            _forget(self.fileno())
            super().flush()


def _forgiving(descriptor: int, before: TextIO | None) -> TextIO:
    """With the encoding of the stream that it replaces, which is None where the descriptor was closed."""
    if before is not None:
        with suppress(OSError, ValueError):
            before.flush()
    return _Forgiving(
        open(descriptor, "wb", closefd=False),
        encoding=before.encoding if before is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=descriptor == 2 or os.isatty(descriptor),
    )
