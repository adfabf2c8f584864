"""What can't be shrunk, and where the search can't be kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from row import Row

sys.path.insert(0, str(Path(__file__).parent.parent / "judge"))
from synthetic_recording import CELL, Recording

RUN = "run"
Make = Callable[[Path], None]


@cache
def _lines(corrupt: bool) -> tuple[str, ...]:
    recording = Recording()
    if corrupt:
        recording.change("request.done", lambda data: data["token_ids"].__setitem__(0, 7), arm="external")
    events = recording.build()
    return tuple(
        json.dumps({"seq": i, "t_ns": e.t_ns, "kind": e.kind, "data": dict(e.data)}) for i, e in enumerate(events)
    )


def recorded(*, corrupt: bool = True, folder: str = RUN, **settings: object) -> Make:
    """``settings``: of the run, beside its own."""

    def make(root: Path) -> None:
        entries = [json.loads(line) for line in _lines(corrupt)]
        entries[0]["data"]["settings"] |= settings
        (root / folder).mkdir(parents=True)
        (root / folder / "recording.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))

    return make


def both(*makes: Make) -> Make:
    def make(root: Path) -> None:
        for each in makes:
            each(root)

    return make


def text(name: str, content: str = "") -> Make:
    def make(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)

    return make


def row(name: str, says: tuple[str, ...], *words: str, given: Make | None = None) -> Row:
    return Row(f"shrink: {name}", ("shrink", RUN, *words), 2, says, given=given or recorded())


ROWS = (
    Row("shrink: no folder", ("shrink",), 2, ("FOLDER",)),
    Row("shrink: a folder that is not there", ("shrink", "nowhere"), 2, ("nowhere holds no recording", "of a run")),
    Row("shrink: two folders", ("shrink", "a", "b"), 2, ("one word too many",)),
    row("a folder without a recording", (f"{RUN} holds no recording.jsonl",), given=text(f"{RUN}/report.json", "{}")),
    row("the recording itself", ("holds no recording.jsonl",), given=text(RUN, "{}")),
    row("an empty recording", ("no cell", "nothing to shrink"), given=text(f"{RUN}/recording.jsonl")),
    row("a recording that is none", ("recording.jsonl line 1", "changed or damaged"),
        given=text(f"{RUN}/recording.jsonl", "hello\n")),
    row("a healthy run", (f"no cell of {RUN} is corrupt", f"maru-e2e judge {RUN}"), given=recorded(corrupt=False)),
    row("a cell that there is not", ("--cell", "'NHD'", CELL), "--cell", "NHD"),
    row("a cell with a slip", ("--cell", f"did you mean {CELL}?"), "--cell", CELL.replace("kernel", "kernle")),
    row("a cell by its axes", ("--cell", CELL), "--cell", "layout=HND"),
    row("an empty cell", ("--cell", "it is empty"), "--cell", ""),
    row("no cell after its flag", ("--cell",), "--cell"),
    row("no start at all", ("--starts",), "--starts", "0"),
    row("starts by a word", ("--starts",), "--starts", "many"),
    row("a start and a half", ("--starts",), "--starts", "1.5"),
    row("fewer starts than the cell needs", ("--starts: 1 is too few", "needs 2"), "--starts", "1"),
    row("no time at all", ("--minutes", "minutes above 0"), "--minutes", "0"),
    row("time by a word", ("--minutes", "'long' is no number of minutes"), "--minutes", "long"),
    row("time without end", ("--minutes", "every wait has a limit"), "--minutes", "inf"),
    row("time that is no number", ("--minutes",), "--minutes", "nan"),
    row("the run's own folder to write to", ("holds a recording already", "--out"), "--out", RUN),
    row("a folder to write to that is a file", ("--out", "is a file"), "--out", "x", given=both(recorded(), text("x"))),
    row("an empty folder to write to", ("--out", "it is empty"), "--out", ""),
    row("a search that was begun", ("add --resume",), "--out", "s", given=both(recorded(), recorded(folder="s"))),
    row("a search that was never begun", ("--resume", "nothing to continue", "leave --resume out"), "--resume"),
    row("another search to continue", ("--resume", "another search", "--out"), "--out", "s", "--resume",
        given=both(recorded(), recorded(folder="s"))),
    row("an engine of somebody else", ("--attach", "engines of its own"), given=recorded(attach="http://h:8000")),
    row("settings of another version", ("this version can't use (prompts)", "run the cell again"),
        given=recorded(prompts="lots")),
    row("a flag of a run", ("--connector",), "--connector", "embedded"),
    row("a scenario", ("--scenario",), "--scenario", "replay"),
    Row("shrink: a cell by its variable", ("shrink", RUN), 2, ("NHD", CELL), given=recorded(),
        environ={"MARU_E2E_SHRINK_CELL": "NHD"}),
    Row("shrink: starts by their variable", ("shrink", RUN), 2, ("MARU_E2E_STARTS",), given=recorded(),
        environ={"MARU_E2E_STARTS": "none"}),
)  # fmt: skip
