from __future__ import annotations

import itertools
import time

import pytest

from e2e.waits import Outcome, settled, until, wait


def test_three_ends():
    answers = iter([False, False, True])
    assert wait(lambda: next(answers), limit_s=5) is Outcome.READY
    assert wait(lambda: False, dead=lambda: True, limit_s=5) is Outcome.DEAD
    began = time.monotonic()
    assert wait(lambda: False, limit_s=0.2) is Outcome.LATE
    assert 0.1 < time.monotonic() - began < 60


def test_ready_is_asked_before_dead():
    assert wait(lambda: True, dead=lambda: True, limit_s=0) is Outcome.READY


def test_no_time_left_still_looks_once():
    assert wait(lambda: True, limit_s=-1) is Outcome.READY
    assert wait(lambda: False, limit_s=-1) is Outcome.LATE


def test_the_first_reading_that_is_done_is_taken():
    numbers = itertools.count()
    assert until(lambda: next(numbers), lambda found: found >= 3, limit_s=5, every_s=0.005) == 3


def test_a_reading_ends_at_its_limit_with_the_last_one():
    began_s = time.monotonic()
    numbers = itertools.count()
    last = until(lambda: next(numbers), lambda found: False, limit_s=0.1, every_s=0.01)
    assert last == next(numbers) - 1
    assert time.monotonic() - began_s < 60


def test_a_reading_has_settled_when_it_stays():
    numbers = itertools.chain([1, 2, 3], itertools.repeat(4))
    assert settled(lambda: next(numbers), still_s=0.2, limit_s=60, every_s=0.01) == 4


def test_what_never_settles_is_taken_at_the_limit():
    numbers = itertools.count(1)
    last = settled(lambda: next(numbers), still_s=0.2, limit_s=0.3, every_s=0.02)
    assert last == next(numbers) - 1


def test_a_reading_that_fails_is_not_waited_for():
    with pytest.raises(ZeroDivisionError):
        until(lambda: 1 / 0, lambda found: False, limit_s=60, every_s=60)
