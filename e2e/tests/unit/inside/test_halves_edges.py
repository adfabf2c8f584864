"""The connector's halves at the edges: generated tokens, chunks of several steps, stores and loads that take time."""

import time

import pytest
import torch

from e2e.inside.index import protocol as p
from e2e.tests.unit.inside.test_halves import CHUNK, COLD, OTHER, SETTINGS, Engine

SYNC = SETTINGS[0]
THIRD = [*range(50, 59)]
ASYNC = {**SYNC, "load": "async"}


@pytest.fixture
def engine(tmp_path):
    """engine(**config) -> an Engine that is closed in the end."""
    made = []

    def make(**config) -> Engine:
        made.append(Engine(tmp_path, **config))
        return made[-1]

    yield make
    for one in made:
        one.worker.close()


def begun(engine, name: str, tokens: int, **settings):
    request = engine.request(name, tokens, **settings)
    engine.scheduler.matched(request, 0)
    return request


def answer(engine, request, blocks: list[int], tokens: int) -> None:
    """Token by token; the KV of the last one is never computed."""
    for number in range(tokens):
        request.output.append(900 + number)
        if number < tokens - 1:
            engine.compute(request, blocks, [1], start=request.num_prompt_tokens + number)


def next_turn(engine, request, **settings):
    turn = engine.request("next", **settings)
    turn.prompt_token_ids = [*request.all_token_ids, *range(7000, 7030)]
    turn.num_prompt_tokens = len(turn.prompt_token_ids)
    return turn


def answered(engine, prompt: int, tokens: int, **settings):
    request = begun(engine, "first", prompt, **settings)
    engine.compute(request, COLD, [prompt])
    answer(engine, request, COLD, tokens)
    engine.scheduler.finished("first")
    return request


def test_the_kv_of_an_answer_is_stored_and_served_to_the_next_turn(engine):
    one = engine()
    first = answered(one, 90, 8, **SYNC)  # of 97 tokens there is KV, and a chunk ends at 96
    expected = one.kv(COLD, 96)
    assert one.load(next_turn(one, first, **SYNC), OTHER) == 96
    assert torch.equal(one.kv(OTHER, 96), expected)


@pytest.mark.parametrize(("generated", "served"), [(6, 64), (7, 96)])
def test_a_token_whose_kv_was_never_computed_is_not_served(engine, generated, served):
    one = engine()
    first = answered(one, 90, generated, **SYNC)
    assert one.scheduler.matched(next_turn(one, first, **SYNC), 0) == (served, False)


def test_another_answer_is_another_prompt(engine):
    one = engine()
    first = answered(one, 90, 8, **SYNC)
    first.output[2] = 5
    assert one.scheduler.matched(next_turn(one, first, **SYNC), 0) == (64, False)


@pytest.mark.parametrize(("fault", "prompt", "wrong"), [("answer_one_late", 90, range(90, 96)), ("", 90, range(0))])
def test_generated_tokens_one_late_are_wrong_and_no_others(engine, fault, prompt, wrong):
    one, settings = engine(), {**SYNC, "fault": fault}
    first = answered(one, prompt, 8, **settings)
    expected = one.kv(COLD, 96)
    one.load(next_turn(one, first, **settings), OTHER)
    same = [torch.equal(one.kv(OTHER, 96)[:, token], expected[:, token]) for token in range(96)]
    assert [token for token in range(96) if not same[token]] == [*wrong]
    assert bool(fired(one, fault)) is bool(wrong)


@pytest.mark.parametrize(("steps", "spoils"), [([64, 36], False), ([40, 40, 20], True)])
def test_slots_of_a_step_are_those_of_a_chunk_only_where_it_began_with_it(engine, steps, spoils):
    for fault, expects in (("", False), ("step_slots_stored", spoils)):
        one, settings = engine(name=fault or "clean"), {**SYNC, "fault": fault, "cell": str(steps)}
        one.compute(begun(one, "cold", 100, **settings), COLD, steps)
        expected = one.kv(COLD, 96)
        assert one.load(one.request("again", 100, **settings), OTHER) == 96
        assert torch.equal(one.kv(OTHER, 96), expected) is not expects
        assert bool(fired(one, fault)) is expects


def fired(engine, fault: str) -> int:
    return engine.pool.evidence.counters().get(f"fired:{fault}", 0)


def test_what_a_request_stores_behind_a_hit_is_its_own(engine):
    """And planted: chunks are counted from what was computed."""
    for fault, spoils in (("", False), ("stored_from_hit", True)):
        one, settings = engine(name=fault or "clean"), {**SYNC, "fault": fault, "cell": fault}
        one.compute(begun(one, "cold", 66, **settings), COLD, [66])
        longer = one.request("longer", 130, **settings)
        assert one.load(longer, OTHER) == 64
        one.compute(longer, OTHER, [66], start=64)
        expected = one.kv(OTHER, 128)
        assert one.load(one.request("again", 130, **settings), THIRD) == 128
        assert torch.equal(one.kv(THIRD, 128), expected) is not spoils
        assert bool(fired(one, fault)) is spoils


@pytest.mark.parametrize(("fault", "served"), [("", 32), ("unchained", 96)])
def test_a_chunk_behind_another_beginning_is_another_chunk(engine, fault, served):
    one, settings = engine(), {**SYNC, "fault": fault}
    for name, first in (("one", 1), ("other", 500)):
        request = begun(one, name, 100, first=first, **settings)
        one.compute(request, COLD, [100])
    spliced = one.request("spliced", 100, first=500, **settings)
    spliced.prompt_token_ids[CHUNK:] = range(1 + CHUNK, 101)
    assert one.scheduler.matched(spliced, 0)[0] == served
    assert bool(fired(one, fault)) is (served > 32)


@pytest.mark.parametrize(("fault", "right"), [("", True), ("longer_prompt_tail", False)])
def test_a_shorter_prompt_gets_its_own_chunks(engine, fault, right):
    one, settings = engine(), {**SYNC, "fault": fault}
    one.compute(begun(one, "long", 100, **settings), COLD, [100])
    expected = one.kv(COLD, 32)
    assert one.load(one.request("short", 40, **settings), OTHER) == 32
    assert torch.equal(one.kv(OTHER, 32), expected) is right
    one.load(one.request("long again", 100, **settings), OTHER)
    assert torch.equal(one.kv(OTHER, 96), one.kv(COLD, 96)), "the longest prompt gets its own in any case"


@pytest.mark.parametrize(("fault", "whole"), [("", True), ("announced_early", False)])
def test_what_is_found_while_a_store_is_under_way_is_whole(engine, fault, whole):
    one, settings = engine(maru_async_store=True, embedded_slow_s=1.0), {**SYNC, "fault": fault}
    one.compute(begun(one, "cold", 100, **settings), COLD, [100])
    expected = one.kv(COLD, 96)
    deadline = time.monotonic() + 30
    while not one.pool.evidence.under_way()["store"] or (fault and not one.pool.ask(p.List())):
        assert time.monotonic() < deadline
    again = one.request("again", 100, **settings)
    served = one.load(again, OTHER)
    assert torch.equal(one.kv(OTHER, served), expected[:, :served]) is whole
    assert one.pool.evidence.counters()["lookups_beside_stores"] == 1
    while one.scheduler.matched(one.request(f"{time.monotonic()}", 100, **settings), 0)[0] < 96:
        assert time.monotonic() < deadline
    assert one.scheduler.matched(one.request("last", 100, **settings), 0)[0] == 96


@pytest.mark.parametrize(("fault", "kept"), [("", True), ("freed_while_loading", False)])
@pytest.mark.parametrize("overlap", [False, True])
def test_blocks_of_a_load_that_nobody_waits_for_are_kept_until_it_has_ended(engine, fault, kept, overlap):
    one, settings = engine(embedded_slow_s=0.1), {**ASYNC, "fault": fault, "overlap": overlap}
    one.compute(begun(one, "cold", 100, **settings), COLD, [100])
    left = one.request("left", 100, **settings)
    one.scheduler.allocated(left, OTHER, one.scheduler.matched(left, 0)[0])
    one.worker.start_loads(one.scheduler._loads)
    job = one.worker._jobs["left"]
    one.scheduler.finished("left", aborted=True)
    deadline = time.monotonic() + 10
    while not any("left" in names for names in one.worker.finished({"left"})):
        assert time.monotonic() < deadline
    assert job.finished is kept
    counters = one.pool.evidence.counters()
    assert (counters["aborts"], counters["aborted_loads"]) == (1, 1)
    assert bool(fired(one, fault)) is not kept


def test_a_request_that_ends_while_it_is_stored_is_counted_and_stored(engine):
    one = engine(maru_async_store=True, embedded_slow_s=0.1)
    request = begun(one, "left", 100, **SYNC)
    one.compute(request, COLD, [100])
    one.scheduler.finished("left", aborted=True)
    one.worker.finished({"left"})
    counters = one.pool.evidence.counters()
    assert (counters["stores_after_end"], counters["aborts"], counters.get("aborted_loads", 0)) == (1, 1, 0)
    deadline = time.monotonic() + 10
    while one.scheduler.matched(one.request(f"{time.monotonic()}", 100, **SYNC), 0)[0] < 96:
        assert time.monotonic() < deadline
    assert one.load(one.request("again", 100, **SYNC), OTHER) == 96
    assert torch.equal(one.kv(OTHER, 96), one.kv(COLD, 96))
