"""A score counts faults, not cells; what survived anywhere in a story, or did not fire there, is not killed by it."""

from __future__ import annotations

import pytest

from e2e.report.scores import Score, Told, at_least, scores, sentence, total

KINDS = ("addressing", "rank")


def told(fault: str, scenario: str, killed: bool, kind: str = "addressing") -> Told:
    return Told(fault, kind, scenario, killed)


def of(*rows: Told) -> list[Score]:
    return scores(rows, kinds=KINDS, gate="replay")


def test_a_fault_counts_once_however_many_cells_it_is_planted_in():
    assert of(told("a", "replay", True), told("a", "replay", True)) == [Score("addressing", 1, 1, 1)]


def test_a_story_that_misses_it_in_one_cell_does_not_kill_it():
    assert of(told("a", "replay", True), told("a", "replay", False)) == [Score("addressing", 0, 0, 1)]


def test_another_story_kills_what_the_gate_can_not():
    rows = (told("a", "replay", False), told("a", "crowd", True), told("b", "crowd", True))
    assert of(*rows) == [Score("addressing", 0, 2, 2)]


def test_a_story_that_misses_takes_nothing_from_one_that_kills():
    assert of(told("a", "replay", True), told("a", "crowd", False)) == [Score("addressing", 1, 1, 1)]


def test_kinds_stand_in_their_order_and_add_up():
    found = of(told("b", "replay", True, "rank"), told("a", "replay", False))
    assert [score.kind for score in found] == ["addressing", "rank"]
    assert total(found) == Score("all", 1, 1, 2)


def test_nothing_planted_is_no_score():
    assert of() == []
    assert sentence(total([]), gate="replay", stories=()) == "no fault was planted"


@pytest.mark.parametrize(
    ("killed", "of", "bound"),
    [(60, 60, 0.95), (2, 2, 0.0), (0, 10, 0.0), (90, 100, 0.8392)],  # the last by scipy's wilson, 90 % two-sided
)
def test_the_bound(killed, of, bound):
    assert at_least(killed, of) == pytest.approx(bound, abs=5e-4)


def test_more_trials_bound_more_tightly_and_never_above_what_was_seen():
    bounds = [at_least(9 * n, 10 * n) for n in (1, 10, 100)]
    assert bounds == sorted(bounds)
    assert bounds[-1] < 0.9


def test_the_gate_stands_beside_all_stories():
    said = sentence(Score("all", 30, 57, 60), gate="replay", stories=("replay", "crowd"))
    assert said == (
        "faults killed by a named check: 57 of 60 (95%, at least 88%); by replay alone: 30 of 60 (50%, at least 40%)"
    )
    alone = sentence(Score("all", 30, 30, 60), gate="replay", stories=("replay",))
    assert alone.endswith("30 of 60 (50%, at least 40%) by replay; no other story was told")
