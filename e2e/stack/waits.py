"""Named waits with a limit, which end in one of three ways. No bare sleep."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_exponential


class Outcome(Enum):
    READY = "ready"
    DEAD = "dead"
    LATE = "late"


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

    try:
        return Retrying(
            stop=stop_after_delay(limit_s),
            wait=wait_exponential(multiplier=0.01, max=every_s),
            retry=retry_if_result(lambda outcome: outcome is Outcome.LATE),
        )(look)
    except RetryError:
        return Outcome.LATE
