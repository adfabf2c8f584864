"""A run from top to bottom: settings, grid, programs, player, judge, report."""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from e2e.attempt import Name, begin, clean_up, under_way
from e2e.base.cell import Cell
from e2e.base.connector import Adapter
from e2e.base.errors import SettingsError, UsageError
from e2e.base.event import Event
from e2e.base.exhibit import Exhibit
from e2e.base.judgement import Judgement
from e2e.chosen import chosen, parts_of
from e2e.fit import check_beside
from e2e.grid.cells import by_engine
from e2e.judge.cells import judge
from e2e.judge.exhibits import exhibits
from e2e.part import KeyPart
from e2e.play.player import Player
from e2e.play.side_by_side import side_by_side, tasks
from e2e.recording.gather import Share, count, gathered, write
from e2e.recording.journal import read
from e2e.recording.resume import finished, next_attempt
from e2e.replay.prompts import decoder
from e2e.report import console, scoreboard
from e2e.report.facts import facts
from e2e.report.files import judged, write_reports
from e2e.settings.device import free_bytes
from e2e.settings.settings import FREE_OF_SHARDS, RECORDING, Settings
from e2e.stack.model_facts import weights_bytes


def run(settings: Settings, share: tuple[int, int] | None = None) -> int:
    """Runs the grid, judges it, writes the reports, prints the verdict; returns the exit code of the contract. What can
    be refused is refused before anything is written. ``share``: of an executor, number and of how many."""
    clean_up()
    before = read(settings.recording) if settings.resume else []
    made_of, adapter, grid = chosen(settings, share)
    done = finished(before)
    todo = left(by_engine(grid.cells, adapter), done)
    parts, grid = parts_of(todo, grid, settings, adapter, made_of, whole=not (share or settings.shard))
    refuse_crowded(settings, adapter, parts)
    if settings.side_by_side > 1:
        check_beside(parts, weights=weights_bytes(made_of.model), free=free_bytes(settings.device))
    groups = by_baseline(parts)
    with under_way(
        settings, made_of, Name.new(next_attempt(before)), parts, before=before, steps=steps_of(groups),
        report=lambda: report(settings.out, strict=settings.strict), alone=settings.timed,
    ) as player:  # fmt: skip
        begin(player, settings, adapter, grid, parts)
        if settings.side_by_side > 1:
            side_by_side(tasks(player, groups), engines=settings.side_by_side, halt=player.halt)
        else:
            play(player, groups)
    return report(settings.out, strict=settings.strict)


def play(player: Player[KeyPart], groups: list[list[KeyPart]]) -> None:
    """One engine key after the other."""
    while groups:
        player.progress.todo(steps_of(groups))
        player.play(groups.pop(0))


def refuse_crowded(settings: Settings, adapter: Adapter, parts: Sequence[KeyPart]) -> None:
    """SettingsError where a store that somebody else runs has no room for so many engine starts."""
    if why := None if settings.attach else adapter.crowded(starts=sum(part.starts for part in parts)):
        raise SettingsError(f"connector {adapter.name}: {why}")


def left(groups: Mapping[str, Sequence[Cell]], done: Container[str]) -> dict[str, list[Cell]]:
    """What is still to be played, engine by engine in the order of the whole grid: a run goes on where it stopped."""
    todo = {key: [cell for cell in cells if cell.id not in done] for key, cells in groups.items()}
    return {key: cells for key, cells in todo.items() if cells}


def by_baseline(parts: Sequence[KeyPart]) -> list[list[KeyPart]]:
    """Engine keys whose lent plain engines differ in nothing stand together: they share them."""
    groups: list[list[KeyPart]] = []
    for part in parts:
        alike = [group for group in groups if part.shared and group[0].shared == part.shared]
        alike[0].append(part) if alike else groups.append([part])
    return groups


def steps_of(groups: Sequence[Sequence[KeyPart]]) -> dict[str, int]:
    """How much there is to do, for the time left. ``groups``: as from ``by_baseline``."""
    parts = [part for group in groups for part in group]
    return {
        "start": sum(part.starts for part in parts) + sum(len(group[0].shared) for group in groups),
        "baseline": sum(len(part.shared) for part in parts),
        "cell": sum(len(part.cells) for part in parts),
    }


def report(folder: Path, *, strict: bool, out: Path | None = None) -> int:
    """Judges the recording in ``folder`` and writes, there or to ``out``, what a person and a machine read; nothing
    else is looked at."""
    events = read(folder / RECORDING)
    judgement = judge(events, strict=strict)
    out = out or folder
    of_run = facts(events)
    planted = bool(of_run.settings.get("self_test")) or any(cell.fault for cell in judgement.cells)
    board = scoreboard.scoreboard(judgement) if planted else None
    code = board.exit_code if board else judgement.exit_code
    with judged(code):
        write_reports(events, judgement, directory=out, exhibits=shown(events, judgement))
        on = console.console(sys.stdout)
        if board:
            return scoreboard.show(board, on=on, directory=out, ended=of_run.ended)
        console.show(of_run, judgement, on=on, directory=out)
    return code


def shown(events: Sequence[Event], judgement: Judgement) -> Mapping[tuple[str, int], Exhibit]:
    """What the page shows of each verdict, tokens in the words of the model's own tokenizer where it lies at hand."""
    argv = next((event["argv"] for event in events if event.kind == "engine.start" and event["argv"]), [])
    model = next((value for flag, value in pairwise(argv) if flag == "--model"), None)
    return exhibits(events, judgement, decoder(Path(model)) if model else None)


def rejudge(folder: Path, *, out: Path | None = None) -> int:
    """``maru-e2e judge DIR``: a verdict from the recording alone."""
    began = _begun(folder, read(folder / RECORDING))
    return report(folder, strict=_strict(began), out=out)


def add_up(folders: Sequence[Path], *, out: Path | None = None) -> int:
    """``maru-e2e scoreboard DIR...``: one scoreboard of several recordings, each judged again. UsageError for a run
    that would count twice."""
    board, ended, names, known = scoreboard.Scoreboard(), True, [], {}
    for folder in folders:
        events = read(folder / RECORDING)
        began = _begun(folder, events)
        count(Share(folder, events), known)
        of_run = facts(events)
        board += scoreboard.scoreboard(judge(events, strict=_strict(began)))
        ended &= of_run.ended
        about = of_run.settings.get("connector"), of_run.settings.get("model"), of_run.run["began"]
        names.append(f"{folder}: {', '.join(map(str, about))}")
    return scoreboard.show(board, on=console.console(sys.stdout), directory=out, ended=ended, recordings=names)


def merge(folders: Sequence[Path], *, out: Path) -> int:
    """``maru-e2e merge DIR...``: one recording and its reports of several, such as shards of one grid."""
    shares = [Share(folder, read(folder / RECORDING)) for folder in folders]
    began = [_begun(share.folder, share.events) for share in shares]
    write(out / RECORDING, gathered(shares, free=FREE_OF_SHARDS))
    return report(out, strict=any(map(_strict, began)))


def _begun(folder: Path, events: Sequence[Event]) -> list[Event]:
    began = [event for event in events if event.kind == "run.begin"]
    if not began:
        raise UsageError(f"{folder / RECORDING} holds no run; give the folder of a run that has begun.")
    return began


def _strict(began: Sequence[Event]) -> bool:
    return bool(began[-1]["settings"].get("strict", False))
