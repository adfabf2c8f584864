"""Engine keys side by side: their engines start and answer at once, as many as were asked for.

What lent plain engines are sent is still played before the cells that it belongs to: a recording reads for each cell as
if it had been alone. Only the engines of those cells start meanwhile, which is what takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from e2e.play.player import Player
from e2e.play.world import P
from e2e.waits import until

#: So long those that work beside an error, or a signal, may take to end once their engines are killed. Seconds.
HALT_LIMIT_S = 60.0


@dataclass(frozen=True)
class Task:
    """``engines``: that it has at once, at most."""

    engines: int
    do: Callable[[], object]


def tasks(player: Player[P], groups: Sequence[Sequence[P]]) -> Iterator[Task]:
    """``groups``: parts that share their plain engines, each with a number of ``engines``. What plain engines are sent
    comes before the cells that wait for it, so that these never wait for what has no room."""
    for parts in groups:
        sent: Future[Sequence[P]] = Future()
        if parts[0].program.shared:
            yield Task(1, lambda parts=parts, sent=sent: _plain(player, parts, sent))
        else:
            sent.set_result(parts)
        for part in parts:
            yield Task(
                part.engines, lambda part=part, sent=sent: player.cells(part, ready=lambda: part in sent.result())
            )


def _plain(player: Player[P], parts: Sequence[P], sent: Future[Sequence[P]]) -> None:
    left: Sequence[P] = ()
    try:
        left = player.plain(parts)
    finally:
        sent.set_result(left)


def side_by_side(todo: Iterable[Task], *, engines: int, halt: Callable[[], None]) -> None:
    """Begins them in this order, each as soon as its engines have room among so many; one that needs more is alone.

    The first error ends all, as a signal does: ``halt`` is called until nobody works any more.
    """
    left, free, running = list(todo), engines, {}
    threads = ThreadPoolExecutor(max_workers=max(len(left), 1), thread_name_prefix="beside")
    try:
        while left or running:
            while left and (taken := min(left[0].engines, engines)) <= free:
                running[threads.submit(left.pop(0).do)] = taken
                free -= taken
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                free += running.pop(future)
                future.result()
    except BaseException:
        _end(running, halt)
        raise
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _end(running: Iterable[Future], halt: Callable[[], None]) -> None:
    begun = [future for future in running if not future.cancel()]  # what a thread would still begin has no end

    def ended() -> bool:
        halt()
        return not wait(begun, timeout=0.2).not_done

    until(ended, bool, limit_s=HALT_LIMIT_S, every_s=0.2)
