"""One attempt at a run: its name, all that has to be open around it, and what stands at its beginning."""

from __future__ import annotations

import platform
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import psutil

from e2e.base.connector import Adapter
from e2e.base.event import SCHEMA, Event
from e2e.grid.cells import RERUN, Grid
from e2e.material import Material
from e2e.part import KeyPart
from e2e.play.live import LiveWorld
from e2e.play.player import Player
from e2e.play.prompting import Prompts
from e2e.recording.journal import Journal
from e2e.report.progress import Progress, said_if_slow
from e2e.scenarios.packs import PACKS, untold
from e2e.settings.settings import Settings
from e2e.settings.world import commit, program, secrets, state_dir
from e2e.stack.ledger import Ledger
from e2e.stack.reaper import reap
from e2e.stack.zygote import Zygote
from e2e.standing import Standing, judged_on_the_way_out


@dataclass(frozen=True)
class Name:
    run_id: str
    attempt: int

    @classmethod
    def new(cls, attempt: int = 1) -> Name:
        return cls(f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}", attempt)


def clean_up() -> None:
    """What a killed run left."""
    for left in reap(state_dir=state_dir()):
        print(f"cleaned up after run {left.run_id}")


@contextmanager
def under_way(
    settings: Settings, made_of: Material, name: Name, parts: Sequence[KeyPart], *, steps: Mapping[str, int],
    report: Callable[[], int], before: Sequence[Event] = (), alone: bool = False,
) -> Iterator[Player[KeyPart]]:  # fmt: skip
    """The player of an attempt, which records, is watched and is judged and reported however it ends. ``steps``: see
    ``Progress``. ``before``: events of earlier attempts. ``alone``: no other run has engines here meanwhile.
    SettingsError for prompts that can't be, UsageError for other runs that don't end, before anything is written."""
    prompts = Prompts(made_of.texts, made_of.encode, run=f"{name.run_id}/{name.attempt}")
    for part in parts:
        prompts.build(part.key, part.program)
    with said_if_slow("waiting for the engines of other runs to end ..." if alone else "waiting for a timed run ..."):
        registered = Ledger(run_id=name.run_id, state_dir=state_dir(), alone=alone)
    with (
        registered as ledger,
        Zygote(ledger=ledger) as zygote,
        Journal(settings.recording, secrets=secrets(settings)) as journal,
        judged_on_the_way_out(journal.record, report),
        Progress(sys.stderr, steps, at_once=settings.side_by_side) as progress,
    ):
        standing = Standing(journal.record, before=before, directory=settings.out, strict=settings.strict)
        world = LiveWorld(
            settings, made_of, standing.record, prompts, name.run_id, name.attempt, ledger, zygote
        )  # fmt: skip
        doing = "attaching to" if settings.attach else "starting"
        yield Player(
            world, standing, progress, name.attempt, lambda text: progress.say(world.without_secrets(text)), doing
        )
        journal.record("run.end", attempt=name.attempt)


def begin(
    player: Player[KeyPart], settings: Settings, adapter: Adapter, grid: Grid, parts: Sequence[KeyPart]
) -> None:  # fmt: skip
    """All that is known before anything starts."""
    player.record(
        "run.begin",
        run_id=player.world.run_id, attempt=player.attempt, schema=SCHEMA, command=["maru-e2e", *settings.argv],
        versions=versions(), machine=machine(), settings=settings.as_json(),
        wall_time=datetime.now(timezone.utc).isoformat(timespec="seconds"), program=program(), folder=str(Path.cwd()),
    )  # fmt: skip
    whose = f"Connector {adapter.name}: {adapter.description}."
    player.say(whose)
    player.record("note", text=whose)
    for invalid in grid.invalid:
        player.record("plan.invalid", settings=dict(invalid.settings), why=invalid.why)
    if grid.collapsed:
        text = f"Connector {adapter.name} has no axis {', '.join(grid.collapsed)}: one cell for all."
        player.record("note", text=text)
    for name in settings.scenarios:
        if name in PACKS and (text := PACKS[name].leaves_out):
            player.say(text)
            player.record("note", text=text)
    left = untold(str(cell.get("scenario", RERUN)) for cell in grid.cells)
    for part in parts:
        for why in part.lengths.why:
            player.record("note", text=f"{part.key}: {why}")
        for cell in part.cells:
            player.record("plan.cell", **part.event(cell, attempt=player.attempt, untold=left))


def versions() -> dict[str, str]:
    """Of the rig and its Python."""
    found = {"maru-e2e": version("maru-e2e"), "python": platform.python_version(), "commit": commit()}
    return {name: text for name, text in found.items() if text}


def machine() -> dict[str, object]:
    return {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count(),
        "threads": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
    }
