"""A fake world whose connector has a bug that only a certain course of events brings out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from fake import FakeEngine, FakeWorld, Key

from e2e.base.program import Program, Send, Site
from e2e.play.player import Player

#: Of one read: how many times its text was read with this one, how many are read at once, by which site it was stored
#: and read, and how many reads there were in the life of the engine.
Bug = Callable[..., bool]


def second_read(*, reads: int, **_: object) -> bool:
    return reads == 2


def two_at_once(*, at_once: int, **_: object) -> bool:
    return at_once > 1


def of_another_site(*, stored_by: str, read_by: str, **_: object) -> bool:
    return stored_by != read_by


def third_in_life(*, life: int, **_: object) -> bool:
    return life >= 3


@dataclass
class PlantedWorld(FakeWorld):
    """``wrong``: cells in which something was served wrongly. ``stored``: (store, text) -> site; texts of two engine
    keys are two."""

    bug: Bug = second_read
    wrong: list = field(default_factory=list)
    stored: dict = field(default_factory=dict)
    reads: Counter = field(default_factory=Counter)

    @contextmanager
    def engine(self, scene, site, name, store):
        with super().engine(scene, site, name, store):
            yield PlantedEngine(name, self, site, Life())

    def shared(self, scene, site, name, engine):
        super().shared(scene, site, name, engine)
        return PlantedEngine(name, self, site, engine.life)


@dataclass
class Life:
    """Of one engine, whatever it is called."""

    warm: set = field(default_factory=set)
    reads: int = 0


@dataclass
class PlantedEngine(FakeEngine):
    site: Site
    life: Life

    def send(self, scene, send: Send, *, forgiving):
        super().send(scene, send, forgiving=forgiving)
        texts = [(self.site.store, scene.part.key, text) for text in send.texts]
        world, read = self.world, [text for text in texts if text not in self.life.warm and text in self.world.stored]
        for text in read if self.site.connector else ():
            world.reads[text] += 1
            self.life.reads += 1
            course = {
                "reads": world.reads[text], "at_once": min(send.at_once, len(read)), "life": self.life.reads,
                "stored_by": world.stored[text], "read_by": self.site.name,
            }  # fmt: skip
            if world.bug(**course):
                world.wrong.append(scene.cell)
        if self.site.connector:
            world.stored |= {text: self.site.name for text in texts if text not in world.stored}
        self.life.warm |= {*texts}

    def forget(self, scene, before):
        super().forget(scene, before)
        self.life.warm.clear()

    def empty(self):
        self.world.stored.clear()
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
