"""The one place where rooms meet; reads from top to bottom: settings, grid, stack, replay, recording, judge, report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from e2e.base.cell import Cell
from e2e.base.connector import Adapter
from e2e.base.errors import SettingsError, UsageError
from e2e.base.kv_form import packed_kv
from e2e.connectors.installed import installed
from e2e.connectors.table import ADAPTERS, load
from e2e.flow import Flow, Name, build
from e2e.grid.axes import Value, axis
from e2e.grid.cells import Grid, by_engine, expand
from e2e.judge.cells import judge
from e2e.material import Material, material
from e2e.plan import KeyPlan, plan, with_faults
from e2e.recording.journal import Journal, read
from e2e.recording.resume import finished, next_attempt
from e2e.report import console, scoreboard
from e2e.report.facts import facts
from e2e.report.files import judged, write_reports
from e2e.report.progress import Progress, said_if_slow
from e2e.settings.settings import RECORDING, Settings
from e2e.settings.world import (
    engine_environment,
    engine_python,
    secrets,
    shared_memory,
    state_dir,
)
from e2e.stack.attach import Attached, look
from e2e.stack.class_check import check_class
from e2e.stack.ledger import Ledger
from e2e.stack.reaper import reap
from e2e.stack.zygote import Zygote
from e2e.standing import Standing, judged_on_the_way_out


def run(settings: Settings) -> int:
    """Runs the grid, judges it, writes the reports, prints the verdict; returns the exit code of the contract. What can
    be refused is refused before anything is written."""
    clean_up()
    before = read(settings.recording) if settings.resume else []
    made_of, adapter, grid = chosen(settings)
    done = finished(before, baseline=not settings.attach)
    todo = by_engine([cell for cell in grid.cells if cell.id not in done], adapter)
    plans = [plan_of(key, cells, settings, adapter, made_of) for key, cells in todo.items()]
    if why := None if settings.attach else adapter.crowded(starts=len(plans)):
        raise SettingsError(f"connector {adapter.name}: {why}")
    name = Name.new(next_attempt(before))
    for planned in plans:
        build(planned, made_of, name, made_of.encode)
    with (
        Ledger(run_id=name.run_id, state_dir=state_dir()) as ledger,
        Zygote(ledger=ledger) as zygote,
        Journal(settings.recording, secrets=secrets(settings)) as journal,
        judged_on_the_way_out(journal.record, lambda: report(settings.out, strict=settings.strict)),
        Progress(sys.stderr, steps_of(by_baseline(plans))) as progress,
    ):
        standing = Standing(journal.record, before=before, directory=settings.out, strict=settings.strict)
        flow = Flow(settings, adapter, made_of, standing, progress, name, ledger, zygote)
        flow.begin(grid, plans)
        todo = by_baseline(plans)
        while todo:
            progress.todo(steps_of(todo))
            flow.engine_keys(todo.pop(0))
        journal.record("run.end", attempt=name.attempt)
    return report(settings.out, strict=settings.strict)


def clean_up() -> None:
    for left in reap(state_dir=state_dir()):
        print(f"cleaned up after run {left.run_id}")


def chosen(settings: Settings) -> tuple[Material, Adapter, Grid]:
    """What engines are made of, the connector, and the cells; an engine of somebody else is asked first."""
    starts = settings.launcher == "process" and not settings.attach
    python = engine_python(settings.engine_python) if starts else sys.executable
    adapter = load(
        settings.connector, pool_bytes=settings.pool_bytes, server=settings.connector_server, python=python
    )  # fmt: skip
    if not settings.attach:
        require_usable(adapter, settings)
    found = attached(settings)
    fixed = {**settings.axis_fixed, **(told_axes(found) if found else {})}
    grid = expand(settings.selection, adapter, defaults=settings.axis_defaults, fixed=fixed).require_cells()
    if settings.connector not in ADAPTERS and starts:
        config = adapter.config(grid.cells[0], pool_dir="", block_size=16)
        check_class(config, python=python, environ=engine_environment(python))
    made_of = material(settings, python=python, attached=found)
    if settings.self_test:
        packed = settings.device == "cpu" or packed_kv(installed(python).vllm_version)
        grid = with_faults(grid, plan_of("", grid.cells[:1], settings, adapter, made_of), packed=packed)
    return made_of, adapter, grid


def require_usable(adapter: Adapter, settings: Settings) -> None:
    """Raises SettingsError for a connector that can't run here, or not with this attention backend."""
    attention = settings.attention
    why = adapter.missing(device=settings.device) or adapter.unfit(device=settings.device, attention=attention)
    if why:
        raise SettingsError(f"connector {adapter.name}: {why}")


def attached(settings: Settings) -> Attached | None:
    if not settings.attach:
        return None
    key = settings.api_key.get_secret_value() if settings.api_key else None
    with said_if_slow(f"asking {settings.attach} ..."):
        return look(settings.attach, api_key=key)


def told_axes(found: Attached) -> dict[str, Value]:
    """Axes that an engine of somebody else has fixed, as its worker tells."""
    try:
        return {name: axis(name).parse(found.info[name]) for name in ("layout", "block_size") if name in found.info}
    except SettingsError as error:
        raise UsageError(f"the engine at {found.url} tells what the rig can't use: {error}") from error


def plan_of(key: str, cells: Sequence[Cell], settings: Settings, adapter: Adapter, made_of: Material) -> KeyPlan:
    return plan(
        key, cells, settings=settings, adapter=adapter, model=made_of.facts, most_tokens=made_of.most_tokens,
        shared=shared_memory(),
    )  # fmt: skip


def by_baseline(plans: Sequence[KeyPlan]) -> list[list[KeyPlan]]:
    """Engine keys whose baseline engines differ in nothing stand together: they share one. Attached, none has any."""
    groups: list[list[KeyPlan]] = []
    for planned in plans:
        alike = [group for group in groups if group[0].baseline == planned.baseline and not planned.settings.attach]
        alike[0].append(planned) if alike else groups.append([planned])
    return groups


def steps_of(groups: Sequence[Sequence[KeyPlan]]) -> dict[str, int]:
    """How much there is to do, for the time left. ``groups``: as from ``by_baseline``."""
    plans = [planned for group in groups for planned in group]
    baseline = bool(plans) and not plans[0].settings.attach
    cells = sum(len(planned.cells) for planned in plans)
    starts = len(plans) + (len(groups) if baseline else 0)
    return {"start": starts, "baseline": len(plans) if baseline else 0, "cell": cells}


def report(folder: Path, *, strict: bool, out: Path | None = None) -> int:
    """Judges the recording in ``folder`` and writes, there or to ``out``, what a person and a machine read; nothing
    else is looked at."""
    events = read(folder / RECORDING)
    judgement = judge(events, strict=strict)
    out = out or folder
    planted = any(cell.fault for cell in judgement.cells)
    code = scoreboard.scoreboard(judgement).exit_code if planted else judgement.exit_code
    with judged(code):
        write_reports(events, judgement, directory=out)
        on, of_run = console.console(sys.stdout), facts(events)
        if planted:
            return scoreboard.show(judgement, on=on, directory=out, ended=of_run.ended)
        console.show(of_run, judgement, on=on, directory=out)
    return code


def rejudge(folder: Path, *, out: Path | None = None) -> int:
    """``maru-e2e judge DIR``: a verdict from the recording alone."""
    began = [event for event in read(folder / RECORDING) if event.kind == "run.begin"]
    if not began:
        raise UsageError(f"{folder / RECORDING} holds no run; give the folder of a run that has begun.")
    return report(folder, strict=bool(began[-1]["settings"].get("strict", False)), out=out)
