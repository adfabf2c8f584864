"""Tables of docs/scenarios.md as the code has them.

python e2e/tests/unit/docs/scenario_tables.py     writes them into the page
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from e2e.base.connector import Abilities, HitRule
from e2e.base.program import Happened, Program
from e2e.faults.catalogue import FAULTS
from e2e.grid.cells import RERUN
from e2e.scenarios.packs import PACKS, provokes, untold
from e2e.scenarios.sized import Sized
from e2e.scenarios.table import SCENARIOS

PAGE = Path(__file__).resolve().parents[4] / "docs" / "scenarios.md"
#: A cell of the embedded connector.
CELL = Sized(
    lengths=(513, 1032, 1552), rule=HitRule(256), block_size=16, step=512, answer=8, digests=True,
    abilities=Abilities(pool_bytes=2 << 30, shared_store=True, survives_restart=True, lora=True, next_turn=True),
    settings={"layout": "HND", "storage_format": "layerwise", "overlap": "on", "placement": "kernel", "load": "async"},
    by_request=frozenset({"storage_format", "placement"}),
)  # fmt: skip
_SCENARIOS, _PACKS = "| scenario | provokes | claims | faults that need it |", "| pack | cells | leaves out |"


def claims(program: Program) -> str:
    """Kinds of its claims, and what must have happened at least."""
    if program.scenario == "soak":
        return "those of its stories"
    made = [claim for send in program.sends for claim in send.claims]
    kinds = sorted({type(claim).__name__ for claim in made} - {"Happened"})
    most: dict[str, int] = {}
    for claim in made:
        if isinstance(claim, Happened):
            most[claim.what] = max(claim.least, most.get(claim.what, 0))
    events = (f"{what} >= {least}" for what, least in sorted(most.items()))
    return ", ".join(kinds) + (f"; Happened: {', '.join(events)}" if most else "")


def scenarios() -> Iterator[tuple[str, ...]]:
    for name, scenario in SCENARIOS.items():
        faults = [fault.name for fault in FAULTS.values() if name in fault.scenarios]
        others = f"all but those of other scenarios ({sum(not fault.scenarios for fault in FAULTS.values())})"
        yield (
            f"`{name}`", provokes(name).rstrip("."), claims(scenario.program(CELL)),
            others if name == RERUN else ", ".join(f"`{fault}`" for fault in faults) or "-",
        )  # fmt: skip


def packs() -> Iterator[tuple[str, ...]]:
    for pack in PACKS.values():
        cells = (f"`{name}` {'all' if pack.cells[name] is None else pack.cells[name]}" for name in pack.stories)
        yield f"`{pack.name}`", ", ".join(cells), ", ".join(f"`{name}`" for name in untold(pack.stories)) or "-"


def written(text: str) -> str:
    """The page with both tables as they are now."""
    for head, table in ((_SCENARIOS, scenarios()), (_PACKS, packs())):
        body = "".join(f"| {' | '.join(row)} |\n" for row in table)
        columns = head.count("|") - 1
        text, found = re.subn(
            rf"{re.escape(head)}\n\|[-|]+\|\n(\|.*\n)*", lambda _, new=f"{head}\n{'|---' * columns}|\n{body}": new, text
        )
        if found != 1:
            raise ValueError(f"{PAGE} has no table {head}")
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
