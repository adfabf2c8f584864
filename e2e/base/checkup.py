"""What ``maru-e2e doctor`` says, a line for each thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """``state``: "ok", "no" (with a cure), "note". ``needed``: the default grid can't run without it."""

    state: str
    what: str
    says: str
    cure: str = ""
    needed: bool = False
