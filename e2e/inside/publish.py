"""How bytes become readable to others, step by step: the one list that the pool walks and the model checker explores.

Memory that several hosts share need not be coherent between them (CXL 2.0 has no such promise): what a host writes lies
in its own cache until it is written back, and what it reads may be a line that it fetched before. So whoever stores
writes back before the index hears of it, and whoever loads fetches anew after the index told it where. The checksum,
which the index keeps and no memory carries, is what makes the difference between a miss and a wrong answer; the two
steps before it make the difference between a hit and a miss. Imports no torch.
"""

from __future__ import annotations

from enum import Enum


class Storing(Enum):
    """Of groups that go together, each for itself. RESERVE: the index gives room that nobody has. PUBLISH: it tells
    everybody, with checksums."""

    RESERVE = "reserve"
    WRITE = "write"
    WRITE_BACK = "write_back"
    PUBLISH = "publish"


class Loading(Enum):
    """Of one object, after the index has told where it lies."""

    FETCH = "fetch"
    COPY = "copy"
    VERIFY = "verify"


STORE = (Storing.RESERVE, Storing.WRITE, Storing.WRITE_BACK, Storing.PUBLISH)
LOAD = (Loading.FETCH, Loading.COPY, Loading.VERIFY)
#: As planted faults have it.
ANNOUNCED_EARLY = (Storing.RESERVE, Storing.PUBLISH, Storing.WRITE, Storing.WRITE_BACK)
UNVERIFIED = (Loading.FETCH, Loading.COPY)
