"""Named waits with a limit. No bare sleep anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_exponential

Found = TypeVar("Found")


class Outcome(Enum):
    READY = "ready"
    DEAD = "dead"
    LATE = "late"


def until(
    read: Callable[[], Found],
    done: Callable[[Found], bool],
    *,
    limit_s: float,
    every_s: float,
    first_s: float | None = None,
) -> Found:
    """The first reading that is ``done``, or the last one before the limit ended; one at least. A pause is ``every_s``,
    or grows up to it from ``first_s``."""
    return Retrying(
        retry=retry_if_result(lambda found: not done(found)),
        stop=stop_after_delay(limit_s),
        wait=wait_exponential(multiplier=first_s or every_s, max=every_s),
        retry_error_callback=lambda state: state.outcome.result(),
    )(read)


def settled(read: Callable[[], Found], *, still_s: float, limit_s: float, every_s: float) -> Found:
    """The reading that has stayed the same for so long, or the last one before the limit ended."""
    last: list[Found] = []
    since = time.monotonic()

    def still(found: Found) -> bool:
        nonlocal since
        if [found] != last:
            last[:], since = [found], time.monotonic()
        return time.monotonic() - since >= still_s

    return until(read, still, limit_s=limit_s, every_s=every_s)


def wait(
    ready: Callable[[], bool],
    *,
    limit_s: float,
    dead: Callable[[], bool] = lambda: False,
    every_s: float = 0.2,
) -> Outcome:
    """Asks ``ready``, then ``dead``, quickly at first and then ``every_s``, until one says yes or the limit ends."""

    def look() -> Outcome:
        if ready():
            return Outcome.READY
        return Outcome.DEAD if dead() else Outcome.LATE

    return until(look, lambda found: found is not Outcome.LATE, limit_s=limit_s, every_s=every_s, first_s=0.01)
