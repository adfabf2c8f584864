"""Engine keys whose baseline engines differ in nothing share one start, and each keeps answers of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_recording import BASELINE, CELL, KEY, Recording

from e2e.base.cell import Cell
from e2e.base.verdict import Reason, Verdict
from e2e.connectors.embedded import Embedded
from e2e.connectors.maru.adapter import Maru
from e2e.connectors.maru.build import Build
from e2e.fit import fitted
from e2e.grid.cells import by_engine, expand
from e2e.grid.selection import Selection
from e2e.judge import judge
from e2e.report.facts import facts
from e2e.run import by_baseline, left, steps_of
from e2e.settings.settings import Settings

KEYS = frozenset({"maru_kv_chunk_tokens", "maru_use_layerwise", "maru_async_load", "maru_overlap_load_with_compute"})
MARU = Maru(build=Build(version="1", commit="c", source="s", keys=KEYS, kernels=False), server="127.0.0.1:1")
OTHER = "HND-other"


def parts(adapter, **selection):
    cells = expand(Selection(**selection), adapter).cells
    settings = Settings(attention="strided")
    return [
        fitted(key, of_key, settings=settings, adapter=adapter, model=None, shared=Path("/"))
        for key, of_key in by_engine(cells, adapter).items()
    ]


def test_sixteen_starts_of_marus_grid_become_ten():
    groups = by_baseline(parts(MARU))
    assert [{part.cells[0].get("layout") for part in group} for group in groups] == [{"NHD"}, {"HND"}]
    assert steps_of(groups) == {"start": 10, "baseline": 8, "cell": 8}


def test_keys_that_the_baseline_engine_sees_share_none():
    mixed = parts(MARU, cells=({"layout": "HND", "block_size": 16}, {"layout": "HND", "block_size": 32}))
    assert [{part.block_size for part in group} for group in by_baseline(mixed)] == [{16}, {32}]
    assert len(by_baseline(parts(Embedded()))) == 2


def shared() -> Recording:
    """A second key, whose baseline arms ran on the first one's engine under a name of their own."""
    made = Recording()
    lent = f"{OTHER}.baseline.9"
    made.add("plan.cell", **{**made.plan, "cell": OTHER, "engine_key": OTHER})
    (started,), (config,) = made.find("engine.start", engine=BASELINE), made.find("engine.config", engine=BASELINE)
    made.add("engine.start", **{**started, "engine": lent, "engine_key": OTHER, "launcher": f"shared: {BASELINE}"})
    made.add("engine.config", **{**config, "engine": lent})
    made.add("baseline.begin", engine=lent, engine_key=OTHER, attempt=1)
    for arm in ("cold", "local"):
        made.arm(lent, None, arm)
    made.add("baseline.end", engine=lent, engine_key=OTHER, attempt=1)
    made.connector = f"{OTHER}.connector.2"
    (connector,) = made.find("engine.start", role="connector")
    made.add("engine.start", **{**connector, "engine": made.connector, "engine_key": OTHER})
    made.add("engine.config", **{**config, "engine": made.connector})
    made.cell(OTHER)
    return made


def test_each_key_is_judged_by_the_answers_that_it_asked_for():
    made = shared()
    assert [(c.id, c.engine_key, c.verdict) for c in judge(made.build()).cells] == [
        (CELL, KEY, Verdict.PASS), (OTHER, OTHER, Verdict.PASS)
    ]  # fmt: skip
    made.change("request.done", lambda data: data.update(token_ids=[1, 2, 3, 4]), engine=f"{OTHER}.baseline.9")
    first, second = judge(made.build()).cells
    assert first.verdict is Verdict.PASS
    assert second.reason is Reason.FIRST_ANSWER_DIFFERS


def test_a_run_goes_on_with_the_engine_that_it_stopped_at():
    """Also where what is left of that stands behind other engines' cells, as planted faults do."""
    one, other, planted = (
        Cell({"layout": layout, **fault})
        for layout, fault in (("HND", {}), ("NHD", {}), ("HND", {"fault": "bit_flip"}))
    )
    groups = by_engine([one, other, planted], Embedded())
    assert list(left(groups, {one.id}).values()) == [[planted], [other]]
    assert list(left(groups, {one.id, planted.id}).values()) == [[other]]


def test_a_lent_engine_counts_as_no_start():
    starts = {f"{engine['key']}/{engine['role']}": engine["starts"] for engine in facts(shared().build()).engines}
    assert starts == {"HND/baseline": 1, "HND/connector": 1, f"{OTHER}/baseline": 0, f"{OTHER}/connector": 1}


@pytest.mark.parametrize("lost", ["baseline.begin", "baseline.end", "engine.config"])
def test_a_key_whose_share_is_not_whole_never_passes(lost):
    made = shared()
    made.drop(lost, engine=f"{OTHER}.baseline.9")
    assert [c.verdict is Verdict.PASS for c in judge(made.build()).cells] == [True, False]
