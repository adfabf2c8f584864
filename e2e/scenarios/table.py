"""The catalogue: scenarios by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from e2e.base.connector import Abilities
from e2e.scenarios.abort import Abort
from e2e.scenarios.arms import Arms
from e2e.scenarios.broken_server import BrokenServer
from e2e.scenarios.cross import Cross
from e2e.scenarios.crowd import Crowd
from e2e.scenarios.identity import Identity
from e2e.scenarios.long_prompt import LongPrompt
from e2e.scenarios.partial import Partial
from e2e.scenarios.preemption import Preemption
from e2e.scenarios.replay import Replay
from e2e.scenarios.restart import Restart
from e2e.scenarios.room import Eviction, Full
from e2e.scenarios.second import Second
from e2e.scenarios.sized import Scenario
from e2e.scenarios.soak import Soak
from e2e.scenarios.struck import Struck
from e2e.scenarios.turns import Turns
from e2e.scenarios.zero_delay import ZeroDelay

STORIES: Sequence[Scenario] = (
    Replay(),
    Arms(),
    Partial(),
    Turns(),
    LongPrompt(),
    ZeroDelay(),
    Abort(),
    Crowd(),
    Preemption(),
    Restart(),
    Second(),
    Cross(),
    Eviction(),
    Full(),
    Identity(),
    BrokenServer(),
    Struck(),
)
SCENARIOS: Mapping[str, Scenario] = {scenario.name: scenario for scenario in (*STORIES, Soak(STORIES))}


#: Stories of several engines on one store need one of these.
_ONE_STORE = ("shared_store", "survives_restart")


def lacking(name: str, abilities: Abilities, *, elsewhere: str = "") -> str | None:
    """Why this story can't be told of a connector, as one sentence, or None. ``elsewhere``: the flag by which engines
    run where several can't be given one store."""
    story = SCENARIOS.get(name)
    if story is None:
        return None
    if elsewhere and {*story.needs} & {*_ONE_STORE}:
        return f"scenario {name} starts several engines on one store; run it without {elsewhere}."
    without = story.lacks(abilities)
    return f"scenario {name} needs a connector that states {' and '.join(without)}." if without else None
