"""What a canary knows of the past, told by ``canary.probe`` alone: the same after a restart as before."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from e2e.base.event import Event
from e2e.canary.lengths import unit
from e2e.canary.stories import Units

#: When an object is asked for again, in seconds after it was stored.
AGES = (120.0, 600.0, 3600.0, 6 * 3600.0, 24 * 3600.0)
#: Objects that wait for each of these ages; pairs of answers whose noise is known, and as many as tell it; secrets.
WAITING, NOISES, ENOUGH, SECRETS = 8, 200, 5, 20
#: Probes of one kind that were seen, and that what is detectable is reckoned from.
RECENT_S = 24 * 3600.0
#: Over so long it is reckoned what was put into a store.
PUT_S = 3600.0


@dataclass(frozen=True)
class Object:
    """What a probe stored: enough to make its text again, and to ask for it. ``due_s``: Unix time of the next time."""

    nonce: str
    salt: str
    tokens: int
    home: str
    stored_s: float
    asked: int = 0

    @property
    def due_s(self) -> float | None:
        return self.stored_s + AGES[self.asked] if self.asked < len(AGES) else None


@dataclass
class Seen:
    """Probes of one story and its sites. ``hits``: those that were served something by the connector; ``loads``: those
    of them that could be compared, ``exact`` of them bit for bit; ``last_s``: Unix time of the last that saw one, 0.0:
    none did."""

    probes: int = 0
    hits: int = 0
    loads: int = 0
    exact: int = 0
    wrong: int = 0
    last_s: float = 0.0
    tried_s: float = 0.0
    rests: set[int] = field(default_factory=set)
    ages: set[float] = field(default_factory=set)


@dataclass
class Memory:
    """``number``: of probes so far. ``by``: (story, sites) -> what was seen. ``reasons``: of those that saw nothing."""

    given: Units
    number: int = 0
    objects: list[Object] = field(default_factory=list)
    by: dict[tuple[str, tuple[str, ...]], Seen] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    secrets: deque[str] = field(default_factory=lambda: deque(maxlen=SECRETS))
    loads_s: deque[float] = field(default_factory=lambda: deque(maxlen=100_000))
    wrong: int = 0
    _puts: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=100_000))
    _noises: dict[str, deque[float]] = field(default_factory=dict)
    _served: deque[int] = field(default_factory=lambda: deque(maxlen=12))

    def took(self, event: Event) -> None:
        data: Mapping = event.data
        self.number += 1
        sites, passed = tuple(data["sites"]), data["verdict"] == "pass"
        self.secrets.append(str(data["told"]))
        seen = self.by.setdefault((str(data["story"]), sites), Seen())
        seen.probes += 1
        seen.tried_s = float(data["wall_s"])
        seen.hits += bool(data["served"])
        if data["saw"] != "nothing":
            self._load(seen, data)
        elif not passed:
            self.reasons[str(data["reason"])] += 1
        noise = data["noise"] if passed else {}
        by_site = noise if isinstance(noise, Mapping) else {} if noise is None else {sites[0]: noise}
        for site, value in by_site.items():
            self._noises.setdefault(site, deque(maxlen=NOISES)).append(float(value))
        if passed and data["served"]:
            self._served.append(int(data["served"]))
        self._object(data, sites)
        self._puts.append((float(data["wall_s"]), int(data.get("put", 0))))

    def _load(self, seen: Seen, data: Mapping) -> None:
        wrong = data["verdict"] == "corrupt"
        seen.loads += 1
        seen.exact += data["saw"] == "exact"
        seen.wrong += wrong
        self.wrong += wrong
        seen.last_s = float(data["wall_s"])
        seen.rests.add(int(data["tokens"]) % self.given.chunk)
        if data.get("age_s") is not None:
            seen.ages.add(max((age for age in AGES if age <= data["age_s"]), default=0.0))
        self.loads_s.append(seen.last_s)

    def _object(self, data: Mapping, sites: tuple[str, ...]) -> None:
        if old := data.get("of"):
            for each in [each for each in self.objects if each.nonce == old]:
                self.passed(each)
        elif data["verdict"] in ("pass", "inconclusive") and data["story"] in ("cross", "local", "reset"):
            stored_s, tokens = float(data["wall_s"]), int(data["stored"])
            self._waits(Object(str(data["nonce"]), str(data["salt"]), tokens, sites[0], stored_s))

    def passed(self, old: Object) -> None:
        """It has been asked for at this age, or nobody can be; it waits for the next one."""
        self.objects.remove(old)
        self._waits(replace(old, asked=old.asked + 1))

    def _waits(self, new: Object) -> None:
        """Of each age a few do: those in front keep their place, or none would ever grow old."""
        beside = sum(each.asked == new.asked for each in self.objects)
        if new.due_s is not None and beside < WAITING:
            self.objects.append(new)

    def units(self) -> Units:
        """As given, but for the chunk where what was served tells it."""
        return replace(self.given, chunk=unit([*self._served], self.given.chunk))

    def noise(self, site: str) -> float | None:
        """The largest that was seen of this target; None as long as too few pairs were."""
        seen = self._noises.get(site, ())
        return max(seen) if len(seen) >= ENOUGH else None

    def due(self, now_s: float) -> Object | None:
        """What is to be asked for again, the longest overdue first."""
        return min((each for each in self.objects if each.due_s <= now_s), key=lambda each: each.due_s, default=None)

    def put(self, now_s: float) -> int:
        """Tokens of KV that probes may have put into stores within an hour."""
        while self._puts and self._puts[0][0] < now_s - PUT_S:
            self._puts.popleft()
        return sum(tokens for _, tokens in self._puts)

    def recent(self, now_s: float) -> tuple[int, float | None]:
        """(loads that were seen in a day, seconds from one to the next)."""
        loads = [each for each in self.loads_s if each >= now_s - RECENT_S]
        if len(loads) < 2:
            return len(loads), None
        return len(loads), (max(now_s, loads[-1]) - loads[0]) / (len(loads) - 1)
