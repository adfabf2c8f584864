import itertools
import time

from e2e.replay.paired import timed_cell, until


def test_the_first_reading_that_is_done_is_taken():
    numbers = itertools.count()
    assert until(lambda: next(numbers), lambda found: found >= 3) == 3


def test_a_wait_ends_at_its_limit_with_the_last_reading():
    began_s = time.monotonic()
    assert until(lambda: "not yet", lambda found: False, limit_s=0.1) == "not yet"
    assert time.monotonic() - began_s < 5


def test_a_request_names_its_cell():
    assert timed_cell("gain.HND-a.b-c.0123456789ab") == "HND-a.b-c"
    assert timed_cell("HND.connector.1.cell.cold.0.01234567") is None
