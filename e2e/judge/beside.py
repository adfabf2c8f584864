"""What stands beside each Send of a program, and before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from e2e.base.program import Break, Mend, Program, Send, Start, Step, Stop, Together, Where


@dataclass(frozen=True)
class Beside:
    """``alone``: one request at a time, and no other Send beside it on its engine. ``fresh``: nothing was served to its
    site by the connector before it, nor by it. ``forgiven``: something is broken on purpose, so its requests may fail.
    ``cut``: its own engine is, so nothing can be counted."""

    alone: bool
    fresh: bool
    forgiven: bool
    cut: bool


def beside(program: Program) -> Mapping[Where, Beside]:
    found: dict[Where, Beside] = {}
    loaded: set[str] = set()
    broken: set[tuple[str, str, str]] = set()
    for step in program.steps:
        steps: tuple[Step, ...] = step.steps if isinstance(step, Together) else (step,)
        sends = [each for each in steps if isinstance(each, Send)]
        ended = {each.site for each in steps if isinstance(each, Stop)}
        now = broken | {(each.what, each.how, each.target) for each in steps if isinstance(each, Break)}
        down = ended | {target for what, _, target in now if what == "engine"}
        loaded |= {send.site for send in sends if any(hit.external.most for hit in program.hits(send))}
        for send in sends:
            crowd = sum(other.site == send.site for other in sends)
            forgiven = (len(sends) < len(steps) and bool(now or ended)) or bool(broken)
            found[send.where] = Beside(
                send.at_once == 1 and crowd == 1, send.site not in loaded, forgiven, send.site in down
            )
        broken = now - {(each.what, each.how, each.target) for each in steps if isinstance(each, Mend)}
        broken -= {words for words in broken for each in steps if isinstance(each, Start) and words[2] == each.site}
    return found
