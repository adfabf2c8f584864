"""What steps have copied goes into the pool on a thread, some steps at once, and nobody waits for what lingers."""

import threading
import time
from types import SimpleNamespace

import pytest

from e2e.inside import storer as module
from e2e.inside.storer import Storer


def _copied(*names: str) -> list:
    return [(SimpleNamespace(request=name), None) for name in names]


class Puts:
    def __init__(self) -> None:
        self.calls: list[tuple[list[str], object]] = []
        self.may = threading.Event()
        self.may.set()

    def __call__(self, copied: list, ready: object) -> None:
        assert self.may.wait(30)
        if copied:
            self.calls.append(([store.request for store, _ in copied], ready))
        if any(store.request == "broken" for store, _ in copied):
            raise RuntimeError("broken")


@pytest.fixture
def patient(monkeypatch):
    """Nothing but what is asked for ends the lingering."""
    monkeypatch.setattr(module, "_LINGER_S", 60)


def test_steps_are_put_together_up_to_a_lot_and_when_the_last_is_ready(patient):
    puts = Puts()
    storer = Storer(puts, lot=3)
    for number, names in enumerate([("a",), ("a", "b"), ("b", "b", "b", "b"), ("c",)]):
        storer.submit(_copied(*names), number)
    storer.close()
    assert puts.calls == [(["a", "a", "b"], 1), (["b"] * 4, 2), (["c"], 3)]


def test_who_is_waited_for_does_not_linger(patient):
    puts = Puts()
    storer = Storer(puts, lot=3)
    storer.submit(_copied("a"), 0)
    assert storer.settle(30)
    assert puts.calls == [(["a"], 0)]
    assert not storer.busy_for("a")
    assert storer.settle(30), "there is nothing to wait for"
    storer.close()


def test_what_nobody_adds_to_is_put_after_a_while():
    puts = Puts()
    storer = Storer(puts, lot=3)
    storer.submit(_copied("a"), 0)
    deadline = time.monotonic() + 30
    while storer.busy_for("a"):
        assert time.monotonic() < deadline
    assert puts.calls == [(["a"], 0)]
    storer.close()


def test_a_limit_ends_the_waiting():
    puts = Puts()
    puts.may.clear()
    storer = Storer(puts)
    storer.submit(_copied("a"), 0)
    assert not storer.settle(0.01)
    assert storer.busy_for("a")
    for number in range(module._MOST - 1):  # beside what settle left there
        storer.submit(_copied("a"), number)
    assert not storer.settle(0.01), "nothing more goes into the queue"
    puts.may.set()
    assert storer.settle(30)
    storer.close()


def test_the_thread_outlives_what_fails(caplog):
    puts = Puts()
    storer = Storer(puts)
    storer.submit(_copied("broken"), 0)
    storer.submit(_copied("whole"), 1)
    assert storer.settle(30)
    assert puts.calls == [(["broken"], 0), (["whole"], 1)]
    assert "Storing 1 chunks failed" in caplog.text
    storer.close()
