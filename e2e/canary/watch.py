"""The loop: chooses, waits until nobody is in the way, probes, tells. Runs until it is stopped."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from e2e.base.errors import EngineError
from e2e.canary import stories, table
from e2e.canary.choice import Choice
from e2e.canary.exported import Exported
from e2e.canary.memory import ENOUGH, Seen
from e2e.canary.prober import Outcome, Probe, Prober, fresh
from e2e.canary.target import Target, why

#: A turn takes so long, give or take half; targets that are not probed are looked at so often, in seconds.
TICK_S, LOOK_S = 1.0, 10.0
#: Requests that wait: the engine is busy.
BUSY = 0
#: What is waited for, and will come.
BUDGETS = ("budget", "store_budget", "share")
COVERAGE = "coverage.txt"


@dataclass
class Watch:
    """``seconds``: how long, None: until stopped; ``probes``: how many at most. ``random``: for jitter."""

    targets: Sequence[Target]
    prober: Prober
    choice: Choice
    exported: Exported
    out: Path
    answer: int
    say: Callable[[str], None]
    seconds: float | None = None
    probes: int | None = None
    random: random.Random = field(default_factory=random.Random)
    _looked_s: dict[str, float] = field(default_factory=dict)
    _restarts: dict[str, int] = field(default_factory=dict)
    _next: Probe | None = None
    #: target -> the trouble that was told of it last
    _told: dict[str, str] = field(default_factory=dict)
    #: that were compared, by this canary itself
    loads: int = 0

    def run(self) -> None:
        pause, began_s, done = threading.Event(), time.monotonic(), 0
        self.exported.standing(self.prober.memory, self.targets, time.time())
        while self.seconds is None or time.monotonic() - began_s < self.seconds:
            if self.probes is not None and done >= self.probes:
                return
            done += self.turn(time.monotonic())
            pause.wait(TICK_S * self.random.uniform(0.5, 1.5))

    def turn(self, now_s: float) -> bool:
        """One turn; was there a probe?"""
        self.exported.turned()
        for target in self.targets:
            if now_s - self._looked_s.get(target.name, -LOOK_S) >= LOOK_S and target.pauses.over(now_s):
                self._left(target, self._look(target, now_s))
        if self._next is None:
            self._next = self._alike() or self.choice.next(time.time())
        probe, reason = self._next, self._why_not(self._next, now_s)
        if reason in BUDGETS:
            return False
        self._next = None  # whoever is in trouble keeps nobody else waiting
        if not reason:
            self._probe(probe)
        return not reason

    def _why_not(self, probe: Probe, now_s: float) -> str:
        """What keeps it back now; empty: nothing does."""
        cost, stored = stories.cost(probe.program, self.answer), stories.stored(probe.program)
        asked = [target for target in self.targets if target.name in probe.sites]
        for target in asked:
            reason = target.why_not(cost[target.name], stored.get(target.name, 0), now_s)
            if not reason:
                reason = self._look(target, now_s)
            if self._left(target, reason):
                return reason
        return ""

    def _left(self, target: Target, reason: str) -> bool:
        """Is it left alone?"""
        if reason:
            self.exported.waits.labels(target.name, reason).inc()
        return bool(reason)

    def _look(self, target: Target, now_s: float) -> str:
        """Why it can't be probed now; empty: it can. One that does not answer counts as a probe that saw nothing."""
        self._looked_s[target.name] = now_s
        try:
            now = target.look(now_s)
            if target.identity is None:
                target.ask()
                if self.prober.segments.events:
                    self.prober.renew()
        except EngineError as error:
            self._trouble(target, error, now_s)
            return "paused"
        if target.restarts > self._restarts.get(target.name, 0):
            self.exported.restarts.labels(target.name).inc(target.restarts - self._restarts.get(target.name, 0))
            self._restarts[target.name] = target.restarts
            self.prober.alike = {pair: like for pair, like in self.prober.alike.items() if target.name not in pair}
        if now.waiting > BUSY:
            target.pauses.trouble(now_s)
            return "busy"
        return ""

    def _trouble(self, target: Target, error: EngineError, now_s: float) -> None:
        reason = why(error)
        pause = target.pauses.trouble(now_s)
        self.exported.probes.labels(target.name, "none", "error", reason).inc()
        self.prober.memory.reasons[reason] += 1
        self._once(target.name, error, pause)

    def _once(self, name: str, error: EngineError, pause_s: float) -> None:
        """The same thing is not said again and again."""
        if self._told.get(name) != (what := why(error)):
            self.say(f"{name}: {error} It is left alone for {pause_s:.0f} s.")
        self._told[name] = what

    def _alike(self) -> Probe | None:
        """A pair of which it is not known yet whether they compute alike, or how noisy they are."""
        units = self.prober.memory.units()
        tokens = self.choice.lengths.at(0, units)
        now_s = time.monotonic()
        for one, other in combinations([target.name for target in self.targets if target.pauses.over(now_s)], 2):
            if self.choice.shared(one, other) and self._asks(one, other):
                texts = stories.texts_of(tokens, units)
                return fresh("alike", stories.anew((one, other), texts, units), tokens)
        return None

    def _asks(self, one: str, other: str) -> bool:
        """Before anything else, since without noise nothing of a busy engine can be told; every fourth time as long as
        they are too busy to tell whether they are alike."""
        memory = self.prober.memory
        seen = memory.by.get(("alike", (one, other)), Seen())
        if seen.probes < 2 * ENOUGH and None in (memory.noise(one), memory.noise(other)):
            return True
        return frozenset((one, other)) not in self.prober.alike and (not seen.probes or memory.number % 4 == 0)

    def _probe(self, probe: Probe) -> None:
        outcome = self.prober.play(probe)
        if outcome.verdict == "corrupt":
            outcome = self.prober.confirmed(probe, outcome)
        self.prober.settle(probe, outcome)
        if probe.story == "alike" and outcome.seen and outcome.seen.alike is not None:
            self.prober.alike[frozenset(probe.sites)] = outcome.seen.alike
            self.prober.renew()
        self.loads += outcome.saw != "nothing"
        self._heed(probe, outcome)
        memory, now_s = self.prober.memory, time.time()
        self.exported.settled(probe, outcome, memory.units().external(probe.tokens))
        for target in self.targets:
            if target.name in probe.sites:
                self.exported.paid(target)
        self.exported.standing(memory, self.targets, now_s)
        _write(self.out / COVERAGE, table.page(memory, {t.name: t.url for t in self.targets}, now_s))
        if self.prober.segments.full:
            self.prober.renew()

    def _heed(self, probe: Probe, outcome: Outcome) -> None:
        """Says what is to be said, and leaves alone who is in trouble."""
        now_s = time.monotonic()
        if outcome.error:
            name, error = outcome.error
            pause = self.prober.targets[name].pauses.trouble(now_s)
            self._once(name, error, pause)
            return
        if outcome.verdict in ("corrupt", "unconfirmed"):
            what = f"{outcome.verdict}: probe {outcome.id} of {' -> '.join(probe.sites)}: {outcome.reason}"
            self.say(f"{what}; {outcome.where}" if outcome.where else what)
        for target in (self.prober.targets[name] for name in probe.sites):
            target.pauses.well()
            self._told.pop(target.name, None)
            if outcome.verdict == "pass":
                self.exported.success.labels(target.name).set_to_current_time()
        for source in outcome.seen.sources if outcome.seen else ():
            target = self.prober.targets[source.site]
            if target.slow.is_slow(source.send, source.seconds / probe.tokens):
                target.pauses.trouble(now_s)
                self.exported.waits.labels(target.name, "slow").inc()


def _write(path: Path, text: str) -> None:
    """By rename, so that nobody reads half of it."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
