"""The catalogue: scenarios by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from e2e.base.program import Program
from e2e.scenarios.arms import Arms
from e2e.scenarios.crowd import Crowd
from e2e.scenarios.partial import Partial
from e2e.scenarios.preemption import Preemption
from e2e.scenarios.replay import Replay
from e2e.scenarios.sized import Sized


class Scenario(Protocol):
    """One story. Its docstring says in one line what it provokes."""

    name: str

    def program(self, cell: Sized) -> Program:
        """What this cell does; pure."""


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Replay(),
        Arms(),
        Partial(),
        Crowd(),
        Preemption(),
    )
}
