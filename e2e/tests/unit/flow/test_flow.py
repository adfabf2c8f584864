"""Which cells still run after what went wrong, and that each gets its line and its verdict; no engine is started."""

from __future__ import annotations

import io
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from e2e.base.errors import EngineAnswer, EngineCrashed, EngineTimeout
from e2e.connectors.embedded import Embedded
from e2e.flow import Flow, Name
from e2e.grid.cells import by_engine, expand
from e2e.grid.selection import Selection
from e2e.judge.cells import judge
from e2e.material import Material
from e2e.plan import plan
from e2e.recording.journal import Journal, read
from e2e.report.progress import Progress
from e2e.run import by_baseline, steps_of
from e2e.settings.settings import Settings
from e2e.standing import Standing

CELLS = tuple(
    {"layout": layout, "storage_format": "chunkwise", "overlap": overlap, "placement": "index"}
    for layout in ("NHD", "HND")
    for overlap in ("off", "on")
)


class Played(Flow):
    """Engines that are always there; ``fails``: (engine key or cell's id, role) -> the error of its arms, once."""

    fails: dict
    ran: list

    @contextmanager
    def _engine(self, plan, role):
        self.started += 1
        name = f"{plan.key}.{role}.{self.started}"
        with self.progress.step("start", f"starting {role} engine {plan.key}"):
            self.record(
                "engine.start", engine=name, engine_key=plan.key, role=role, attempt=1, argv=[], launcher="none",
                log="",
            )  # fmt: skip
        yield SimpleNamespace(name=name, engine=SimpleNamespace(name=name))

    def _arms(self, plan, live, cell, names):
        who = cell.id if cell else plan.key
        self.ran.append((live.name, who))
        if error := self.fails.pop(who, None):
            raise error

    def _serves(self, live):
        return True

    def _forget(self, live):
        pass


def ran(folder: Path, fails: dict):
    settings, adapter = Settings(attention="strided", out=folder), Embedded()
    grid = expand(Selection(cells=CELLS), adapter)
    plans = [
        plan(key, cells, settings=settings, adapter=adapter, model=None, shared=folder)
        for key, cells in by_engine(grid.cells, adapter).items()
    ]
    stream, made_of = io.StringIO(), Material("python", "model", None, None, (), None)
    with Journal(folder / "recording.jsonl") as journal:
        standing = Standing(journal.record, directory=folder)
        groups = by_baseline(plans)
        with Progress(stream, steps_of(groups)) as progress:
            flow = Played(settings, adapter, made_of, standing, progress, Name.new(), None, None)
            flow.fails, flow.ran = fails, []
            flow.begin(grid, plans)
            for group in groups:
                flow.engine_keys(group)
    lines = [line for line in stream.getvalue().splitlines() if any(f" {cell.id}" in line for cell in grid.cells)]
    return flow.ran, lines, read(folder / "recording.jsonl"), [cell.id for cell in grid.cells]


def test_every_cell_is_planned_before_any_engine_starts_and_gets_one_line(tmp_path):
    engines, lines, events, ids = ran(tmp_path, {})
    kinds = [event.kind for event in events]
    assert [event["cell"] for event in events if event.kind == "plan.cell"] == ids
    assert kinds.index("engine.start") > max(n for n, kind in enumerate(kinds) if kind == "plan.cell")
    assert [who for _, who in engines] == ["NHD", *ids[:2], "HND", *ids[2:]]
    assert len(lines) == len(ids)
    assert [line.split("]")[0] for line in lines] == ["[1/4", "[2/4", "[3/4", "[4/4"]
    assert (tmp_path / "report.json").is_file()


def test_a_baseline_engine_that_fails_gives_up_its_own_cells_only(tmp_path):
    engines, lines, _, ids = ran(tmp_path, {"NHD": EngineTimeout("it did not answer")})
    assert [who for _, who in engines] == ["NHD", "HND", *ids[2:]]
    assert [sum(cell in line for line in lines) for cell in ids] == [1, 1, 1, 1]


@pytest.mark.parametrize("error", [EngineCrashed("gone"), EngineTimeout("hung")])
def test_a_cell_that_brings_its_engine_down_leaves_the_rest_to_another(tmp_path, error):
    first = expand(Selection(cells=CELLS), Embedded()).cells[0].id
    engines, lines, events, ids = ran(tmp_path, {first: error})
    by_cell = {who: engine for engine, who in engines}
    assert by_cell[ids[0]] != by_cell[ids[1]]
    assert [event["cell"] for event in events if event.kind == "cell.end"] == ids[1:]
    assert f"[1/4] 00:00 inconclusive: not run {ids[0]}" in "\n".join(lines)


def test_an_error_that_no_event_holds_is_noted_and_the_engine_goes_on(tmp_path):
    first = expand(Selection(cells=CELLS), Embedded()).cells[0].id
    told = EngineAnswer("/metrics can't be read (vllm:num_requests_running is nan)", status=200)
    engines, _, events, ids = ran(tmp_path, {first: told})
    by_cell = {who: engine for engine, who in engines}
    assert by_cell[ids[0]] == by_cell[ids[1]]
    assert [event["text"] for event in events if event.kind == "note"][1:] == [f"{first}: {told}"]
    (cell,) = [cell for cell in judge(events).cells if cell.id == first]
    assert cell.verdict.value == "inconclusive"


def test_an_error_that_its_request_holds_is_not_told_twice(tmp_path):
    first = expand(Selection(cells=CELLS), Embedded()).cells[0].id
    told = EngineAnswer("refused", status=500)
    told.recorded = True
    _, _, events, _ = ran(tmp_path, {first: told})
    assert len([event for event in events if event.kind == "note"]) == 1, "what the connector is"
