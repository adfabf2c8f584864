"""What an index knows, and what it answers: no clock, no network. See protocol.py for what each request means."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from e2e.inside.index import protocol as p
from e2e.inside.index.rooms import Rooms

#: How long a reservation or pin lasts that nobody ends: its owner may be stopped, or cut off. Seconds.
LEASE_S = 120.0


@dataclass(frozen=True)
class _Reservation:
    owner: int
    room: p.Room
    generation: int
    until: float


@dataclass(frozen=True)
class _Group:
    tag: str
    extents: list[p.Extent]


@dataclass(frozen=True)
class _Pin:
    groups: tuple[str, ...]
    until: float


class Table:
    """``size``: bytes of the region. ``now``: monotonic seconds. Owners are numbers that the caller gives to
    connections; ``leave`` ends what one has under way."""

    def __init__(self, size: int, *, epoch: str, now: Callable[[], float], lease_s: float = LEASE_S) -> None:
        self._epoch, self._now, self._lease_s = epoch, now, lease_s
        self._rooms = Rooms(size)
        self._groups: OrderedDict[str, _Group] = OrderedDict()
        self._reserved: dict[int, _Reservation] = {}
        self._pins: dict[tuple[int, str], _Pin] = {}
        self._pinned: Counter[str] = Counter()
        self._tickets = itertools.count(1)
        self._generation = 0
        self._owners: set[int] = set()
        self._told: Counter[str] = Counter()
        self._answers = {
            p.Hello: self._hello, p.Find: self._find, p.Unpin: self._unpin, p.Locate: self._locate,
            p.Reserve: self._reserve, p.Publish: self._publish, p.Abandon: self._abandon, p.Forget: self._forget,
            p.Clear: self._clear, p.List: self._list, p.Status: self._status, p.All: self._all,
        }  # fmt: skip

    def answer(self, owner: int, request: p.AnyRequest) -> object:
        """ValueError, one sentence, for a request that can't be meant."""
        return self._answers[type(request)](owner, request)

    def answered(self, owner: int, request: p.AnyRequest) -> p.Answer:
        """As it goes back."""
        try:
            return p.Answer(p.raw(self.answer(owner, request)))
        except ValueError as error:
            return p.Answer(refused=str(error))

    def leave(self, owner: int) -> None:
        self._owners.discard(owner)
        self._give_back([ticket for ticket, one in self._reserved.items() if one.owner == owner])
        for key in [key for key in self._pins if key[0] == owner]:
            self._loose(key)

    def _all(self, owner: int, request: p.All) -> list[p.Answer]:
        return [self.answered(owner, one) for one in request.requests]

    def _hello(self, owner: int, request: p.Hello) -> p.Welcome:
        if request.version != p.VERSION:
            raise ValueError(f"this index speaks version {p.VERSION} of its protocol, and the client {request.version}")
        self._owners.add(owner)
        return p.Welcome(self._epoch, self._rooms.size)

    def _find(self, owner: int, request: p.Find) -> list[str | None]:
        found = tuple(group for group in request.groups if group in self._groups)
        self._used(found)
        if request.pin is not None:
            self._loose((owner, request.pin))
            if found:
                self._pins[owner, request.pin] = _Pin(found, self._now() + self._lease_s)
                self._pinned.update(found)
        return [self._groups[group].tag if group in self._groups else None for group in request.groups]

    def _unpin(self, owner: int, request: p.Unpin) -> None:
        self._loose((owner, request.pin))

    def _loose(self, key: tuple[int, str]) -> None:
        if pin := self._pins.pop(key, None):
            self._pinned -= Counter(pin.groups)

    def _locate(self, owner: int, request: p.Locate) -> list[list[p.Extent]]:
        self._used([group for group in request.groups if group in self._groups])
        return [self._groups[group].extents if group in self._groups else [] for group in request.groups]

    def _used(self, groups: Sequence[str]) -> None:
        """Without its first chunk nothing of a prompt is of use, so of what is used together the last goes first."""
        for group in reversed(groups):
            self._groups.move_to_end(group)

    def _reserve(self, owner: int, request: p.Reserve) -> p.Reserved:
        if any(size < 0 for size in request.sizes):
            raise ValueError("no object has less than no bytes")
        self._expire()
        starts: list[int] = []
        evicted: list[str] = []
        for size in request.sizes:
            if (start := self._take(size, evicted if request.evict else None)) is None:
                for given, length in zip(starts, request.sizes, strict=False):
                    self._rooms.give(given, length)
                self._told["refused"] += 1
                return p.Reserved(None, evicted)
            starts.append(start)
        rooms = [
            p.Room(next(self._tickets), start, size) for start, size in zip(starts, request.sizes, strict=True)
        ]  # fmt: skip
        until = self._now() + self._lease_s
        self._reserved |= {room.ticket: _Reservation(owner, room, self._generation, until) for room in rooms}
        return p.Reserved(rooms, evicted)

    def _take(self, size: int, evicted: list[str] | None) -> int | None:
        """What went for it is added to ``evicted``; None: nothing may."""
        while (start := self._rooms.take(size)) is None:
            oldest = next((group for group in self._groups if not self._pinned[group]), None)
            if evicted is None or oldest is None or size > self._rooms.size:
                return None
            self._drop(oldest)
            evicted.append(oldest)
            self._told["evicted"] += 1
        return start

    def _expire(self) -> None:
        now = self._now()
        self._give_back([ticket for ticket, one in self._reserved.items() if one.until < now])
        for key in [key for key, pin in self._pins.items() if pin.until < now]:
            self._loose(key)

    def _publish(self, owner: int, request: p.Publish) -> bool:
        if not request.objects or len({one.ticket for one in request.objects}) < len(request.objects):
            raise ValueError("a group has an object or more, each in a room of its own")
        mine = [self._reserved.get(one.ticket) for one in request.objects]
        valid = all(one and one.owner == owner and one.generation == self._generation for one in mine)
        if not valid:
            self._give_back(one.room.ticket for one in mine if one and one.owner == owner)
            return False
        self._drop(request.group)
        extents = [
            p.Extent(written.name, one.room.start, one.room.size, written.checksum)
            for written, one in zip(request.objects, mine, strict=True)
        ]
        self._groups[request.group] = _Group(request.tag, extents)
        for one in request.objects:
            del self._reserved[one.ticket]
        return True

    def _abandon(self, owner: int, request: p.Abandon) -> None:
        self._give_back(
            ticket for ticket in request.tickets if ticket in self._reserved and self._reserved[ticket].owner == owner
        )

    def _give_back(self, tickets: Iterable[int]) -> None:
        for ticket in tickets:
            room = self._reserved.pop(ticket).room
            self._rooms.give(room.start, room.size)
            self._told["abandoned"] += 1

    def _forget(self, owner: int, request: p.Forget) -> None:
        for group in request.groups:
            self._drop(group)

    def _drop(self, group: str) -> None:
        if group in self._groups:
            for extent in self._groups.pop(group).extents:
                self._rooms.give(extent.start, extent.size)

    def _clear(self, owner: int, request: p.Clear) -> None:
        self._generation += 1
        for group in list(self._groups):
            self._drop(group)

    def _list(self, owner: int, request: p.List) -> list[tuple[str, list[p.Extent]]]:
        return [(name, group.extents) for name, group in self._groups.items()]

    def _status(self, owner: int, request: p.Status) -> p.State:
        return p.State(
            epoch=self._epoch, size=self._rooms.size, used=self._rooms.used, groups=len(self._groups),
            reserved=len(self._reserved), pinned=len(self._pinned), evicted=self._told["evicted"],
            refused=self._told["refused"], abandoned=self._told["abandoned"], clients=len(self._owners),
        )  # fmt: skip
