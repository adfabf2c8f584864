"""The operating point, by numbers that stand in any table of the binomial distribution."""

from __future__ import annotations

import pytest

from e2e.canary.odds import bound, detectable, needed, seen_with, sentences


def test_so_many_probes_see_it_with_95_percent():
    assert (needed(0.01), needed(0.001), needed(0.1), needed(1)) == (299, 2995, 29, 1)
    for share in (0.5, 0.1, 0.01, 0.001):
        assert seen_with(share, needed(share)) >= 0.95 > seen_with(share, needed(share) - 1)
        assert detectable(needed(share)) <= share < detectable(needed(share) - 1)


@pytest.mark.parametrize("share", [0, -0.1, 1.1])
def test_a_share_is_one(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        needed(share)


def test_what_is_said():
    assert sentences(0, 0, None)[0] == "no load was seen, so nothing is known"
    assert "never, at the current rate" in sentences(0, 0, None)[1]
    assert sentences(300, 0, 60)[:2] == [
        "0 wrong of 300 loads: below 1.00% at 95 %",
        "a fault in 1.0% of loads is seen with 95 % by 299 probes: 5.0 h",
    ]
    assert sentences(300, 2, 60)[0] == "2 wrong of 300 loads"
    assert bound(2) == bound(0) == 1.0, "no share is more than all"
