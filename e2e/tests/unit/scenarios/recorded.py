"""Recordings of planted faults: one cell of a run on real engines, small enough to be kept.

python e2e/tests/unit/scenarios/recorded.py RUN NAME CELL     that cell of a run into the set, under this name
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

SET = Path(__file__).resolve().parents[2] / "recordings" / "scenarios"
ROOT = Path(__file__).resolve().parents[4]

ENDED, LEFT_OUT = ("request.done", "request.failed"), ("digest.sample", "note")


def recording(name: str) -> Path:
    return SET / f"{name}.jsonl.gz"


def pack(run: Path, name: str, cell: str) -> None:
    """``run``: the folder of a run on this machine, whose paths and name stay here."""
    text = "".join(_of_cell((run / "recording.jsonl").read_text(encoding="utf-8").splitlines(), cell))
    shared = (ROOT / ".model").resolve().parent  # a worktree may borrow another clone's
    own = {str(run.resolve().parent): "/rig/results", str(ROOT): "/rig", str(shared): "/rig", sys.prefix: "/python"}
    for path, word in {**own, str(Path.home()): "/home"}.items():
        text = text.replace(path, word)
    SET.mkdir(exist_ok=True)
    recording(name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{recording(name).name}: {recording(name).stat().st_size >> 10} KiB")


def _of_cell(lines: Sequence[str], cell: str) -> Iterator[str]:
    """What tells of this cell or of its engines. Equal digests are told once, by whichever cell was first: so that one
    is told here, too. What takes most room goes: samples of wrong pages, and what answers say beside their tokens and
    the logprobs of these."""
    events = [json.loads(line) for line in lines]
    key = next(e["data"]["engine_key"] for e in events if e["kind"] == "plan.cell" and e["data"]["cell"] == cell)
    starts = [event["data"] for event in events if event["kind"] == "engine.start"]
    played = next(e["data"]["attempt"] for e in events if e["kind"] == "cell.end" and e["data"]["cell"] == cell)
    engines = {start["engine"] for start in starts if start["engine_key"] == key and start.get("cell") in (None, cell)}
    values, requests, number = {}, set(), 0
    for event in events:
        kind, data = event["kind"], event["data"]
        if kind == "digest.taken" and data["values"] is not None:
            values[data["engine"], data["content"]] = data["values"]
        others = data.get("engine", key) not in {None, key, *engines} or data.get("cell") not in (None, cell)
        if kind == "request.sent" and not others:
            requests.add(data["request"])
        others |= kind == "plan.cell" and data["attempt"] != played
        if others or kind in LEFT_OUT or (kind in ENDED and data["request"] not in requests):
            continue
        if kind == "digest.taken":
            data["values"] = values.pop((data["engine"], data["content"]), None)
        elif kind == "request.done":
            data |= {"top": None, "text": []}
        yield json.dumps({**event, "seq": number}) + "\n"
        number += 1


if __name__ == "__main__":
    pack(Path(sys.argv[1]), *sys.argv[2:])
