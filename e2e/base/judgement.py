"""What the judge hands to the report: verdicts and figures, all derived from a recording. Plain data, JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.base.errors import EXIT_CORRUPT, EXIT_ENGINE, EXIT_INCONCLUSIVE, EXIT_PASS
from e2e.base.verdict import Finding, Reason, Verdict

#: Values of ``CellJudgement.first_generation``; None when the external arm has no answers.
IDENTICAL, SPLIT_NOISE, NOT_REPRODUCED = "identical", "split noise", "not reproduced"


@dataclass(frozen=True)
class Hits:
    """External tokens, summed over the external arms; None where the source says nothing."""

    predicted: int | None = None
    engine: int | None = None
    connector: int | None = None


@dataclass(frozen=True)
class Oracle:
    """``kind``: "aligned" | "split_matched" | "coarse" (what was really compared) or None. ``first_difference``:
    prompt, arm, reference, position, kind, expected and found token ids, logprobs [expected, found]. ``texts``: what
    both read "before" it, and what each reads from there on, "expected" and "found"; None where not recorded."""

    kind: str | None = None
    tokens_equal: bool | None = None
    max_logprob_diff: float | None = None
    first_difference: Mapping[str, object] | None = None
    texts: Mapping[str, str] | None = None


#: Values of ``Ttft.no_speedup``.
NOT_PROVEN = "the cell did not pass"
NO_PLAIN_RUN = "no engine without a connector ran beside it"
NO_RERUN = "its story reruns nothing that was sent cold"
NOT_TIMED = "not timed, since other engines ran beside it"
NOT_WHOLE = "an answer is missing in one of the two runs"


@dataclass(frozen=True)
class LengthTtft:
    """Seconds of the one prompt of ``tokens`` tokens, as the client saw it; None where there is no answer. ``again_s``:
    from the connector once more. ``speedup``, ``store_cost``: as of a cell."""

    tokens: int
    baseline_cold_s: float | None
    cold_s: float | None
    local_s: float | None
    external_s: float | None
    again_s: float | None
    speedup: float | None
    store_cost: float | None


@dataclass(frozen=True)
class Ttft:
    """Seconds, summed over the prompts of one arm; None when an arm is not whole. ``baseline_cold_s``: on an engine
    without a connector, ``cold_s`` on one with it. See base/speed.py for ``speedup``, which is only there for a cell
    that passed (for any other cell it is what would have been claimed), and ``store_cost``. ``no_speedup``: why there
    is none, or why nothing was timed."""

    baseline_cold_s: float | None = None
    cold_s: float | None = None
    local_s: float | None = None
    external_s: float | None = None
    server_cold_s: float | None = None
    server_external_s: float | None = None
    speedup: float | None = None
    claimed_speedup: float | None = None
    no_speedup: str | None = None
    store_cost: float | None = None
    by_length: tuple[LengthTtft, ...] = ()


@dataclass(frozen=True)
class CellJudgement:
    """``replays``: answers of the external arms that were there to compare. ``counters``: does the connector count hits
    of its own?"""

    id: str
    attempt: int
    engine_key: str
    adapter: str
    settings: Mapping[str, object]
    effective: Mapping[str, object]
    verdict: Verdict
    reason: Reason | None
    findings: tuple[Finding, ...]
    first_generation: str | None = None
    hits: Hits = field(default_factory=Hits)
    oracle: Oracle = field(default_factory=Oracle)
    ttft: Ttft = field(default_factory=Ttft)
    blind: tuple[Mapping[str, object], ...] = ()
    fault: str | None = None
    replays: int = 0
    counters: bool = True


@dataclass(frozen=True)
class Judgement:
    cells: tuple[CellJudgement, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all cells; no cell at all is no evidence."""
        return max((cell.verdict for cell in self.cells), key=lambda v: v.weight, default=Verdict.INCONCLUSIVE)

    @property
    def exit_code(self) -> int:
        return {
            Verdict.PASS: EXIT_PASS,
            Verdict.CORRUPT: EXIT_CORRUPT,
            Verdict.ERROR: EXIT_ENGINE,
            Verdict.INCONCLUSIVE: EXIT_INCONCLUSIVE,
        }[self.verdict]
