"""A fake world whose connector has a bug that only a certain course of events brings out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from fake import FakeEngine, FakeWorld, Key

from e2e.base.program import Program, Send
from e2e.play.player import Player

#: Of one read: text, how many times it was read with this one, how many are read at once, by which site it was stored
#: and read.
Bug = Callable[..., bool]


def second_read(*, reads: int, **_: object) -> bool:
    return reads == 2


def two_at_once(*, at_once: int, **_: object) -> bool:
    return at_once > 1


def of_another_site(*, stored_by: str, read_by: str, **_: object) -> bool:
    return stored_by != read_by


@dataclass
class PlantedWorld(FakeWorld):
    """``wrong``: texts that were served wrongly. ``stored``: store -> text -> site."""

    bug: Bug = second_read
    wrong: list = field(default_factory=list)
    stored: dict = field(default_factory=lambda: defaultdict(dict))
    reads: Counter = field(default_factory=Counter)

    @contextmanager
    def engine(self, scene, site, name, store):
        with super().engine(scene, site, name, store):
            yield PlantedEngine(name, self, site)


@dataclass
class PlantedEngine(FakeEngine):
    site: object = None
    warm: set = field(default_factory=set)

    def send(self, scene, send: Send, *, forgiving):
        super().send(scene, send, forgiving=forgiving)
        stored = self.world.stored[self.site.store] if self.site.connector else {}
        read = [text for text in send.texts if text not in self.warm and text in stored]
        for text in read:
            self.world.reads[self.site.store, text] += 1
            course = {
                "text": text, "reads": self.world.reads[self.site.store, text], "stored_by": stored[text],
                "at_once": min(send.at_once, len(read)), "read_by": self.site.name,
            }  # fmt: skip
            if self.world.bug(**course):
                self.world.wrong.append(text)
        if self.site.connector:
            stored |= {text: self.site.name for text in send.texts if text not in stored}
        self.warm |= {*send.texts}

    def forget(self, scene, before):
        super().forget(scene, before)
        self.warm.clear()

    def empty(self):
        self.world.stored[self.site.store].clear()
        return super().empty()


class Silent:
    """Of the player's surroundings, what nobody looks at here."""

    def record(self, kind, **data):
        return None

    def step(self, kind, doing):
        return nullcontext()

    def judged(self, cell):
        return None

    def knows(self, cell):
        return False


def fails(program: Program, bug: Bug) -> bool:
    """Plays it by the player: is anything served wrongly?"""
    silent = Silent()
    world = PlantedWorld(silent.record, bug=bug)
    Player(world, silent, silent, 1, lambda text: None).play([Key("K", {"K-a": program})])
    return bool(world.wrong)
