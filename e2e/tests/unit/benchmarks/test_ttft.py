"""The benchmark's figures, from answers of known times."""

from __future__ import annotations

import pytest

from e2e.inside.config import RequestSettings
from e2e.replay.stream import Completion
from e2e.tests.benchmarks.ttft import BASELINES, FORMATS, LOADS, REFUSED, UNSTORED, Asked, figures

MS = 10**6
#: Of each way: milliseconds until a first token, and tokens from a cache.
ROUND = {
    **dict(zip(BASELINES, [(760, 0), (840, 0)], strict=True)),
    UNSTORED: (820, 0),
    **{f"{form} cold": (880, 0) for form in FORMATS},
    **{f"{form} local": (60, 512) for form in FORMATS},
    **{f"{form} {name}": (100, 512) for form in FORMATS for name in LOADS},
}


def asked(ms: int, cached: int, *, least: int, token: int = 7) -> Asked:
    answer = Completion((token,), (), (), "length", 520, cached, 0, ms * MS, ms * MS)
    return Asked([answer, answer], least, least)


def a_round(**other: int) -> dict[str, Asked]:
    return {name: asked(ms, cached, least=cached, **other) for name, (ms, cached) in ROUND.items()}


def test_ratios_are_of_a_round_and_the_limit_is_a_local_hit_and_the_copy():
    told = figures([a_round()] * 3, copied_s=0.04)
    ratios = {name: each["median"] for name, each in told["ratios"].items()}
    assert ratios["baseline again / the first"] == pytest.approx(840 / 760)
    assert ratios["unstored / baseline"] == pytest.approx(820 / 800)
    assert ratios["chunkwise cold / baseline"] == pytest.approx(1.1)
    assert ratios["chunkwise cold / unstored"] == pytest.approx(880 / 820)
    assert ratios["baseline / layerwise external"] == pytest.approx(8.0)
    assert ratios["layerwise external / (local + 1.15 copy)"] == pytest.approx(100 / (60 + 1.15 * 40))
    assert (told["rounds"], told["at_once"]) == (3, 2)
    assert (told["other_answers"], told["served_otherwise"]) == (0, 0)


def test_the_connector_has_nothing_to_do_with_what_is_not_to_be_stored():
    """It serves what it refuses without the cache: test_halves.py."""
    with pytest.raises(ValueError, match="storage_format is 'none'"):
        RequestSettings().override(REFUSED)


def test_what_is_answered_or_served_otherwise_is_counted():
    wrong = {**a_round(), "layerwise index": asked(100, 512, least=512, token=8)}
    short = {**a_round(), "chunkwise overlapped": asked(100, 256, least=512)}
    told = figures([wrong, short], copied_s=0.04)
    assert (told["other_answers"], told["served_otherwise"]) == (2, 2)
