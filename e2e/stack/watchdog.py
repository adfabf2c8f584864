"""The reaper that outlives a run: ``python -m e2e.stack.watchdog FILE``, with a pipe to the run as standard input.

The pipe ends when the run does, however it died; it brings what engines were told in confidence. If the run's file is
still there then, nobody cleaned up. The owner is looked at too, once a second, since a forked child of the run may hold
the pipe open.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from e2e.stack.confided import understood
from e2e.stack.owned import RunFile
from e2e.stack.reaper import reap_file
from e2e.waits import Outcome, wait

#: The kernel closes a dying process's files before the process is gone.
DEATH_LIMIT_S = 30.0


def main(path: Path) -> None:
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
    messages = b""
    while (run := RunFile.read(path)) and not run.orphaned():
        more = _said(limit_s=1.0)
        if more == b"":
            break
        messages += more or b""
    while more := _said(limit_s=0.0):  # its last words
        messages += more
    run = RunFile.read(path)  # gone when the run ended well; else up to date
    if run and wait(run.orphaned, limit_s=DEATH_LIMIT_S) is Outcome.READY:
        reap_file(run, path, secrets=understood(messages))


def _said(*, limit_s: float) -> bytes | None:
    """What the run says; empty when it said its last, None when it said nothing in time."""
    readable, _, _ = select.select([sys.stdin], [], [], limit_s)
    return os.read(sys.stdin.fileno(), 1 << 16) if readable else None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
