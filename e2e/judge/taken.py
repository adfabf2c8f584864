"""Digests of a cell by what they are of: site, Send, prompt, read and rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from e2e.base.program import Where
from e2e.judge.kv import Digest, Sample

#: (request, n-th read of it, rank)
Place = tuple[str, int, int]
Key = tuple[str, str, str, int, str, int, int]


@dataclass(frozen=True)
class Taken:
    """``digest.taken``, with its values filled in, and what was sampled of the same request. ``sent``: its request is
    one that this arm sent for this prompt."""

    role: str
    arm: str
    sent: bool
    data: Mapping[str, object]
    sample: Mapping[str, object] | None


@dataclass(frozen=True)
class Table:
    """``found``: (role, arm, when, prompt, *Place) -> digest, in order. ``foreign``: what came back for a request that
    was not sent, ``broken``: what can't be read, ``twice``: what was told twice, and not alike; as (role, arm, prompt).
    """

    found: Mapping[Key, Digest]
    foreign: list[tuple[str, str, object]]
    broken: list[tuple[str, str, object]]
    twice: list[tuple[str, str, object]]

    @classmethod
    def of(cls, digests: Iterable[Taken]) -> Table:
        found: dict[Key, Digest] = {}
        foreign, broken, twice = [], [], []
        for taken in digests:
            place = (taken.role, taken.arm, taken.data["prompt"])
            if not taken.sent:
                foreign.append(place)
                continue
            try:
                digest = Digest.of(taken.data)
                if taken.sample is not None and digest.when == "read":
                    digest = replace(digest, sample=Sample.of(taken.sample))
            except (KeyError, TypeError, ValueError):
                broken.append(place)
                continue
            # a prompt is computed once, and every read counts: a wrong one that a right one follows is wrong
            of = ("", 1) if digest.when == "computed" else (digest.request, digest.nth)
            key = (taken.role, taken.arm, digest.when, digest.prompt, *of, digest.rank)
            if not np.array_equal(digest.values, found.setdefault(key, digest).values):
                twice.append(place)
        return cls(dict(sorted(found.items())), foreign, broken, twice)

    def all(self, where: Where, when: str, prompt: int) -> dict[Place, Digest]:
        return {k[4:]: d for k, d in self.found.items() if k[:4] == (*where, when, prompt)}

    def computed(self, where: Where, prompt: int) -> dict[int, Digest]:
        """By rank."""
        return {rank: digest for (_, _, rank), digest in self.all(where, "computed", prompt).items()}
