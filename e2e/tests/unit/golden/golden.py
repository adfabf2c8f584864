"""The golden set: packing a run into it, and what the rig says of a packed recording.

python e2e/tests/unit/golden/golden.py pack RUN NAME     a run's recording into the set, and what is said of it
python e2e/tests/unit/golden/golden.py freeze            what is said of all of them, anew

GOLDEN_SET: a folder of that form instead of the set itself.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from dataclasses import asdict
from enum import Enum
from pathlib import Path

from e2e.judge import judge
from e2e.judge.gain import judge_gain
from e2e.recording.journal import read
from e2e.report import gain
from e2e.report.facts import facts
from e2e.report.files import RENDERERS

SET = Path(os.environ.get("GOLDEN_SET") or Path(__file__).resolve().parents[2] / "recordings" / "golden")
ROOT = Path(__file__).resolve().parents[4]
RECORDING, SAID = ".jsonl.gz", ".said.json.gz"
FILES = ("report.json", "junit.xml")


def names() -> list[str]:
    return sorted(path.name.removesuffix(RECORDING) for path in SET.glob(f"*{RECORDING}"))


def recording(name: str) -> Path:
    return SET / f"{name}{RECORDING}"


def said(name: str) -> dict[str, str]:
    """Name of what was said -> its text: the judgement, and the files that machines read."""
    events = read(recording(name))
    compared = judge_gain(events)
    judgement = compared.cells if compared else judge(events)
    texts = {"judgement": _json(asdict(judgement))}
    texts |= {file: RENDERERS[file](facts(events), judgement) for file in FILES}
    return texts | ({"gain.json": _json(gain.as_json(compared, events))} if compared else {})


def expected(name: str) -> dict[str, str]:
    return json.loads(gzip.decompress((SET / f"{name}{SAID}").read_bytes()))


def pack(run: Path, name: str) -> None:
    """``run``: the folder of a run on this machine, whose paths and name stay here."""
    text = (run / "recording.jsonl").read_text(encoding="utf-8")
    shared = (ROOT / ".model").resolve().parent  # a worktree may borrow another clone's
    own = {str(run.resolve().parent): "/rig/results", str(ROOT): "/rig", str(shared): "/rig", sys.prefix: "/python"}
    if maru := os.environ.get("MARU_PYTHON"):
        own[str(Path(maru).parents[1])] = "/python"
    for path, word in {**own, str(Path.home()): "/home"}.items():
        text = text.replace(path, word)
    _write(recording(name), text)
    freeze(name)


def freeze(name: str) -> None:
    _write(SET / f"{name}{SAID}", _json(said(name)))


def _json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True, default=lambda v: v.name if isinstance(v, Enum) else str(v))


def _write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{path.name}: {path.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    if sys.argv[1] == "pack":
        pack(Path(sys.argv[2]), sys.argv[3])
    else:
        for each in sys.argv[2:] or names():
            freeze(each)
