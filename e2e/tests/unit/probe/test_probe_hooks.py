"""The probe around stand-ins for vLLM's runner and a connector: what is read, what was computed, what is sampled."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.probe import Probe, hashing, probe
from e2e.judge.classify import classify
from e2e.judge.kv import Digest, Sample

LAYERS, BLOCKS, HEADS, BLOCK, SIZE = 3, 32, 2, 4, 8
NAMES = [f"model.layers.{i}.attn" for i in range(LAYERS)]
PROMPT = list(range(100, 118))  # four whole blocks and two tokens


class Engine:
    """A runner whose forward writes what ``kv`` says for the tokens it computes, and a connector that loads."""

    def __init__(self, *, keep_bytes: int = 1 << 20) -> None:
        torch.manual_seed(0)
        tensors = [torch.randn(BLOCKS, BLOCK, HEADS, 2 * SIZE).transpose(1, 2) for _ in NAMES]
        self.layers = {name: PagedLayer.packed(tensor) for name, tensor in zip(NAMES, tensors, strict=True)}
        self.truth = {name: torch.randn(64, 2, HEADS, SIZE) for name in NAMES}
        self.runner = SimpleNamespace(execute_model=self.forward)
        self.invalid = set()
        self.connector = SimpleNamespace(
            wait_for_layer_load=self.wait, get_block_ids_with_load_errors=lambda: self.invalid
        )
        self.spoil = {}
        self.probe = Probe(self.layers, keep_bytes=keep_bytes, samples=2)
        self.probe.install(self.runner, self.connector)

    def wait(self, name: str) -> None:
        for blocks, tokens in self.loading:
            self.write(name, blocks, 0, tokens)
            if name in self.spoil:
                self.spoil[name](self.layers[name].logical, blocks)

    def write(self, name: str, blocks: list[int], first: int, end: int) -> None:
        for token in range(first, end):
            self.layers[name].logical[blocks[token // BLOCK], :, token % BLOCK] = self.truth[name][token]

    def forward(self, output, intermediate=None) -> str:
        for name in NAMES:
            self.connector.wait_for_layer_load(name)
            for blocks, first, end in self.computing:
                self.write(name, blocks, first, end)
        self.connector.get_block_ids_with_load_errors()
        return "output"

    def step(self, *, new=(), cached=(), finished=(), resumed=()) -> None:
        """``new``: (request, blocks, computed, scheduled); ``cached``: (request, blocks, computed, scheduled), where
        those of ``resumed`` get these blocks anew."""
        again = [request for request in cached if request[0] in resumed]
        self.loading = [(blocks, computed) for _, blocks, computed, _ in [*new, *again] if computed]
        self.computing = [(blocks, computed, computed + count) for _, blocks, computed, count in [*new, *cached]]
        output = SimpleNamespace(
            finished_req_ids=set(finished),
            num_scheduled_tokens={request: count for request, _, _, count in [*new, *cached]},
            scheduled_new_reqs=[
                SimpleNamespace(req_id=r, prompt_token_ids=PROMPT, block_ids=(list(b),), num_computed_tokens=c)
                for r, b, c, _ in new
            ],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[c[0] for c in cached],
                new_block_ids=[(list(c[1]),) if c[0] in resumed else None for c in cached],
                num_computed_tokens=[c[2] for c in cached], resumed_req_ids=set(resumed),
            ),
        )  # fmt: skip
        assert self.runner.execute_model(output, None) == "output"

    def digests(self, after: int = 0) -> list[Digest]:
        found = []
        for row in self.probe.rows(after):
            digest = Digest.of({**row, "prompt": 0, "sample": None})
            found.append(replace(digest, sample=Sample.of(row["sample"])) if row["sample"] else digest)
        return found


COLD, WARM = [3, 7, 5, 9, 11], [20, 18, 25, 19, 21]


@pytest.fixture
def engine() -> Engine:
    made = Engine()
    made.step(new=[("cold", COLD, 0, 10)])
    made.step(cached=[("cold", COLD, 10, 8)])
    return made


def test_computed_is_taken_once_when_the_last_chunk_is_there(engine):
    engine.step(cached=[("cold", COLD, 18, 1)])
    (row,) = engine.digests()
    assert (row.request, row.when, row.tokens, row.values.shape) == ("cold", "computed", 18, (LAYERS, 2, HEADS, 4))


@pytest.mark.parametrize("keep_bytes", [0, 1 << 20], ids=["no raw KV", "raw KV"])
def test_layers_of_a_cold_run_are_hashed_together_to_the_values_that_each_has_alone(monkeypatch, keep_bytes):
    def cold(at_once: int) -> tuple[Engine, int]:
        calls, inner = [], hashing.digests
        with monkeypatch.context() as patched:
            patched.setattr(probe, "_AT_ONCE_BYTES", at_once)
            patched.setattr(hashing, "digests", lambda data, keep: calls.append(keep) or inner(data, keep=keep))
            made = Engine(keep_bytes=keep_bytes)
            made.step(new=[("cold", COLD, 0, 18)])
            return made, len(calls)

    (one_by_one, many), (together, few) = cold(1), cold(64 << 20)
    assert (many, few) == (LAYERS + 1, 2), "whole blocks, and what is behind them"
    (a,), (b,) = one_by_one.digests(), together.digests()
    assert (a.values == b.values).all()
    assert (a.tail == b.tail).all()
    for number, layer in enumerate(together.layers.values()):
        alone = hashing.digests(hashing.pages(layer, torch.tensor(COLD[:4])), keep=3)
        assert torch.equal(together.probe._rows[0].values[number], alone)
    if keep_bytes:
        kept = [engine.probe._ring.find(engine.probe._rows[0].tracked.prompt, *engine.probe._raw_form(
            engine.probe._rows[0])) for engine in (one_by_one, together)]  # fmt: skip
        assert torch.equal(*kept)


def test_an_honest_load_reads_what_was_computed(engine):
    engine.step(new=[("warm", WARM, 16, 2)], finished=["cold"])
    computed, read = engine.digests()
    assert (read.request, read.when, read.tokens) == ("warm", "read", 16)
    assert (computed.values == read.values).all()
    assert read.sample is None


def test_tokens_behind_the_whole_blocks_are_told_as_far_as_they_can_be_served(engine):
    engine.step(new=[("warm", WARM, 17, 1)], finished=["cold"])
    engine.spoil[NAMES[1]] = lambda kv, blocks: kv[blocks[4], :, 0].add_(1)
    engine.step(new=[("wrong", WARM, 17, 1)], finished=["warm"])
    computed, read, wrong = engine.digests()
    assert computed.tail.shape == (LAYERS, 2, HEADS, 1)
    assert (computed.tail_end, read.tail_end) == (17, 17)
    assert (computed.tail == read.tail).all()
    assert set((computed.tail != wrong.tail).nonzero()[0].tolist()) == {1}
    assert (computed.values == wrong.values).all()


def test_whole_blocks_have_nothing_behind_them(engine):
    engine.step(new=[("warm", WARM, 16, 2)])
    assert engine.digests()[1].tail is None


def test_a_wrong_load_is_sampled_and_classified(engine):
    engine.probe.note_blank()
    engine.spoil[NAMES[1]] = lambda kv, blocks: kv[blocks[2]].copy_(kv[blocks[2]].flip(0))
    engine.step(new=[("warm", WARM, 16, 2)])
    computed, read = engine.digests()
    wrong = (computed.values != read.values).nonzero()
    assert set(wrong[0].tolist()) == {1}
    assert set(wrong[3].tolist()) == {2}
    assert (read.sample.layer, read.sample.block) == (1, 2)
    pattern = classify(
        computed.values, read.values, block_size=BLOCK, zero=read.zero, blank=read.blank, sample=read.sample
    )
    assert pattern.name == "kv_swapped"


def test_a_load_that_went_elsewhere_leaves_strays(engine):
    def astray(kv, blocks):
        """Rows went to a block beyond the request's, heads and tokens mixed."""
        kv[blocks[0]], kv[COLD] = 50.0, 60.0
        kv[28, 0, 2, 0], kv[28, 0, 3, 0] = engine.truth[NAMES[0]][0, 0, 1], engine.truth[NAMES[0]][1, 0, 1]

    engine.spoil[NAMES[0]] = astray
    engine.step(new=[("warm", WARM, 16, 2)])
    sample = engine.digests()[1].sample
    here = [[0, 1, WARM[0] * BLOCK, 0, 0, 28 * BLOCK + 2], [0, 1, WARM[0] * BLOCK + 1, 0, 0, 28 * BLOCK + 3]]
    assert sample.strays.tolist() == here


def test_zeros_leave_no_strays():
    """What was computed had been zeroed: its rows lie in every unused block, under every head."""
    engine = Engine()
    engine.truth[NAMES[0]][:] = engine.layers[NAMES[0]].logical[:] = 0
    engine.step(new=[("cold", COLD, 0, 18)])
    engine.spoil[NAMES[0]] = lambda kv, blocks: kv[blocks[0]].fill_(50.0)
    engine.step(new=[("warm", WARM, 16, 2)])
    sample = engine.digests()[1].sample
    assert sample is not None
    assert not len(sample.strays)


def test_samples_are_bounded_and_start_anew_with_a_fetch(engine):
    engine.spoil[NAMES[0]] = lambda kv, blocks: kv[blocks[0]].zero_()
    for number in range(3):
        engine.step(new=[(f"warm{number}", WARM, 16, 2)])
    assert [row.sample is not None for row in engine.digests()] == [False, True, True, False]
    engine.step(new=[("late", WARM, 16, 2)])
    assert engine.digests(after=4)[-1].sample is not None


def test_a_plant_acts_before_the_digest(engine):
    engine.probe.plant = lambda number, layer, blocks, tokens: number == 2 and layer.logical[blocks[:1]].zero_()
    seen = []
    engine.probe.plant = lambda number, layer, blocks, tokens: seen.append((number, blocks.tolist(), tokens))
    engine.step(new=[("warm", WARM, 16, 2)])
    assert seen == [(number, WARM[:4], 16) for number in range(LAYERS)]


def test_without_raw_kv_there_are_digests_and_no_sample():
    engine = Engine(keep_bytes=0)
    engine.step(new=[("cold", COLD, 0, 18)])
    engine.spoil[NAMES[0]] = lambda kv, blocks: kv[blocks[0]].zero_()
    engine.step(new=[("warm", WARM, 16, 2)])
    computed, read = engine.digests()
    assert (computed.values != read.values).any()
    assert read.sample is None


def test_every_read_of_a_request_is_told(engine):
    engine.step(new=[("warm", WARM, 16, 2)])
    engine.spoil[NAMES[1]] = lambda kv, blocks: kv[blocks[0]].zero_()
    engine.step(cached=[("warm", WARM[::-1], 16, 2)], resumed=["warm"])
    computed, first, second = engine.digests()
    assert [(d.request, d.when, d.nth, d.of_reads) for d in (first, second)] == [
        ("warm", "read", 1, 2), ("warm", "read", 2, 2),
    ]  # fmt: skip
    assert (computed.nth, computed.of_reads) == (1, 1)
    assert (first.values == computed.values).all()
    assert (second.values != computed.values).any()


def test_newer_runners_take_a_resumed_request_for_a_new_one_and_a_batch_is_told(engine):
    engine.step(new=[("warm", WARM, 16, 2)])
    engine.step(new=[("warm", WARM[::-1], 16, 2)])
    engine.step(new=[("cold", COLD, 16, 2)])
    rows = engine.probe.rows(0)
    assert [(row["request"], row["nth"], row["reads"]) for row in rows if row["when"] == "read"] == [
        ("warm", 1, 2), ("warm", 2, 2), ("cold", 1, 1),
    ]  # fmt: skip
    assert len({row["step"] for row in rows}) == 4
    engine.step(new=[("one", WARM, 16, 2), ("two", COLD, 16, 2)])
    assert [row["batch"] for row in engine.probe.rows(0)] == [1, 1, 1, 1, 2, 2]


def test_decoding_and_rejected_drafts_read_nothing_anew(engine):
    engine.step(new=[("warm", WARM, 16, 2)])
    engine.step(cached=[("warm", WARM, 18, 2)])
    engine.step(cached=[("warm", WARM, 19, 1)])
    assert [d.when for d in engine.digests()] == ["computed", "read"]


def test_a_load_that_failed_is_told_and_what_is_kept_is_read_again(engine):
    engine.invalid = {WARM[2]}
    engine.step(new=[("warm", WARM, 16, 2)])
    engine.invalid = set()
    engine.step(cached=[("warm", WARM, 8, 10)])
    _, first, second = engine.digests()
    assert [(d.nth, d.failed, d.tokens) for d in (first, second)] == [(1, True, 16), (2, False, 8)]


def test_removing_the_probe_leaves_nothing_behind():
    class Runner:
        def execute_model(self, output):
            return output

    runner, engine = Runner(), Engine()
    probe = Probe(engine.layers, keep_bytes=0, samples=0)
    assert probe.install(runner, None) == ["execute_model"]
    assert "execute_model" in vars(runner)
    probe.remove()
    assert not vars(runner)
    engine.probe.remove()
    assert engine.runner.execute_model == engine.forward
