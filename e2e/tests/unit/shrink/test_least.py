"""The search over numbers: what is found on engines that are kept is asked once more of fresh ones."""

from __future__ import annotations

import pytest

from e2e.shrink.least import least


def below(number: int) -> list[int]:
    return [number // 2, number - 1] if number else []


class Engine:
    """A start begins a life; what was played in it before may matter."""

    def __init__(self, fails):
        self.asked, self.life, self._fails = [], [], fails

    def __call__(self, number: int, fresh: bool) -> bool:
        self.life = [number] if fresh else [*self.life, number]
        self.asked.append((number, fresh))
        return self._fails(self.life)


def test_the_least_is_confirmed_on_fresh_engines():
    engine = Engine(lambda life: life[-1] >= 5)
    assert least(40, below, engine) == 5
    assert engine.asked[0] == (40, True)
    assert engine.asked[-1] == (5, True)
    assert [fresh for _, fresh in engine.asked].count(True) == 2


def test_what_never_fails_is_asked_once():
    engine = Engine(lambda life: False)
    assert least(40, below, engine) is None
    assert engine.asked == [(40, True)]


def test_what_is_least_already_is_asked_twice():
    engine = Engine(lambda life: life[-1] == 40)
    assert least(40, below, engine) == 40


@pytest.mark.parametrize("sum_", [6, 17, 39])
def test_where_history_matters_each_is_asked_alone(sum_):
    """A bug that needs so much load in one life: on engines that are kept everything seems to fail."""
    engine = Engine(lambda life: sum(life) >= sum_)
    assert least(40, below, engine) == sum_


def test_what_can_not_be_told_any_more_is_not_taken():
    """The budget ends: the last that was sure stands."""
    left = [6]

    def fails(number: int, fresh: bool) -> bool:
        left[0] -= 1
        return left[0] >= 0 and number >= 5

    assert least(40, below, fails) in range(5, 41)
