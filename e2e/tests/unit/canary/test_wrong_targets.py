"""A target that answers wrongly, or not: named and counted, left alone for a while, and never called corrupt."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from targets import LOOKS, ROLES, serving

from e2e.canary.command import canary, watch_of
from e2e.canary.memory import Memory
from e2e.canary.segments import Segments
from e2e.canary.stories import Units
from e2e.judge.cells import judge
from e2e.recording.journal import read
from e2e.settings.commands import CanaryFlags

KEY = "sk-verysecret-0123456789"
REASONS = {
    "html": "garbage", "braces": "garbage", "cut": "garbage", "error": "garbage", "binary": "garbage",
    "slow": "timeout", "lost": "unreachable", "no-metrics": "http_404", "metrics-key": "http_401",
    "metrics-html": "garbage", "metrics-other": "garbage", "metrics-nan": "garbage", "metrics-slow": "timeout",
    "metrics-lost": "unreachable",
}  # fmt: skip


@pytest.fixture(scope="module")
def address():
    with serving() as address:
        yield address


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A small text with many different tokens."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "words.txt").write_text(" ".join(f"word{number}" for number in range(2000)))
    return folder


def turned(address: str, roles: str, folder, words, turns: int = 3):
    """A canary after so many turns, an hour apart. ``roles``: of its targets."""
    limit = "0.3" if "slow" in roles else "30"
    flags = CanaryFlags(
        targets=[f"{address}/{role}" for role in roles.split()], out=folder, share="100%", request_limit_s=limit,
        api_key=KEY, prompts_dir=words,
    )  # fmt: skip
    memory = Memory(Units(flags.block, flags.chunk, flags.step))
    begin = {"command": [], "versions": {}, "machine": {}, "settings": {}, "wall_time": ""}
    segments = Segments(folder, keeps=1 << 20, begin=lambda: begin, secrets=frozenset({KEY}))
    watch = watch_of(flags, segments, memory)
    began_s = time.monotonic()
    with closing(segments):
        for turn in range(turns):
            watch.turn(began_s + 3600.0 * turn)
    return watch, memory


def samples(watch, name: str) -> dict[tuple[str, ...], float]:
    families = watch.exported.registry.collect()
    return {tuple(s.labels.values()): s.value for f in families for s in f.samples if s.name == f"maru_canary_{name}"}


@pytest.mark.parametrize("role", [*ROLES, *LOOKS])
def test_it_is_named_counted_and_left_alone(address, words, role, tmp_path, capfd):
    watch, memory = turned(address, role, tmp_path, words)
    reason = REASONS.get(role, f"http_{role}")
    assert {*memory.reasons} == {reason}
    assert {key[2:] for key in samples(watch, "probes_total")} == {("error", reason)}
    assert samples(watch, "corrupt_total") == {("a",): 0}
    assert samples(watch, "last_load_timestamp_seconds") == {("a",): 0}
    (said,) = capfd.readouterr().err.splitlines()  # once, not again and again
    assert "left alone for" in said
    assert said.isprintable()
    assert KEY not in said
    assert watch.targets[0].pauses.until_s > 0
    for path in tmp_path.glob("*/recording.jsonl"):
        assert KEY not in path.read_text()
        assert all(cell.verdict.value in ("error", "inconclusive") for cell in judge(read(path)).cells)


def test_nobody_there(words, tmp_path, capfd):
    watch, memory = turned("http://127.0.0.1:1", "x", tmp_path, words)
    assert {*memory.reasons} == {"unreachable"}
    assert "Nothing answers" in capfd.readouterr().err
    assert watch.targets[0].restarts == 0


def test_one_that_died_keeps_nobody_else_waiting(address, words, tmp_path, capfd):
    watch, memory = turned(address, "500 dies", tmp_path, words, turns=50)
    assert watch.targets[1].identity is not None, "it was there"
    assert memory.reasons["unreachable"] >= 3
    assert memory.by["local", ("a",)].probes >= 1
    said = capfd.readouterr().err.splitlines()
    assert sorted(line[:2] for line in said) == ["a:", "b:"]


def test_a_busy_engine_is_not_asked(address, words, tmp_path, capfd):
    watch, memory = turned(address, "busy", tmp_path, words)
    assert samples(watch, "waits_total")["a", "busy"] >= 2
    assert not samples(watch, "probes_total")
    assert not memory.reasons
    assert not capfd.readouterr().err


def test_the_command_says_that_nothing_was_seen(address, words, tmp_path, capfd):
    flags = CanaryFlags(
        targets=[f"{address}/500"], out=tmp_path / "out", share="100%", listen="127.0.0.1:0", for_s="1s",
        tokens_a_minute="600000", api_key=KEY, prompts_dir=words,
    )  # fmt: skip
    assert canary(flags, argv=("canary",)) == 3
    said = capfd.readouterr().err
    assert "no load was seen, so nothing is known" in said
    assert KEY not in said
