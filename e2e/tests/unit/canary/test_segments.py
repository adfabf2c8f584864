"""The recording of a canary: bounded on disk, whole after kill -9; and what it tells after a restart."""

from __future__ import annotations

from contextlib import closing

import pytest

from e2e.base.errors import UsageError
from e2e.canary.memory import AGES, ENOUGH, WAITING, Memory
from e2e.canary.segments import CORRUPT, Segments
from e2e.canary.stories import Units
from e2e.recording.journal import read

BEGIN = {"command": [], "versions": {}, "machine": {}, "settings": {}, "wall_time": ""}


def segments(root, keeps: int = 1 << 16) -> Segments:
    return Segments(root, keeps=keeps, begin=lambda: BEGIN)


def probe(**more) -> dict[str, object]:
    return {
        "cell": None, "story": "cross", "sites": ["a", "b"], "tokens": 300, "stored": 257, "verdict": "pass",
        "reason": "none", "saw": "exact", "noise": {"a": 0.01}, "served": 256, "nonce": "n", "salt": "s",
        "told": "123456", "wall_s": 1000.0, "spent": {"a": 600, "b": 300}, **more,
    }  # fmt: skip


def test_it_rotates_within_its_bound_and_keeps_findings_longest(tmp_path):
    keeps = 1 << 16
    with closing(segments(tmp_path, keeps)) as kept:
        kept.turn()
        kept.record("note", text="x" * 4000)
        kept.mark()
        first = kept.name
        for _ in range(60):
            kept.record("note", text="x" * 2000)
            if kept.full:
                kept.turn()
        assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= keeps + keeps // 8
    names = [folder.name for folder in kept.folders()]
    assert first in names
    assert (tmp_path / first / CORRUPT).exists()
    assert len(names) > 2
    for folder in kept.folders():
        assert read(folder / "recording.jsonl")[0].kind == "run.begin"


def test_a_second_canary_is_refused(tmp_path):
    with closing(segments(tmp_path)), pytest.raises(UsageError, match="another run is writing"):
        segments(tmp_path)
    with closing(segments(tmp_path)):
        pass


def test_what_was_killed_amid_a_line_is_read_up_to_it(tmp_path):
    killed = segments(tmp_path)
    killed.turn()
    killed.record("canary.probe", **probe())
    with (tmp_path / killed.name / "recording.jsonl").open("ab") as file:
        file.write(b'{"seq":2,"t_ns":')
    killed._lock.close()  # as the kernel does for the dead
    (damaged := tmp_path / "00000000T000000Z-broken").mkdir()
    (damaged / "recording.jsonl").write_text("no event\n")
    with closing(segments(tmp_path)) as after:
        memory = Memory(Units())
        for _, events in after.before():
            for event in events:
                if event.kind == "canary.probe":
                    memory.took(event)
    assert memory.number == 1
    assert memory.by["cross", ("a", "b")].exact == 1
    assert [each.tokens for each in memory.objects] == [257]


class TestMemory:
    @pytest.fixture
    def took(self, tmp_path):
        """took(**of a probe) -> the memory after it."""
        memory = Memory(Units())
        with closing(segments(tmp_path)) as kept:

            def took(**more):
                memory.took(kept.record("canary.probe", **probe(**more)))
                return memory

            yield took

    def test_noise_is_known_after_enough_pairs_that_passed(self, took):
        for number in range(ENOUGH - 1):
            took(noise={"a": 0.01 * number})
        memory = took(noise={"a": 9.0, "b": 9.0}, verdict="corrupt", reason="tokens_differ")
        assert memory.noise("a") is None
        assert took(noise={"a": 0.5, "b": 0.1}).noise("a") == 0.5
        assert memory.noise("b") is None
        assert [took(noise=noise).noise("a") for noise in (None, 0.6)] == [0.5, 0.6], "as old recordings have it"

    def test_old_objects_are_due_at_their_ages(self, took):
        memory = took()
        assert memory.due(1000 + AGES[0] - 1) is None
        old = memory.due(1000 + AGES[0])
        assert (old.nonce, old.home, old.tokens) == ("n", "a", 257)
        took(story="later", sites=["b"], nonce="n", of="n", age_s=AGES[0], wall_s=1200.0)
        assert memory.due(1000 + AGES[1] - 1) is None
        assert memory.due(1000 + AGES[1]).nonce == "n"
        assert memory.by["later", ("b",)].ages == {AGES[0]}

    def test_a_few_of_each_age_wait_so_that_some_grow_old(self, took):
        for number in range(3 * WAITING):
            memory = took(nonce=str(number), wall_s=1000.0 + number)
        assert [each.nonce for each in memory.objects] == [str(number) for number in range(WAITING)]
        for number in range(WAITING):
            took(story="later", sites=["b"], nonce=str(number), of=str(number), age_s=AGES[0])
        assert {each.asked for each in memory.objects} == {1}
        assert took(nonce="new").objects[-1].asked == 0

    def test_what_saw_nothing_is_counted_by_reason_and_is_no_load(self, took):
        took(verdict="inconclusive", reason="no_hit", saw="nothing")
        memory = took(verdict="error", reason="timeout", saw="nothing", cell=None)
        assert memory.reasons == {"no_hit": 1, "timeout": 1}
        assert memory.recent(1000.0) == (0, None)
        assert memory.wrong == 0

    def test_a_chunk_is_learnt(self, took):
        for served in (128, 384, 640):
            memory = took(served=served)
        assert memory.units().chunk == 128

    def test_the_rate_is_that_of_loads(self, took):
        took(wall_s=1000.0)
        took(wall_s=1010.0)
        assert took(wall_s=1020.0).recent(1020.0) == (3, 10.0)
        assert took(wall_s=1030.0).recent(1030.0 + 90_000) == (0, None)
