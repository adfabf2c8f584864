"""The measuring loop: what is sent in which order, and what of it is a sample; the engine counts what it is asked."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from types import SimpleNamespace

import pytest

from e2e.base.cell import Cell
from e2e.base.connector import HitRule
from e2e.gain import ORDERS
from e2e.play.timed import PROFILED, Branch
from e2e.recording.reader import decode
from e2e.replay.prompts import Prompt

A, B = Cell({"layout": "HND", "placement": "index"}), Cell({"layout": "HND", "placement": "kernel"})
PROMPTS = {
    length: [Prompt(token_ids=(at, *range(length - 1)), secret="", index=at) for at in range(2)] for length in (32, 64)
}


class Client:
    """Serves all but the last 16 tokens from the connector, and counts as vLLM does."""

    def __init__(self, device):
        self.did, self.requests, self.tokens, self.device = [], 0, 0, device

    def reset_prefix_cache(self, limit_s):
        self.did.append("forget")

    def complete(self, token_ids, *, request_id, max_tokens, cache_salt, **options):
        assert max_tokens == 1
        self.did.append((cache_salt.rpartition("-")[2], len(token_ids)))
        self.requests += 1
        self.tokens += len(token_ids) - 16
        return SimpleNamespace(sent_ns=0, first_ns=5_000_000)

    def metrics(self):
        return (
            "# TYPE vllm:time_to_first_token_seconds histogram\n"
            f"vllm:time_to_first_token_seconds_count {self.requests}\n"
            f"vllm:time_to_first_token_seconds_sum {self.requests * 0.01}\n"
            "# TYPE vllm:prompt_tokens_by_source_total counter\n"
            f'vllm:prompt_tokens_by_source_total{{source="external_kv_transfer"}} {self.tokens}\n'
            'vllm:prompt_tokens_by_source_total{source="local_cache_hit"} 0\n'
        )

    def collective_rpc(self, method, *args):
        self.did.append((method, *args))
        if method == "rig_copy":
            return [{"bytes": 100, "seconds": 0.5, "how": "memory to memory"}]
        if method == "rig_timeline":
            return [{row: [[0, 1.5]] for row in ("to_device", "from_device", "placement", "attention", "forward")}]
        return [{"device": self.device, "launches": {}}]


def played(sides, order, *, launched=("a", "b"), repeats=6, device="cpu", **more):
    events, client = [], Client(device)
    engine = SimpleNamespace(
        name="e", client=client, evidence=SimpleNamespace(loads=list), settings=SimpleNamespace(request_limit_s=9),
        adapter=SimpleNamespace(timed_params=lambda cell: {}),
        digests=SimpleNamespace(stop=lambda: client.did.append("no digests")),
    )  # fmt: skip
    branch = Branch(
        name="HND", round=1, sides=sides, prompts=PROMPTS, rule=HitRule(16, 16), concurrency=(1, 2),
        repeats=repeats, numbers=itertools.count(), order=order, launched=launched, salt="r.gain", **more,
    )  # fmt: skip
    branch.play(engine, lambda kind, **data: events.append((kind, data)))
    assert client.did.pop(0) == "no digests", "what takes them is not the connector"
    return events, client.did


def in_turn(number):
    return enumerate(ORDERS[number % len(ORDERS)])


def test_every_pair_is_measured_in_each_order_equally_often():
    events, _ = played({"a": A, "b": B, "a2": A}, in_turn)
    samples = [data for kind, data in events if kind == "gain.sample"]
    assert len(samples) == 3 * 6 * 2 * 2
    by_pair = itertools.groupby(samples, key=lambda data: data["number"])
    orders = Counter(
        tuple(data["side"] for data in sorted(pair, key=lambda data: data["order"])) for _, pair in by_pair
    )
    assert orders == dict.fromkeys(ORDERS, 4)
    assert Counter((data["length"], data["concurrency"]) for data in samples) == {
        (length, at_once): 18 for length in PROMPTS for at_once in (1, 2)
    }


def test_a_sample_is_what_its_own_requests_were_served():
    events, _ = played({"a": A, "b": B, "a2": A}, in_turn)
    for sample in (data for kind, data in events if kind == "gain.sample"):
        at_once = sample["concurrency"]
        assert sample["ttft_s"] == [0.005] * at_once
        assert sample["external"] == sample["expected"] == (sample["length"] - 16) * at_once
        assert (sample["server"]["count"], sample["local"]) == (at_once, 0)
        assert sample["server"]["sum_s"] == pytest.approx(0.01 * at_once)


def test_each_cell_stores_once_and_every_rerun_forgets_first():
    _, did = played({"a": A, "b": B, "a2": A}, in_turn)
    of = [[(placement, length)] * 2 for length in (32, 64) for placement in ("index", "kernel")]
    assert did[:8] == [*of[0], *of[1], *of[2], *of[3]]
    before = [did[at - 1] for at, what in enumerate(did) if what in (("index", 32), ("kernel", 32)) and at > 7]
    assert all(what == "forget" or isinstance(what, tuple) for what in before)


def test_a_side_alone_is_measured_in_its_place():
    events, did = played({"a2": A}, lambda number: [(2, "a2")], launched=(), repeats=3)
    samples = [data for kind, data in events if kind == "gain.sample"]
    assert {(data["side"], data["order"]) for data in samples} == {("a2", 2)}
    assert [data["number"] for data in samples] == list(range(12))
    assert not any(what[0] == "rig_profile" for what in did)


def test_pairs_are_drawn_until_they_suffice():
    asked = []

    def enough(events, at_once):
        asked.append(
            (at_once, max(e["look"] for e in events if e.kind == "gain.sample" and e["concurrency"] == at_once))
        )
        return at_once == 1 or asked[-1][1] == 2

    events, _ = played({"a": A, "b": B, "a2": A}, in_turn, looks=3, enough=enough)
    assert asked == [(1, 1), (2, 1), (2, 2)]
    samples = [data for kind, data in events if kind == "gain.sample"]
    counted = Counter((data["concurrency"], data["look"], data["length"]) for data in samples)
    assert counted == {(at_once, look, n): 18 for at_once, look in asked for n in PROMPTS}
    assert len({(data["number"], data["side"]) for data in samples}) == len(samples), "each pair has its own number"


def test_the_machines_own_copy_is_measured_once_before_anything_is_timed():
    events, did = played({"a": A, "b": B, "a2": A}, in_turn)
    copies = [data for kind, data in events if kind == "gain.copy"]
    assert copies == [{"branch": "HND", "engine": "e", "bytes": 100, "seconds": 0.5, "how": "memory to memory"}]
    assert did.index(("rig_copy",)) == 8
    _, did = played({"a2": A}, lambda number: [(2, "a2")], launched=())
    assert ("rig_copy",) not in did


def test_launches_are_counted_over_requests_of_their_own():
    events, did = played({"a": A, "b": B, "a2": A}, in_turn, repeats=1)
    launches = [data for kind, data in events if kind == "gain.launches"]
    assert [(data["side"], data["length"]) for data in launches] == [("a", 32), ("b", 32), ("a", 64), ("b", 64)]
    on = did.index(("rig_profile", True))
    assert did[on + 1 : did.index(("rig_profile", False))] == ["forget", ("index", 32)] * PROFILED


def test_on_a_gpu_one_more_request_is_looked_at():
    events, did = played({"a": A, "b": B, "a2": A}, in_turn, repeats=1, device="cuda")
    told = [(data["side"], data["length"]) for kind, data in events if kind == "gain.timeline"]
    assert told == [("a", 32), ("b", 32), ("a", 64), ("b", 64)]
    on = did.index(("rig_timeline", True))
    assert did[on - 1] == ("rig_profile", False)
    assert did[on + 1 : did.index(("rig_timeline", False))] == ["forget", ("index", 32)]
    for number, (kind, data) in enumerate(events):
        decode(json.dumps({"seq": number, "t_ns": 0, "kind": kind, "data": data}).encode(), seq=number)


def test_on_a_cpu_nothing_is_launched_so_nothing_is_looked_at():
    events, did = played({"a": A, "b": B, "a2": A}, in_turn, repeats=1)
    assert not [data for kind, data in events if kind == "gain.timeline"]
    assert ("rig_timeline", True) not in did
