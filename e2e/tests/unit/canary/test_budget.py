"""What may be spent, with a clock that a test turns."""

from __future__ import annotations

from e2e.canary.budget import FIRST_PAUSE_S, LONGEST_PAUSE_S, Bucket, Pauses, Share, Slow
from e2e.canary.command import may_store
from e2e.settings.commands import CanaryFlags


def test_tokens_flow_in_and_no_burst_is_saved_up():
    bucket = Bucket(per_s=10, holds=600)
    assert not bucket.has(100, 0)
    assert not bucket.has(100, 9)
    assert bucket.has(100, 10)
    assert bucket.has(600, 10_000)
    bucket.take(600, 10_000)
    assert not bucket.has(1, 10_000)
    assert bucket.has(5000, 10_060), "dearer than all that it holds: when it is full"
    bucket.take(5000, 10_060)
    assert not bucket.has(1, 10_060 + 430), "and owed"
    assert bucket.has(1, 10_060 + 441)


def test_the_share_binds_where_somebody_else_is_served():
    share = Share(0.01)
    for second in range(0, 100, 10):
        share.saw(100 * second, second)
    assert share.now() == (0, 9000)
    assert share.allows(90, 90)
    assert not share.allows(100, 90)
    share.spent(90)
    share.saw(9000 + 90, 90)
    assert not share.allows(90, 90)


def test_an_engine_that_serves_nobody_else_can_not_be_harmed():
    share = Share(0.01)
    share.saw(5000, 0)
    assert not share.allows(1000, 0), "not looked at for long enough"
    share.saw(5000, 61)
    assert share.allows(1000, 61)
    share.spent(1000)
    share.saw(6000, 100)
    share.saw(6000, 161)
    assert share.allows(1000, 161), "what it served was ours"
    share.saw(6001, 170)
    assert not share.allows(1000, 170)


def test_an_engine_that_was_started_anew_counts_from_nothing():
    share = Share(0.5)
    share.saw(1000, 0)
    share.saw(2000, 10)
    share.saw(5, 20)
    assert share.now() == (0, 0)
    assert not share.allows(10, 20)


def test_pauses_grow_up_to_a_limit_and_end_with_the_trouble():
    pauses = Pauses()
    assert pauses.over(0)
    assert pauses.trouble(0) == FIRST_PAUSE_S
    assert not pauses.over(FIRST_PAUSE_S - 1)
    assert pauses.over(FIRST_PAUSE_S)
    assert pauses.trouble(20) == 2 * FIRST_PAUSE_S
    for _ in range(20):
        pauses.trouble(20)
    assert pauses.trouble(20) == LONGEST_PAUSE_S
    pauses.well()
    assert pauses.trouble(0) == FIRST_PAUSE_S
    assert Pauses(jitter=lambda: 0.5).trouble(0) == FIRST_PAUSE_S / 2


def test_slow_is_what_is_slower_than_usual():
    slow = Slow(times=4)
    assert not any(slow.is_slow("cold", 1.0) for _ in range(5))
    assert not slow.is_slow("cold", 3.9)
    assert slow.is_slow("cold", 4.1)
    assert not slow.is_slow("local", 100.0), "nothing is known of it yet"


def test_a_store_whose_size_is_known_bounds_what_is_put_there():
    given = CanaryFlags(targets=("http://a:1", "http://b:1"), store_tokens=1000)
    assert may_store(given) == 1000
    sized = given.model_copy(update={"token_bytes": 1 << 10, "store": 100 << 20})
    assert may_store(sized) == 0.01 * (100 << 20) / (1 << 10) / 2, "1 % of it, between two"
    assert may_store(sized.model_copy(update={"store": 1 << 40})) == 1000
