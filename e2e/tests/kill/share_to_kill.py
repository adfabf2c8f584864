"""Stands in for a share on a node: records what a real one did, and stops halfway until a file says go.

``share_to_kill.py OUT NUMBER OF``; the variable names the folder of whole recordings, ``NUMBER.jsonl``.
"""

import os
import sys
from pathlib import Path

from e2e.waits import wait

SOURCE = "MARU_SHARES"

if __name__ == "__main__":
    out, number, _ = sys.argv[1:]
    source, recording = Path(os.environ[SOURCE]), Path(out) / "recording.jsonl"
    lines = (source / f"{number}.jsonl").read_bytes().splitlines(keepends=True)
    known = len(recording.read_bytes().splitlines()) if recording.exists() else 0
    print(f"goes on behind {known} of {len(lines)} lines", file=sys.stderr, flush=True)
    for at, line in enumerate(lines[known:], start=known):
        if at == len(lines) // 2:
            wait((source / "go").exists, limit_s=600)
        with recording.open("ab") as file:
            file.write(line)
