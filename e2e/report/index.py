"""index.html over all runs and nights below a folder: one static page beside them, which a job can publish as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from e2e.base.errors import EXIT_INCONCLUSIVE, EXIT_PASS, UsageError
from e2e.base.spelling import count
from e2e.regular import read_bytes
from e2e.report import html
from e2e.report.document import Heading, Items, Judged, Link, Page, PageBlock, Paragraph, Table
from e2e.report.files import put
from e2e.report.night_inputs import read_closed
from e2e.report.night_page import over_nights
from e2e.report.nightly import Night
from e2e.report.nightly_files import word

#: How deep runs lie below the folder: ``nights/<night>/<step>/report.json`` and one more.
DEPTH = 4
#: Beside a run's report: name -> its page.
_MORE = ("scoreboard", "gain")


class _Settings(msgspec.Struct):
    connector: str | None = None
    model: str | None = None


class _Run(msgspec.Struct):
    command: list[str] | str | None = None
    began: str | float | None = None
    seconds: float | None = None
    settings: _Settings | None = None


class _Summary(msgspec.Struct):
    verdict: str
    cells: int
    passed: int = msgspec.field(name="pass")


class _Report(msgspec.Struct):
    run: _Run
    summary: _Summary


class _Row(msgspec.Struct):
    outcome: str


class _Board(msgspec.Struct):
    rows: list[_Row]


@dataclass(frozen=True)
class Found:
    """``folder``: below the index, with ``/``. ``judged``: of planted faults what became of them."""

    folder: str
    report: _Report
    judged: Judged
    pages: Sequence[str]


def write_index(folder: Path) -> tuple[int, int]:
    """``folder``/index.html; how many runs and nights stand in it. UsageError where there is none, or no room."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; give one that holds runs or nights.")
    runs, nights, unread = _runs(folder), _nights(folder), list[str]()
    runs = [run for run in runs if not isinstance(run, str) or unread.append(run)]
    if not runs and not nights:
        raise UsageError(f"{folder} holds no report.json and no night.json; give a folder that holds runs or nights.")
    put(folder / "index.html", html.render(page(runs, nights, unread, folder=folder)), cure="make room for it")
    return len(runs), len(nights)


def page(
    runs: Sequence[Found], nights: Sequence[tuple[Night, bool]], unread: Sequence[str], *, folder: Path
) -> Page:  # fmt: skip
    """``nights``: oldest first, with whether each was good."""
    blocks: list[PageBlock] = [Heading(f"{count(len(runs), 'run')}, {count(len(nights), 'night')}", level=1)]

    def address(name: str) -> str:
        return f"{quote(name)}/summary.html" if (folder / name / "summary.html").is_file() else ""

    if nights:
        blocks += [Heading("Nights"), Table(("night", "came out", "ran on", "cells", "not passed"), [
            (Link(night.name, address(night.name)), _came_out(night, good), night.machine,
             str(len(night.cells)), str(sum(cell.verdict != "pass" for cell in night.cells.values())))
            for night, good in reversed(nights)
        ], left=3)]  # fmt: skip
        blocks += over_nights([night for night, _ in nights], address)
    if runs:
        headings = ("began", "run", "verdict", "passed", "connector", "model", "took", "more")
        newest = sorted(runs, key=lambda run: (str(run.report.run.began), run.folder), reverse=True)
        blocks += [Heading("Runs"), Table(headings, list(map(_row, newest)), left=len(headings))]
    if unread:
        blocks += [Heading("Not readable"), Paragraph("Judge these folders again:"), Items(unread)]
    return blocks


def _came_out(night: Night, good: bool) -> Judged:
    """One whose own steps were green may have lost cells or hits that the nights before it had."""
    return Judged(word(EXIT_PASS if good else night.code or EXIT_INCONCLUSIVE))


def _row(run: Found) -> tuple[str, ...]:
    of, settings = run.report.run, run.report.run.settings or _Settings()
    command = of.command if isinstance(of.command, list) else str(of.command or "").split()
    name = f"{run.folder or '.'}{f' ({command[1]})' if len(command) > 1 else ''}"
    first, *more = [*run.pages, ""]
    return (
        str(of.began or "")[:19], Link(name, first), run.judged,
        f"{run.report.summary.passed} of {run.report.summary.cells}", settings.connector or "-", settings.model or "-",
        "-" if of.seconds is None else f"{of.seconds:.0f} s",
        Link(Path(more[0]).stem, more[0]) if more and more[0] else "",
    )  # fmt: skip


def _runs(folder: Path) -> list[Found | str]:
    """What can be read, else its folder."""
    return [_run(folder, path) for path in _below(folder) if (path / "report.json").is_file()]


def _below(folder: Path) -> Iterator[Path]:
    for name, inner, _ in os.walk(folder):
        inner[:] = sorted(each for each in inner if not each.startswith("."))
        if len(Path(name).relative_to(folder).parts) >= DEPTH:
            inner.clear()
        yield Path(name)


def _run(folder: Path, path: Path) -> Found | str:
    inside = "/".join(path.relative_to(folder).parts)
    try:
        report = msgspec.json.decode(read_bytes(path / "report.json"), type=_Report)
        board = path / "scoreboard.json"
        judged = _of_board(board) if board.is_file() else Judged(report.summary.verdict)
    except (OSError, ValueError, RecursionError):
        return inside or "."
    names = [f"{name}.html" for name in ("report", *_MORE)]
    pages = [quote(f"{inside}/{name}" if inside else name) for name in names if (path / name).is_file()]
    return Found(inside, report, judged, pages)


def _of_board(path: Path) -> Judged:
    outcomes = [row.outcome for row in msgspec.json.decode(read_bytes(path), type=_Board).rows]
    counts: Mapping[str, int] = {word: outcomes.count(word) for word in ("missed", "undecided", "caught")}
    worst = next((word for word, number in counts.items() if number), "caught")
    return Judged(f"{worst}: {counts[worst]} of {len(outcomes)} faults" if outcomes else "nothing planted")


def _nights(folder: Path) -> list[tuple[Night, bool]]:
    """Oldest first. UsageError for one that can't be read: without it what is new would not show."""
    return [found for path in sorted(folder.glob("*/night.json")) if (found := read_closed(path))]
