"""One store, several real engines, and an index that is killed, stopped and mended under them: misses, never wrong
bytes, and never a hang."""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e.connectors.embedded import INDEX
from e2e.stack.owned import MARK, marked
from e2e.stack.store import Store
from e2e.tests.engine.engines import ask, embedded_on, prompts
from e2e.waits import Outcome, wait

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]
SERVED = 1024


@pytest.fixture
def store(engine, tmp_path):
    with engine.store("shared", tmp_path) as store:
        yield store


def on(store: Store, **more):
    """The embedded connector of an engine on this store. Where its scheduler finds the index again before its worker
    does, a load fails, and is recomputed."""
    return replace(embedded_on(store, 128 << 20, **more), load_failure_policy="recompute")


def again(client, asked, *, cold, cached: int) -> None:
    """Once more, with nothing in the local cache: so many tokens come from the pool, and the answer is as ever."""
    assert client.reset_prefix_cache()[0]
    answer = ask(client, asked, max_tokens=4)
    assert (answer.cached_tokens, answer.token_ids) == (cached, cold.token_ids)


def counters_of(client) -> dict[str, int]:
    (evidence,) = client.collective_rpc("rig_evidence", 0)
    return evidence["counters"]


def errors_of(client) -> int:
    return counters_of(client).get("index_errors", 0)


def kill_engine(run_id: str, store: Store) -> None:
    """All processes of the run but the store's servers and the zygote."""
    keep = {service.child.handle.pid for service in store.services}
    for process in marked(MARK, run_id):
        if process.pid not in keep and "e2e.inside.zygote" not in " ".join(process.cmdline()):
            process.kill()


def test_what_a_killed_engine_stored_another_one_loads_and_a_broken_index_is_a_miss(engine, store) -> None:
    (asked,) = prompts([SERVED + 9])
    with engine(connector=on(store), layout="NHD") as one:
        cold = ask(one, asked, max_tokens=4)
        assert cold.cached_tokens == 0
        kill_engine(engine.ledger.run_id, store)
    store.check()
    with engine(connector=on(store, maru_async_store=True, embedded_evict=True), layout="HND") as other:
        again(other, asked, cold=cold, cached=SERVED)
        assert errors_of(other) == 0
        store.kill(INDEX)
        again(other, asked, cold=cold, cached=0)
        assert (seen := errors_of(other)) > 0
        store.restart(INDEX)
        mended(other, asked, cold)
        store.suspend(INDEX)
        again(other, asked, cold=cold, cached=0)
        assert errors_of(other) > seen
        store.resume(INDEX)
        mended(other, asked, cold)
        for newer in prompts([SERVED + 9] * 3):  # more than the pool holds
            mended(other, newer, ask(other, newer, max_tokens=4))
        again(other, asked, cold=cold, cached=0)
        assert counters_of(other).get("no_room") is None


def mended(client, asked, cold) -> None:
    """The connector asks again within seconds: then the prompt is stored anew, if need be, and served."""

    def served() -> bool:
        assert client.reset_prefix_cache()[0]
        answer = ask(client, asked, max_tokens=4)
        assert answer.token_ids == cold.token_ids
        return answer.cached_tokens == SERVED

    assert wait(served, limit_s=60, every_s=1.0) is Outcome.READY
