"""The search for the least that still fails, by halving; the same answers give the same way. Pure.

Most is asked of engines that have played something before, since a start is dear. What is found so is asked once more
of fresh ones; where that does not fail, what an engine did before mattered, and from then on each is asked alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

C = TypeVar("C")
#: (candidate, on fresh engines) -> does it still fail? False also where nobody can tell any more.
Fails = Callable[[C, bool], bool]
Smaller = Callable[[C], Iterable[C]]


def least(first: C, smaller: Smaller[C], fails: Fails[C]) -> C | None:
    """What fails on fresh engines and of which nothing smaller does, as far as ``fails`` tells; None when ``first``
    does not fail. ``smaller``: candidates, in the order in which they are tried; equal ones are tried once."""
    if not fails(first, True):
        return None
    way = [first, *_down(first, smaller, lambda candidate: fails(candidate, False))]
    if fails(way[-1], True):
        return way[-1]
    sure = _last_sure(way, fails)
    return [sure, *_down(sure, smaller, lambda candidate: fails(candidate, True))][-1]


def _down(first: C, smaller: Smaller[C], fails: Callable[[C], bool]) -> list[C]:
    """What was taken, each smaller than the one before."""
    way = [first]
    tried = [first]
    while True:
        for candidate in smaller(way[-1]):
            if candidate in tried:
                continue
            tried.append(candidate)
            if fails(candidate):
                way.append(candidate)
                break
        else:
            return way[1:]


def _last_sure(way: Sequence[C], fails: Fails[C]) -> C:
    """By bisection, on fresh engines: the first of ``way`` fails and the last does not."""
    good, bad = 0, len(way) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if fails(way[middle], True):
            good = middle
        else:
            bad = middle
    return way[good]
