"""Hosts that share a memory and don't see each other's caches: all that can happen, explored step by step.

Two hosts, each with a writer and a reader, one room of two cache lines. A writer stores one object, a reader loads
whatever the index tells of, again and again. Both walk the lists of ``e2e.inside.publish``. Besides, whenever it likes,
a line that was written goes to the memory, and one of the writers stops for ever. All orders of that are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from e2e.inside.publish import LOAD, STORE, Loading, Storing

LINES = (0, 1)
HOSTS = (0, 1)
#: What lies in the memory in the beginning; host h stores h + 1 in both lines.
NOTHING = 0


@dataclass(frozen=True)
class Reader:
    """``at``: steps done, -1 before the index was asked. ``told``: the object that the index told of. ``disturbed``:
    its room was given away since."""

    at: int = -1
    told: int = NOTHING
    copied: tuple[int, ...] = ()
    disturbed: bool = False


@dataclass(frozen=True)
class State:
    """``caches``: per host and line None, or (value, was it written here). ``writers``: steps done, None for one that
    goes on no more. ``holder``: the host whose writer holds the room. ``told``: what the index tells of."""

    memory: tuple[int, ...] = (NOTHING, NOTHING)
    caches: tuple[tuple[tuple[int, bool] | None, ...], ...] = ((None, None), (None, None))
    writers: tuple[int | None, ...] = (0, 0)
    readers: tuple[Reader, ...] = (Reader(), Reader())
    holder: int | None = None
    told: int = NOTHING
    crashed: bool = False


class Broken(AssertionError):
    """A state that must not be."""


def explore(store: Sequence[Storing] = STORE, load: Sequence[Loading] = LOAD) -> int:
    """How many states can be reached. Broken, with its reason, for one that must not be: a wrong answer; or a miss
    though the index told of the object, its room was its own all the time, and nobody crashed."""
    seen, todo = {State()}, [State()]
    while todo:
        for state in _after(
            todo.pop(), _by_line(store, Storing.WRITE, Storing.WRITE_BACK), _by_line(load, Loading.COPY)
        ):
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return len(seen)


def _by_line(steps: Sequence[object], *split: object) -> list[tuple[object, int]]:
    """What moves bytes does so a line at a time."""
    return [(step, line) for step in steps for line in (LINES if step in split else (0,))]


def _after(state: State, store: list[tuple[object, int]], load: list[tuple[object, int]]) -> Iterator[State]:
    for host in HOSTS:
        yield from _evicted(state, host)
        at = state.writers[host]
        if at is not None and at < len(store):
            yield from _stored(state, host, *store[at])
            if not state.crashed:
                held = None if state.holder == host else state.holder
                yield replace(state, writers=_with(state.writers, host, None), holder=held, crashed=True)
        yield from _loaded(state, host, load)


def _evicted(state: State, host: int) -> Iterator[State]:
    """A line that was written goes to the memory unasked, and stays as a clean one."""
    for line in LINES:
        if (kept := state.caches[host][line]) and kept[1]:
            yield _cached(replace(state, memory=_with(state.memory, line, kept[0])), host, line, (kept[0], False))


def _stored(state: State, host: int, step: object, line: int) -> Iterator[State]:
    done = replace(state, writers=_with(state.writers, host, state.writers[host] + 1))
    if step is Storing.RESERVE:
        if state.holder is not None:
            yield replace(state, writers=_with(state.writers, host, None))  # no room
            return
        readers = tuple(replace(r, disturbed=r.disturbed or r.at >= 0) for r in state.readers)
        yield replace(done, holder=host, told=NOTHING, readers=readers)
    elif step is Storing.WRITE:
        yield _cached(done, host, line, (host + 1, True))
    elif step is Storing.WRITE_BACK:
        kept = state.caches[host][line]
        memory = _with(state.memory, line, kept[0]) if kept and kept[1] else state.memory
        yield _cached(replace(done, memory=memory), host, line, None)
    elif step is Storing.PUBLISH:
        yield replace(done, told=host + 1, holder=None)


def _loaded(state: State, host: int, load: list[tuple[object, int]]) -> Iterator[State]:
    reader = state.readers[host]
    if reader.at == -1:
        if state.told:
            yield _reading(state, host, replace(reader, at=0, told=state.told))
        return
    step, line = load[reader.at]
    further = replace(reader, at=reader.at + 1)
    if step is Loading.FETCH:
        memory = state.memory
        for each in LINES:
            if (kept := state.caches[host][each]) and kept[1]:
                memory = _with(memory, each, kept[0])
        yield _reading(replace(state, memory=memory, caches=_with(state.caches, host, (None, None))), host, further)
    elif step is Loading.COPY:
        kept = state.caches[host][line] or (state.memory[line], False)
        copied = replace(further, copied=(*reader.copied, kept[0]))
        yield _ended(_reading(_cached(state, host, line, kept), host, copied), host, load)
    elif step is Loading.VERIFY:
        if reader.copied == (reader.told,) * len(LINES):
            yield _ended(_reading(state, host, further), host, load)
        elif not reader.disturbed and not state.crashed:
            raise Broken(f"a miss without a cause: {reader}")
        else:
            yield _reading(state, host, Reader())


def _ended(state: State, host: int, load: list[tuple[object, int]]) -> State:
    """Whoever took its last step has served what it copied, and may load again."""
    reader = state.readers[host]
    if reader.at < len(load):
        return state
    if reader.copied != (reader.told,) * len(LINES):
        raise Broken(f"a wrong answer: {reader}")
    return _reading(state, host, Reader())


def _with(values: tuple, index: int, value: object) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


def _cached(state: State, host: int, line: int, kept: tuple[int, bool] | None) -> State:
    return replace(state, caches=_with(state.caches, host, _with(state.caches[host], line, kept)))


def _reading(state: State, host: int, reader: Reader) -> State:
    return replace(state, readers=_with(state.readers, host, reader))
