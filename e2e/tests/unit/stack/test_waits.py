from __future__ import annotations

import time

from e2e.stack.waits import Outcome, wait


def test_three_ends():
    answers = iter([False, False, True])
    assert wait(lambda: next(answers), limit_s=5) is Outcome.READY
    assert wait(lambda: False, dead=lambda: True, limit_s=5) is Outcome.DEAD
    began = time.monotonic()
    assert wait(lambda: False, limit_s=0.2) is Outcome.LATE
    assert 0.1 < time.monotonic() - began < 2


def test_ready_is_asked_before_dead():
    assert wait(lambda: True, dead=lambda: True, limit_s=0) is Outcome.READY


def test_no_time_left_still_looks_once():
    assert wait(lambda: True, limit_s=-1) is Outcome.READY
    assert wait(lambda: False, limit_s=-1) is Outcome.LATE
