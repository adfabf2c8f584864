"""What an index answers, by requests alone; the clock is a list."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.inside.index import protocol as p
from e2e.inside.index.rooms import ALIGNED, Rooms
from e2e.inside.index.table import LEASE_S, Table

ONE, OTHER = 1, 2


class Index:
    def __init__(self, size: int = 1024) -> None:
        self.clock = [0.0]
        self.table = Table(size, epoch="e", now=lambda: self.clock[0])

    def __call__(self, request, owner=ONE):
        return self.table.answer(owner, request)

    def reserve(self, *sizes, owner=ONE, evict=False):
        return self(p.Reserve(list(sizes), evict), owner).rooms

    def publish(self, group, rooms, tag="t", owner=ONE):
        written = [p.Written(room.ticket, f"{group}_{number}", "sum") for number, room in enumerate(rooms)]
        return self(p.Publish(group, tag, written), owner)

    def store(self, group, *sizes, tag="t", owner=ONE, evict=False):
        return self.publish(group, self.reserve(*sizes, owner=owner, evict=evict), tag, owner)

    def find(self, *groups, pin=None, owner=ONE):
        return self(p.Find(list(groups), pin), owner)

    @property
    def state(self):
        return self(p.Status())


def test_a_reservation_is_no_object():
    index = Index()
    rooms = index.reserve(100, 200)
    assert index.find("a") == [None]
    assert index(p.Locate(["a"])) == [[]]
    assert index.publish("a", rooms)
    assert index.find("a") == ["t"]
    assert index(p.Locate(["a"])) == [[p.Extent("a_0", 0, 100, "sum"), p.Extent("a_1", 128, 200, "sum")]]


def test_who_dies_leaves_no_room_taken_and_nothing_readable():
    index = Index()
    index.store("kept", 64)
    rooms = index.reserve(512, owner=OTHER)
    index.find("kept", pin="r", owner=OTHER)
    index.table.leave(OTHER)
    assert not index.publish("a", rooms, owner=OTHER)
    assert index.find("a", "kept") == [None, "t"]
    assert (index.state.used, index.state.reserved, index.state.pinned) == (64, 0, 0)


def test_nobody_publishes_or_ends_what_is_anothers():
    index = Index()
    rooms = index.reserve(64)
    assert not index.publish("a", rooms, owner=OTHER)
    index(p.Abandon([rooms[0].ticket]), OTHER)
    assert index.publish("a", rooms)


def test_a_lease_ends():
    index = Index()
    index.store("a", 512)
    index.find("a", pin="r")
    late = index.reserve(512)
    index.clock[0] = LEASE_S + 1
    assert index.reserve(1024, evict=True) is not None, "room and pin of a stopped client are free"
    assert not index.publish("late", late)


def test_several_sizes_get_room_together_or_none():
    index = Index()
    assert index.reserve(512, 513) is None
    assert index.state.used == 0
    assert index.reserve(512, 512) is not None
    assert (index.state.used, index.state.refused) == (1024, 1)


def test_nothing_is_evicted_for_what_could_never_fit():
    index = Index()
    index.store("a", 64)
    assert index.reserve(2000, evict=True) is None
    assert index.find("a") == ["t"]


def test_what_was_used_last_is_evicted_last_and_what_is_pinned_never():
    index = Index()
    for group in "abcd":
        index.store(group, 256)
    index(p.Locate(["a"]))
    index.find("b", pin="r")
    assert index.store("e", 512, evict=True)
    assert index.find(*"edcba") == ["t", None, None, "t", "t"]
    assert index.state.evicted == 2
    index.find("a", pin="r")  # the pin moves
    assert index.store("f", 256, evict=True)
    assert index.find(*"abef") == ["t", None, "t", "t"]


def test_of_what_was_found_together_the_last_goes_first():
    """A prompt is served from its start on: without its first chunk the others are of no use."""
    index = Index()
    for group in "abcd":
        index.store(group, 256)
    index.find(*"abcd")
    assert index(p.Reserve([512], evict=True)).evicted == ["d", "c"]
    assert index.find(*"abcd") == ["t", "t", None, None]
    index(p.Locate(["b", "a"]))
    assert index(p.Reserve([256], evict=True)).evicted == ["a"]


def test_who_reserves_is_told_what_went_for_it():
    index = Index()
    index.store("a", 512)
    index.store("b", 512)
    index.find("b", pin="r")
    assert index(p.Reserve([64], evict=False)) == p.Reserved(None, [])
    refused = index(p.Reserve([512, 512], evict=True))
    assert (refused.rooms, refused.evicted) == (None, ["a"])
    assert index(p.Reserve([512], evict=True)).evicted == []


def test_two_pins_hold_until_both_are_gone():
    index = Index()
    index.store("a", 1024)
    index.find("a", pin="r", owner=ONE)
    index.find("a", pin="r", owner=OTHER)
    index(p.Unpin("r"), ONE)
    assert index.reserve(64, evict=True) is None
    index(p.Unpin("r"), OTHER)
    index(p.Unpin("r"), OTHER)
    assert index.reserve(64, evict=True) is not None


def test_what_was_reserved_before_a_clear_never_comes_to_life():
    index = Index()
    index.store("a", 64)
    rooms = index.reserve(64)
    index(p.Clear())
    assert index.state.used == 64, "its writer may still write"
    assert not index.publish("ghost", rooms)
    assert (index.state.used, index.find("a", "ghost")) == (0, [None, None])


def test_a_group_stored_anew_takes_the_place_of_the_old_one():
    index = Index()
    index.store("a", 64, tag="old")
    index.store("a", 128, tag="new")
    assert index.find("a") == ["new"]
    assert index.state.used == 128


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (p.Hello(99, "x"), "speaks version 3 .* the client 99"),
        (p.Reserve([-1]), "no object has less than no bytes"),
        (p.Publish("a", "t", []), "an object or more"),
        (p.Publish("a", "t", [p.Written(1, "a", "s"), p.Written(1, "b", "s")]), "a room of its own"),
    ],
)
def test_what_can_t_be_meant_is_refused(request_, why):
    with pytest.raises(ValueError, match=why):
        Index()(request_)


def test_of_several_requests_a_refused_one_holds_up_no_other():
    requests = [p.Reserve([64]), p.Reserve([-1]), p.Status()]
    room, refused, status = Index()(p.All(requests))
    assert p.value(requests[0], room).rooms[0].size == p.value(requests[2], status).used == 64
    assert refused.refused == "no object has less than no bytes"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 700)), max_size=60))
def test_rooms_never_overlap_and_all_come_back(steps):
    rooms, taken = Rooms(4096), {}
    for take, number in steps:
        if take or not taken:
            if (start := rooms.take(number)) is not None:
                taken[start] = max(-(-number // ALIGNED), 1) * ALIGNED
        else:
            start = sorted(taken)[number % len(taken)]
            rooms.give(start, taken.pop(start))
        spans = sorted((start, start + size) for start, size in taken.items())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert all(start >= 0 and end <= 4096 for start, end in spans)
        assert rooms.used == sum(taken.values())
    for start, size in taken.items():
        rooms.give(start, size)
    assert rooms.take(4096) == 0
