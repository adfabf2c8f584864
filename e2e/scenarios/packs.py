"""Packs: several stories under one name, each on so many of a grid's cells. And what a run leaves untold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from e2e.base.spelling import count
from e2e.scenarios.table import SCENARIOS

#: Told with another story.
PART_OF = {"arms": "replay"}
WHOLE = tuple(name for name in SCENARIOS if name not in PART_OF)


@dataclass(frozen=True)
class Pack:
    """``says``: for whom it is. ``cells``: story -> cells of the grid that it is told of, spread over it; None: all."""

    name: str
    says: str
    cells: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def stories(self) -> tuple[str, ...]:
        return tuple(name for name in self.cells if name in SCENARIOS)

    @property
    def leaves_out(self) -> str:
        """As one sentence; empty for one that leaves out nothing."""
        thin = [f"{name} ({count(most, 'cell')})" for name, most in self.cells.items() if most and name in SCENARIOS]
        parts = [f"tells fewer cells of {', '.join(thin)}"] if thin else []
        lost = untold(self.stories)
        parts += [f"leaves out {', '.join(lost)}"] if lost else []
        return f"Pack {self.name} {' and '.join(parts)}." if parts else ""


_QUICK = ("partial", "turns", "identity", "zero_delay")
#: What takes as long as it is given.
_LONG = ("soak",)

PACKS: Mapping[str, Pack] = {
    pack.name: pack
    for pack in (
        Pack("quick", "for a change, within 4 minutes on two cores", {"replay": 4, **dict.fromkeys(_QUICK, 1)}),
        Pack(
            "nightly", "for a night, within an hour on two cores",
            {name: None if name == "replay" else 2 for name in WHOLE if name not in _LONG},
        ),
        Pack("all", "every story on every cell", dict.fromkeys(WHOLE)),
    )
}  # fmt: skip


def stories(names: Iterable[str]) -> dict[str, int | None]:
    """Of scenarios and packs: story -> cells that it is told of, None: all. One that is named itself is told of all."""
    found: dict[str, int | None] = {}
    for name in names:
        cells = {each: PACKS[name].cells[each] for each in PACKS[name].stories} if name in PACKS else {name: None}
        for story, most in cells.items():
            before = found.get(story, 0)
            found[story] = None if None in (most, before) else max(most, before)
    return found


def untold(told: Iterable[str]) -> tuple[str, ...]:
    """Scenarios that these are not, and are no part of."""
    known = {*told}
    return tuple(name for name in WHOLE if name not in known)


def provokes(name: str) -> str:
    """A scenario's own words; empty for one that is not in the table any more."""
    return " ".join((SCENARIOS[name].__doc__ or "").partition("\n\n")[0].split()) if name in SCENARIOS else ""
