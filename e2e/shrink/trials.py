"""Plays candidates and tells which still fail, within a budget; what a recording holds already is not played again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from e2e.base.cell import Cell, derived_load
from e2e.base.connector import Adapter
from e2e.base.errors import SettingsError
from e2e.base.event import Event
from e2e.base.judgement import CellJudgement
from e2e.base.program import program_of
from e2e.base.verdict import Verdict
from e2e.chosen import part_of
from e2e.grid.axes import AXES, Value
from e2e.grid.cells import engine_key, expand
from e2e.grid.selection import Selection
from e2e.judge.cells import judge_cell
from e2e.material import Material
from e2e.part import KeyPart
from e2e.play.player import Player
from e2e.recording.resume import finished
from e2e.settings.settings import Settings
from e2e.shrink.failed import ROUND, Case, Failed
from e2e.shrink.kept import Keeping
from e2e.shrink.smaller import halves, smaller


@dataclass(frozen=True)
class Limits:
    """``starts``: of engines. ``seconds``: of all attempts together."""

    starts: int = 12
    seconds: float = 900.0


@dataclass(frozen=True)
class Trial:
    """``fresh``: on engines that had played nothing else. ``failed``: as the original did."""

    case: Case
    fresh: bool
    judged: CellJudgement
    failed: bool


@dataclass
class Cases:
    """Cells of one search. ``usual``: axis -> value that nobody need choose."""

    settings: Settings
    adapter: Adapter
    made_of: Material

    @property
    def usual(self) -> dict[str, Value | None]:
        fixed = {axis: v for axis, v in self.settings.axis_fixed.items() if axis in self.adapter.axes}
        return {**{name: axis.default for name, axis in AXES.items()}, **self.settings.axis_defaults, **fixed}

    def part(self, case: Case, number: int = 0) -> KeyPart:
        """SettingsError for what can't be had."""
        cell = Cell({**case.settings, ROUND: number}, usual=self.usual)
        key = f"{engine_key(cell, self.adapter)}-{ROUND}_{number}"
        return replace(part_of(key, [cell], self.settings, self.adapter, self.made_of), told=case.program)

    def smaller(self, case: Case) -> Iterator[Case]:
        part = self.part(case)
        unit, answer = part.sized(part.cells[0]).leg, self.settings.max_tokens
        for what, program in smaller(case.program, unit=unit, answer=answer):
            yield Case(case.settings, program, what)
        for axes in self._off_usual(case):
            settings = self._with_usual(case.settings, axes)
            candidate = Case(settings, case.program, f"{', '.join(axes)} as usual") if settings else None
            if candidate and self._is_served_alike(part, candidate):
                yield candidate

    def _off_usual(self, case: Case) -> Iterator[list[str]]:
        """All axes at once, halves, each alone."""
        usual = {**self.usual, "load": derived_load(case.settings.get("overlap"))}
        at_once = any(send.at_once > 1 for send in case.program.sends)
        kept = {"concurrency"} if at_once else set()
        off = [axis for axis, v in case.settings.items() if axis in AXES and v != usual.get(axis) and axis not in kept]
        if off:
            yield off
        for some in halves(len(off)):
            yield [off[place] for place in some]

    def _with_usual(self, settings: Mapping[str, Value], axes: Sequence[str]) -> dict[str, Value] | None:
        """None for a cell that there is not."""
        hang_on = ("load", "release_after_layers") if "overlap" in axes else ()
        left = {axis: v for axis, v in settings.items() if axis in AXES and axis not in (*axes, *hang_on)}
        named = {axis: v for axis in axes if axis not in hang_on and (v := self.usual.get(axis)) is not None}
        grid = expand(
            Selection(({},), ({**left, **named},)), self.adapter, defaults=self.settings.axis_defaults,
            fixed=self.settings.axis_fixed,
        )  # fmt: skip
        if len(grid.cells) != 1:
            return None
        return {**grid.cells[0].settings, **{name: v for name, v in settings.items() if name not in AXES}}

    def _is_served_alike(self, part: KeyPart, other: Case) -> bool:
        """Lengths and hits of the program hang on block, unit and step."""
        try:
            one, two = part, self.part(other)
        except SettingsError:
            return False
        alike = [
            (each.block_size, each.lengths.step, each.hit_rule(), each.adapter.refuses(each.cells[0], each.longest))
            for each in (one, two)
        ]
        return alike[0] == alike[1]


@dataclass
class Trials:
    """``before``: events of earlier attempts at the same search."""

    failed: Failed
    cases: Cases
    player: Player[KeyPart]
    kept: Keeping[KeyPart]
    limits: Limits
    before: Sequence[Event] = ()
    known: list[Trial] = field(default_factory=list)
    untried: list[Case] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began_s, self._longest_s = time.monotonic(), 0.0
        self._number = sum(event.kind == "plan.cell" for event in self.before)
        self._spent_starts, self._spent_s = starts(self.before), spent_s(self.before)
        self.known += _known(self.failed, self.before)

    @property
    def starts(self) -> int:
        return self._spent_starts + self.kept.starts

    @property
    def seconds(self) -> float:
        return self._spent_s + time.monotonic() - self._began_s

    def fails(self, case: Case, fresh: bool) -> bool:
        for place, trial in enumerate(self.known):
            # what failed on engines that are kept is asked again of fresh ones, what did not is not
            if trial.case == case and (trial.fresh or not (fresh and trial.failed)):
                self.known[place] = replace(trial, case=case)  # a recording does not say what was left out
                return trial.failed
        try:
            part = self.cases.part(case, self._number + 1)
            self.player.world.prompts.build(part.key, part.program)
        except SettingsError:  # too short to be a prompt, say
            return False
        if not self._affords(part, fresh):
            self.untried.append(case)
            return False
        self._number += 1
        self.known.append(self._played(case, part, fresh))
        return self.known[-1].failed

    def _affords(self, part: KeyPart, fresh: bool) -> bool:
        """What was found on engines that are kept is asked once more of fresh ones, and that must be left."""
        alone = self.kept.missing(part, fresh=True)
        needed = alone if fresh else self.kept.missing(part, fresh=False) + alone
        if not self.known:
            return True
        took_s = self._longest_s * (1 if fresh else 2)
        return self.starts + needed <= self.limits.starts and self.seconds + took_s <= self.limits.seconds

    def _played(self, case: Case, part: KeyPart, fresh: bool) -> Trial:
        if fresh:
            self.kept.drop()
        (cell,), began_s, before = part.cells, time.monotonic(), self.kept.starts
        alone = self.kept.missing(part, fresh=True)
        self.player.say(f"{cell.id}: {case.what}{' on fresh engines' if fresh else ''}")
        self.player.record("plan.cell", **part.event(cell, attempt=self.player.attempt))
        self.player.play([part])
        judged = self.player.standing.judged(cell.id)
        if judged.verdict is Verdict.ERROR:
            self.kept.drop()
        self._longest_s = max(self._longest_s, time.monotonic() - began_s)
        return Trial(case, self.kept.starts - before >= alone, judged, self.failed.again(judged))


def _known(failed: Failed, before: Sequence[Event]) -> Iterator[Trial]:
    ended = finished(before)
    shared = {
        e["engine_key"] for e in before if e.kind == "engine.start" and str(e["launcher"]).startswith("shared")
    }  # fmt: skip
    for event in before:
        if event.kind == "plan.cell" and event["cell"] in ended:
            settings = {axis: value for axis, value in event["settings"].items() if axis != ROUND}
            judged = judge_cell(before, event["cell"])
            fresh = event["engine_key"] not in shared
            yield Trial(Case(settings, program_of(event["program"])), fresh, judged, failed.again(judged))


def starts(events: Sequence[Event]) -> int:
    """Of real engines."""
    return sum(e.kind == "engine.start" and not str(e["launcher"]).startswith("shared") for e in events)


def spent_s(events: Sequence[Event]) -> float:
    """Of all attempts, each up to its last event."""
    spans: list[list[int]] = []
    for event in events:
        if event.kind == "run.begin":
            spans.append([event.t_ns, event.t_ns])
        elif spans:
            spans[-1][1] = event.t_ns
    return sum(last - first for first, last in spans) / 1e9
