"""What a user names is read here: a pipe, a device or a socket would hold the rig up, or never end."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path


def read_bytes(path: Path) -> bytes:
    """Raises OSError, also for what is no regular file; nobody is waited for."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read()


def read_text(path: Path) -> str:
    """UTF-8, lines end with a newline. Raises OSError as ``read_bytes``, UnicodeDecodeError."""
    return io.TextIOWrapper(io.BytesIO(read_bytes(path)), encoding="utf-8").read()
