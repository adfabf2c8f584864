"""What index and engines say to each other: framed msgpack over TCP, one answer to each request, in order.

A frame is four bytes of length, big end first, and a tagged struct. The first request of a connection is ``Hello``.
What a connection has reserved or pinned is its own, and free again when it ends or its lease does.

An object is a named run of bytes of the region. What is stored together stands in one **group**, which is found,
located, forgotten and evicted as a whole: a chunk of one rank, of one object or of one a layer. Lifecycle: ``Reserve``
rooms, write the bytes, ``Publish`` them as a group with the checksums of what was *meant* to be written. Nothing is
readable before that, and a reader proves by the checksum what it has read, so that no lost lease, restarted index or
stray writer can make wrong bytes pass.
"""

from __future__ import annotations

import struct
from typing import ClassVar

import msgspec

VERSION = 3
LENGTH = struct.Struct(">I")
#: Longer frames are refused. Bytes.
LONGEST = 64 << 20


class Request(msgspec.Struct, tag=True, frozen=True):
    #: type of what is answered
    answer: ClassVar[type] = type(None)


class Welcome(msgspec.Struct, frozen=True):
    """``epoch``: another one after each start of the index; ``size``: bytes of the region."""

    epoch: str
    size: int


class Hello(Request, frozen=True):
    """``client``: a name for the log."""

    version: int
    client: str
    answer = Welcome


class Find(Request, frozen=True):
    """The tag of each of ``groups``, None where it is not there. With ``pin``, a name that the connection chooses,
    those are not evicted until it is unpinned or used anew."""

    groups: list[str]
    pin: str | None = None
    answer = list[str | None]


class Unpin(Request, frozen=True):
    pin: str


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """An object: bytes [start, start + size) of the region. ``checksum``: as the memory of whoever wrote it has it."""

    name: str
    start: int
    size: int
    checksum: str


class Locate(Request, frozen=True):
    """The objects of each group; none of one that is not there."""

    groups: list[str]
    answer = list[list[Extent]]


class Room(msgspec.Struct, frozen=True, array_like=True):
    """Reserved bytes [start, start + size) of the region, under a number."""

    ticket: int
    start: int
    size: int


class Reserved(msgspec.Struct, frozen=True):
    """``rooms``: one for each object, or None when the pool has none. ``evicted``: groups that went for it."""

    rooms: list[Room] | None
    evicted: list[str]


class Reserve(Request, frozen=True):
    """Room for objects of these sizes. ``evict``: may groups that were not used for the longest time, and that nobody
    has pinned, go for it?"""

    sizes: list[int]
    evict: bool = False
    answer = Reserved


class Written(msgspec.Struct, frozen=True, array_like=True):
    ticket: int
    name: str
    checksum: str


class Publish(Request, frozen=True):
    """Bytes are written: from now on the group is there, instead of one with another tag. False if a reservation is
    no longer valid (its lease ended, or the index was emptied since); then nothing is, and the rooms are given back.
    ``tag``: says of groups that belong together, shares of several ranks, that one step wrote them."""

    group: str
    tag: str
    objects: list[Written]
    answer = bool


class Abandon(Request, frozen=True):
    tickets: list[int]


class Forget(Request, frozen=True):
    groups: list[str]


class Clear(Request, frozen=True):
    """Forgets all groups. Reservations keep their rooms, and can't be published any more."""


class List(Request, frozen=True):
    """Every group, the one that was used last at the end."""

    answer = list[tuple[str, list[Extent]]]


class State(msgspec.Struct, frozen=True):
    """``used`` and ``size`` in bytes; ``evicted``, ``refused``, ``abandoned``: groups, reservations and rooms so far;
    ``clients``: connections that are open."""

    epoch: str
    size: int
    used: int
    groups: int
    reserved: int
    pinned: int
    evicted: int
    refused: int
    abandoned: int
    clients: int


class Status(Request, frozen=True):
    answer = State


Single = Hello | Find | Unpin | Locate | Reserve | Publish | Abandon | Forget | Clear | List | Status


class Answer(msgspec.Struct, frozen=True):
    """``refused``: why, one sentence; else ``value`` is of the request's ``answer`` type."""

    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    refused: str | None = None


class All(Request, frozen=True):
    """One after the other, in one frame: who has much to ask waits once. A refused one holds up no other."""

    requests: list[Single]
    answer = list[Answer]


AnyRequest = Single | All
_encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(AnyRequest).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


def frame(message: AnyRequest | Answer) -> bytes:
    """Raises ValueError for a message that is too long."""
    body = _encode(message)
    if len(body) > LONGEST:
        raise ValueError(f"a message of {len(body)} bytes is too long")
    return LENGTH.pack(len(body)) + body


def value(request: AnyRequest, answer: Answer) -> object:
    """What was answered to a request that was not refused."""
    return msgspec.msgpack.decode(answer.value, type=type(request).answer)


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))
