"""Engines outlive a cell where they are afterwards what they were before, and end with the world that keeps them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake import ONE, PLAIN, TEXTS, FakeWorld, Key, again, lent, own, send
from planted import Silent

from e2e.base.errors import EngineCrashed
from e2e.base.program import Break, Program, Site, Start, Stop
from e2e.play.player import Player
from e2e.shrink.kept import Keeping, keepable, serves
from e2e.stack.spec import EngineSpec

SPEC = EngineSpec(name="", engine_key="K", role="one", model="", max_model_len=512, kv_cache_memory_bytes=1000)


def spec_of(part, site) -> EngineSpec:
    return replace(SPEC, role=site.name, engine_key=part.key, connector=None)


class World:
    """``play`` plays one program as a cell of its own key."""

    def __init__(self, **fails):
        self.silent = Silent()
        self.fake = FakeWorld(self.silent.record, **fails)
        self.kept = Keeping(self.fake, spec_of)
        self.player = Player(self.kept, self.silent, self.silent, 1, lambda text: None)

    def play(self, key: str, program: Program) -> None:
        self.player.play([Key(key, {f"{key}-a": program})])

    @property
    def starts(self) -> list[str]:
        return [what[-1] for what in self.fake.did if what[0] == "start" and what[1] != "store"]


def alone() -> Program:
    """Starts and stops both of its engines, in peace."""
    first, cold = send("alone", PLAIN), send("cold", ONE)
    steps = (Start("plain"), first, Stop("plain"), Start("one"), cold, *again(ONE, cold), Stop("one"))
    return Program((PLAIN, ONE), TEXTS, steps, "alone")


@pytest.mark.parametrize("program", [lent, alone])
def test_a_second_cell_starts_nothing_and_all_ends_with_the_world(program):
    world = World()
    with world.kept as kept:
        world.play("K", program())
        assert kept.starts == len(world.starts) == 2
        assert kept.missing(Key("L", {"L-a": program()}), fresh=False) == 0
        assert kept.missing(Key("L", {"L-a": program()}), fresh=True) == 2
        world.play("L", program())
        assert kept.starts == len(world.starts) == 2
        assert [what for what in world.fake.did if what[:2] == ("send", "L-a")]
        assert world.fake.running
    assert not world.fake.running


def test_dropped_engines_are_started_anew():
    world = World()
    with world.kept as kept:
        world.play("K", lent())
        kept.drop()
        assert not world.fake.running
        world.play("L", lent())
        assert kept.starts == 4


def test_an_engine_that_is_killed_or_that_shares_its_store_is_kept_by_nobody():
    world, two = World(), Site("two")
    cold = send("cold", ONE)
    shared = Program((ONE, two), TEXTS, (cold, *again(two, cold)))
    with world.kept as kept:
        world.play("K", own())
        assert kept.starts == 2
        assert [what[0].split(".")[1] for what in world.fake.running] == ["plain"]
        world.play("L", shared)
        assert kept.starts == 4
        assert [what[0].split(".")[1] for what in world.fake.running] == ["plain"]


def test_two_engines_on_one_store_get_the_same_one_and_a_break_the_real_ones():
    world, two = World(), Site("two")
    cold = send("cold", ONE)
    with world.kept:
        world.play("K", Program((ONE, two), TEXTS, (cold, Break("server", "suspend", "index"), *again(two, cold))))
    assert [what[:2] for what in world.fake.did if what[0] == "start"].count(("start", "store")) == 1
    assert ("start", "broken", "server", "suspend", "index") in world.fake.did


def test_an_engine_that_failed_is_not_given_to_the_next():
    world = World(fails={("send", "K", "alone"): EngineCrashed("gone")})
    with world.kept as kept:
        world.play("K", lent())
        assert not world.fake.running
        world.play("L", lent())
        assert [name.split(".")[1] for name in world.starts] == ["plain", "plain", "one"]
        assert kept.starts == 3
    assert not world.fake.running


def test_an_engine_that_can_not_be_tidied_is_not_given_to_the_next():
    world = World(fails={("tidy", "K.plain.1.1"): EngineCrashed("gone")})
    with world.kept:
        world.play("K", lent())
        assert [what[-1].split(".")[1] for what in world.fake.running if what[0] != "store"] == ["one"]
        world.play("L", lent())
    assert [name.split(".")[1] for name in world.starts] == ["plain", "one", "plain"]


@pytest.mark.parametrize(
    ("wanted", "exactly", "fits"),
    [
        (SPEC, True, True),
        (replace(SPEC, name="other", engine_key="L", cell="c"), True, True),
        (replace(SPEC, kv_cache_memory_bytes=500, max_model_len=100), False, True),
        (replace(SPEC, kv_cache_memory_bytes=500), True, False),
        (replace(SPEC, kv_cache_memory_bytes=1001), False, False),
        (replace(SPEC, max_model_len=513), False, False),
        (replace(SPEC, layout="HND"), False, False),
        (replace(SPEC, role="two"), False, False),
        (replace(SPEC, dtype="float32"), False, False),
    ],
)
def test_an_engine_serves_another_cell_where_it_differs_in_room_alone(wanted, exactly, fits):
    assert serves(SPEC, wanted, exactly=exactly) is fits


def test_what_was_broken_or_killed_is_not_what_it_was():
    suspended = own(Break("server", "suspend", "index"))
    assert keepable(alone(), PLAIN)
    assert keepable(alone(), ONE)
    assert keepable(own(), PLAIN)
    assert not keepable(own(), ONE)
    assert not keepable(suspended, PLAIN)
