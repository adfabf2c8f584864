"""Recordings of real runs as people see them: report.md and gain.md, and the terminal at 80 columns. What changes here
is to be looked at; ``python e2e/tests/unit/report/test_snapshots.py`` writes them anew."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from e2e.base.event import Event
from e2e.judge import judge
from e2e.judge.gain import judge_gain
from e2e.lab import report as lab
from e2e.recording.journal import read
from e2e.report import console, gain, markdown, scoreboard, terminal
from e2e.report.document import Document
from e2e.report.facts import facts
from e2e.report.files import RENDERERS

HERE = Path(__file__).parent / "snapshots"
H200 = Path(__file__).resolve().parents[2] / "recordings" / "h200"


def recorded(name: str) -> list[Event]:
    return read(H200 / f"{name}.jsonl.gz")


def narrow(document: Document) -> str:
    stream = io.StringIO()
    on = terminal.console(stream)
    on.width = 80
    terminal.show(document, on=on)
    return stream.getvalue()


def defect() -> str:
    events = recorded("defect")
    return RENDERERS["report.md"](facts(events), judge(events))


def cut_short() -> str:
    """As if the rig had been killed in the last cell."""
    events = recorded("defect")[:-40]
    return RENDERERS["report.md"](facts(events), judge(events))


def defect_on_a_terminal() -> str:
    events = recorded("defect")
    stream = io.StringIO()
    on = console.console(stream)
    on.width = 80
    console.show(facts(events), judge(events), on=on, directory=Path("/results"))
    return stream.getvalue()


def defects_scoreboard() -> str:
    return markdown.render(scoreboard.document(scoreboard.scoreboard(judge(recorded("defect")))))


def comparison(name: str) -> Document:
    events = recorded(name)
    return gain.document(judge_gain(events), events)


def benchmark() -> str:
    with gzip.open(H200 / "bench.json.gz", "rt", encoding="utf-8") as file:
        return markdown.render(list(lab.benchmark(json.load(file))))


SNAPSHOTS = {
    "defect.md": defect,
    "defect-cut-short.md": cut_short,
    "defect-terminal.txt": defect_on_a_terminal,
    "defect-scoreboard.md": defects_scoreboard,
    "gain-nhd.md": lambda: markdown.render(comparison("gain-nhd")),
    "gain-hnd-terminal.txt": lambda: narrow(comparison("gain-hnd")),
    "bench.md": benchmark,
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_as_it_was(name):
    assert SNAPSHOTS[name]() == (HERE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in SNAPSHOTS if name.endswith(".txt")])
def test_lines_of_words_fit_the_terminal(name):
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    assert all(len(line) <= 80 for line in lines if line.startswith("  "))


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for file, render in SNAPSHOTS.items():
        (HERE / file).write_text(render(), encoding="utf-8")
