"""What comes before everything else: how noisy targets are, and whether they compute alike."""

from __future__ import annotations

from contextlib import closing

import pytest

from e2e.canary.command import watch_of
from e2e.canary.memory import ENOUGH, Memory
from e2e.canary.segments import Segments
from e2e.canary.stories import Units
from e2e.canary.target import Identity
from e2e.settings.commands import CanaryFlags

BEGIN = {"command": [], "versions": {}, "machine": {}, "settings": {}, "wall_time": ""}


@pytest.fixture
def watch(tmp_path):
    flags = CanaryFlags(targets=("http://127.0.0.1:1", "http://127.0.0.1:2"), out=tmp_path)
    with closing(Segments(tmp_path, keeps=1 << 20, begin=lambda: BEGIN)) as kept:
        watch = watch_of(flags, kept, Memory(Units()))
        for target in watch.targets:
            target.identity = Identity("m", "1")
        yield watch


def played(watch, noise: dict[str, float]) -> bool:
    """Was the next probe of both, computed anew? It saw so much noise, and others beside it."""
    probe = watch._alike()
    if probe is None:
        return False
    data = {
        "cell": None, "story": "alike", "sites": ["a", "b"], "tokens": 300, "stored": 300, "verdict": "pass",
        "reason": "none", "saw": "nothing", "noise": noise, "served": None, "nonce": "n", "salt": "s", "told": "1",
        "wall_s": 1.0, "spent": {},
    }  # fmt: skip
    watch.prober.memory.took(watch.prober.segments.record("canary.probe", **data))
    return True


def test_noise_of_both_is_measured_first(watch):
    assert all(played(watch, {"a": 0.01, "b": 0.02}) for _ in range(ENOUGH))
    assert (watch.prober.memory.noise("a"), watch.prober.memory.noise("b")) == (0.01, 0.02)
    assert not played(watch, {}), "what is not known yet is asked now and then"


def test_it_is_given_up_where_there_is_none_to_be_seen(watch):
    turns = 0
    while played(watch, {}):
        turns += 1
    assert turns <= 2 * ENOUGH + 2


def test_what_is_known_is_not_asked(watch):
    watch.prober.alike[frozenset(("a", "b"))] = True
    assert all(played(watch, {"a": 0.01, "b": 0.02}) for _ in range(ENOUGH))
    watch.prober.memory.number = 8
    assert not played(watch, {})
