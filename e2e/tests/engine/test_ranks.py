"""Two tensor-parallel ranks: each stores, loads and is looked at for itself; what one of them spoils is found there."""

from __future__ import annotations

import pytest

from e2e.stack.reaper import segments
from e2e.tests.engine.tiny import tiny_model

# long, since on two busy cores two ranks that spin fail loads by time (an error, never a wrong answer)
pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]
CELLS = ("storage_format=chunkwise,overlap=off", "storage_format=layerwise,overlap=on")


@pytest.fixture(scope="module")
def before() -> set[str]:
    """What others have left there."""
    return {str(path) for path in segments().values()}


@pytest.fixture(scope="module")
def ran(rig, tmp_path_factory, before):
    """Two cells, clean and with one layer zeroed on the second rank alone."""
    words = [word for cell in CELLS for word in ("--cell", f"tensor_parallel=2,layout=HND,placement=index,{cell}")]
    return rig(
        "--model", tiny_model(), *words, "--fault", "zero_layer_on_rank_1",
        command="faults", out=tmp_path_factory.mktemp("ranks"),
    )  # fmt: skip


def of(cells: dict[str, dict], *, fault: str | None) -> list[dict]:
    found = [cell for cell in cells.values() if cell["fault"] == fault]
    assert len(found) == len(CELLS)
    return found


def test_nothing_that_they_shared_is_left(ran, before) -> None:
    left = {str(path) for path in segments().values()} - before
    assert not [path for path in left if "vllm_dist_" in path]


def test_both_ranks_are_served_and_reproduce(ran) -> None:
    for cell in of(ran.cells, fault=None):
        assert (cell["verdict"], cell["first_generation"]) == ("pass", "identical"), ran.said
        assert cell["oracle"]["max_logprob_diff"] == 0
        assert cell["hits"]["predicted"] == cell["hits"]["engine"] == cell["hits"]["connector"] > 0


def test_a_fault_on_one_rank_is_located_there_and_changes_answers(ran) -> None:
    assert ran.code == 0, ran.said
    for cell in of(ran.cells, fault="zero_layer_on_rank_1"):
        assert cell["verdict"] == "corrupt"
        reasons = {finding["reason"] for finding in cell["findings"]}
        assert reasons & {"tokens differ", "logprobs differ"}, reasons
        digests = [finding["evidence"] for finding in cell["findings"] if finding["rule"] == "digests"]
        assert digests
        for seen in digests:
            assert (seen["rank"], seen["wrong_ranks"], seen["ranks"], seen["pattern"]) == (1, [1], 2, "zeros")
    assert "rank 1 of 2" in (ran.out / "report.md").read_text()


def test_every_rank_told_for_itself(ran) -> None:
    assert {data["rank"] for data in ran.events("fault.fired")} == {1}
    for kind in ("digest.taken", "connector.evidence"):
        told = [data["rank"] for data in ran.events(kind)]
        assert told.count(0) == told.count(1) > 0
    for data in ran.events("connector.evidence"):
        assert len({load["request"] for load in data["loads"]}) == len(data["loads"])
    for data in ran.events("engine.config"):
        assert (data["effective"]["ranks"], data["effective"]["tensor_parallel"]) == (2, 2)
        assert "ranks_differ" not in data["effective"]
