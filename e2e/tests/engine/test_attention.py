"""What may not change what a model computes: our CPU attention backend beside vLLM's own, and how an engine starts."""

from __future__ import annotations

import pytest

from e2e.stack.cores import usable_cores
from e2e.tests.engine.engines import ask, prompts

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]
ENGINES = {
    "vLLM's own": {"attention": "stock", "block_size": 128},
    "NHD": {"layout": "NHD"},
    "HND": {"layout": "HND"},
    "HND, started stock": {"layout": "HND", "start": "stock"},
}


@pytest.fixture(scope="module")
def answers(engine):
    """(name -> what the worker tells of itself, name -> answers), to the same three prompts."""
    asked, told, answered = prompts([64, 500, 1400]), {}, {}
    for name, settings in ENGINES.items():
        with engine(**settings) as client:
            (told[name],) = client.collective_rpc("rig_info")
            answered[name] = [ask(client, ids) for ids in asked]
    return told, answered


def test_strided_backend_agrees_with_cpu_attn(answers) -> None:
    told, answered = answers
    assert {name: (info["attention_backend"], info["layout"]) for name, info in told.items()} == {
        "vLLM's own": ("CPU_ATTN", "HND"), "NHD": ("STRIDED_CPU", "NHD"), "HND": ("STRIDED_CPU", "HND"),
        "HND, started stock": ("STRIDED_CPU", "HND"),
    }  # fmt: skip
    for own, nhd, hnd in zip(*(answered[name] for name in ("vLLM's own", "NHD", "HND")), strict=True):
        assert own.token_ids == nhd.token_ids == hnd.token_ids
        assert nhd.logprobs == hnd.logprobs, "a layout moves bytes, not results"
        # float32, another order of summation: 1.3e-5 measured over 32 tokens
        assert nhd.logprobs == pytest.approx(own.logprobs, abs=1e-4)


def test_a_fork_computes_what_an_engine_started_stock_computes_to_the_bit(answers) -> None:
    told, answered = answers
    fork, stock = told["HND"], told["HND, started stock"]
    assert fork == stock
    assert fork["threads"] == usable_cores()
    for one, other in zip(answered["HND"], answered["HND, started stock"], strict=True):
        assert len(one.token_ids) == 16
        assert (one.token_ids, one.logprobs, one.top) == (other.token_ids, other.logprobs, other.top)
