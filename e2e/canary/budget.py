"""What a canary may spend, and when it keeps away. Pure: time comes in as monotonic seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

#: Over so long the share of served tokens is reckoned, and so long an engine must have served nobody to count as idle.
WINDOW_S, IDLE_S = 600.0, 60.0
#: Pauses after trouble, doubled each time.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 15.0, 600.0


@dataclass
class Bucket:
    """Tokens that flow in evenly. What is saved is bounded by ``holds``, so a quiet night is no licence for a burst."""

    per_s: float
    holds: float
    level: float = 0.0
    at_s: float | None = None

    def has(self, tokens: float, now_s: float) -> bool:
        """Something dearer than all that can be saved waits until it is full, and then is owed."""
        self._flow(now_s)
        return self.level >= min(tokens, self.holds)

    def take(self, tokens: float, now_s: float) -> None:
        self._flow(now_s)
        self.level -= tokens

    def _flow(self, now_s: float) -> None:
        if self.at_s is not None:
            self.level = min(self.holds, self.level + (now_s - self.at_s) * self.per_s)
        self.at_s = now_s


@dataclass
class Share:
    """Our part of the tokens that an engine serves. On an engine that serves nobody else it does not bind, since nobody
    is there who could be harmed; the budget a minute still does."""

    most: float
    #: (seconds, all tokens that the engine counts, ours)
    _seen: deque[tuple[float, float, float]] = field(default_factory=deque)
    _ours: float = 0.0

    def saw(self, total: float, now_s: float) -> None:
        """What the engine counts, prompt and output tokens. Less than before: it was started anew."""
        if self._seen and total < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now_s, total, self._ours))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - WINDOW_S:
            self._seen.popleft()

    def spent(self, tokens: float) -> None:
        self._ours += tokens

    def now(self) -> tuple[float, float]:
        """(ours, others') in the window."""
        if not self._seen:
            return 0.0, 0.0
        _, total, ours = self._seen[0]
        mine = self._ours - ours
        return mine, max(self._seen[-1][1] - total - (self._seen[-1][2] - ours), 0.0)

    def allows(self, tokens: float, now_s: float) -> bool:
        ours, others = self.now()
        return self.idle(now_s) or ours + tokens <= self.most * (ours + others + tokens)

    def idle(self, now_s: float) -> bool:
        """Was it looked at for long enough, and served nobody else? A count that is off by a little, for requests that
        are under way, is none."""
        recent = [each for each in self._seen if each[0] >= now_s - IDLE_S]
        before = [each for each in self._seen if each[0] < now_s - IDLE_S][-1:]
        if not before or not recent:
            return False
        first, last = before[0], recent[-1]
        return last[1] - first[1] <= last[2] - first[2]


@dataclass
class Pauses:
    """How long one target is left alone after trouble. ``jitter``: of 1, such as a random number from 0.5 to 1.5."""

    jitter: Callable[[], float] = lambda: 1.0
    until_s: float = 0.0
    _next_s: float = FIRST_PAUSE_S

    def trouble(self, now_s: float) -> float:
        """Seconds that it is left alone."""
        pause = self._next_s * self.jitter()
        self.until_s = now_s + pause
        self._next_s = min(self._next_s * 2, LONGEST_PAUSE_S)
        return pause

    def well(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def over(self, now_s: float) -> bool:
        return now_s >= self.until_s


@dataclass
class Slow:
    """Is an answer slower than so many times what is usual? Of the last few of one kind."""

    times: float = 4.0
    _last: dict[str, deque[float]] = field(default_factory=dict)

    def is_slow(self, source: str, seconds_a_token: float) -> bool:
        last = self._last.setdefault(source, deque(maxlen=20))
        usual = sorted(last)[len(last) // 2] if len(last) >= 5 else None
        last.append(seconds_a_token)
        return usual is not None and seconds_a_token > self.times * usual
