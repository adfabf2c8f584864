"""Events of a canary on engines in use."""

from __future__ import annotations

from typing import Literal

from e2e.base.kinds import kind


@kind("canary.probe")
class CanaryProbe:
    """What became of one probe, so that a canary that starts again goes on. ``cell``: what it was judged by, None where
    nothing was sent. ``sites``: targets in the order in which they were asked. ``tokens``: of the text that was asked
    for, ``stored``: of the one that was stored. ``verdict``: as of a cell, or "unconfirmed" where a second look shook a
    finding. ``saw``: how what came from the connector was compared. ``noise``: by target, the largest difference of
    logprobs between its own answers; in old recordings a number, of the first target. ``served``: external tokens of
    the load, where known. ``wall_s``: Unix time. ``nonce``, ``salt``: to ask again for what it stored; ``told``: the
    secret in it. ``of``: the nonce of an older one that was asked for again, ``age_s``: seconds after it was stored.
    ``spent``: prompt and output tokens by target. ``put``: tokens of KV that it may have put into a store."""

    cell: str | None
    story: str
    sites: list[str]
    tokens: int
    stored: int
    verdict: Literal["pass", "corrupt", "error", "inconclusive", "unconfirmed"]
    reason: str
    saw: Literal["exact", "coarse", "nothing"]
    noise: dict[str, float] | float | None
    served: int | None
    nonce: str
    salt: str
    told: str
    wall_s: float
    spent: dict[str, int]
    of: str | None = None
    age_s: float | None = None
    put: int = 0
