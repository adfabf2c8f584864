"""The figures of one cell as short texts, the same on the console and in report.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict

from e2e.base.judgement import NOT_TIMED, CellJudgement, Judgement
from e2e.base.speed import Figure
from e2e.base.spelling import count
from e2e.base.verdict import Verdict
from e2e.report.facts import RunFacts
from e2e.report.sentences import verdict_text

HEADINGS = (
    "cell", "verdict", "first generation", "hits", "max logprob diff", "TTFT baseline", "cold", "external", "speed-up",
    "first slower by",
)  # fmt: skip
#: What a narrow terminal goes without, the first to go first.
OPTIONAL = ("max logprob diff", "first generation", "cold", "hits", "external", "TTFT baseline")
NONE = "-"


def row(cell: CellJudgement) -> tuple[str, ...]:
    """In the order of ``HEADINGS``."""
    return (
        cell.id, verdict_text(cell), cell.first_generation or NONE, hits(cell),
        _difference(cell.oracle.max_logprob_diff), *waits(asdict(cell.ttft)), times(cell.ttft.speedup),
        share(cell.ttft.store_cost),
    )  # fmt: skip


def untimed(cell: CellJudgement) -> bool:
    return cell.ttft.no_speedup == NOT_TIMED


def waits(figures: Mapping[str, object]) -> tuple[str, ...]:
    """Without a connector, cold and external, of ``Ttft`` as JSON values."""
    if figures["no_speedup"] == NOT_TIMED:
        return ("not timed",) * 3
    return tuple(seconds(figures[name]) for name in ("baseline_cold_s", "cold_s", "external_s"))


def hits(cell: CellJudgement) -> str:
    """``4608 = 4608 = 4608`` (predicted, vLLM, connector); sources that say nothing are left out."""
    known = [h for h in (cell.hits.predicted, cell.hits.engine, cell.hits.connector) if h is not None]
    if not known:
        return NONE
    return str(known[0]) if len(set(known)) == 1 else " / ".join(map(str, known))


def seconds(value: float | None) -> str:
    return _number(value, "{:.2f} s")


def times(value: float | None) -> str:
    return _number(value, "{:.2f}x")


def share(value: float | None) -> str:
    """0.1 is ``+10%``."""
    return _number(value, "{:+.0%}")


def figure(found: Figure | None, form: Callable[[float | None], str]) -> str:
    """``2.00x (1.80x..2.10x)``; without an interval where there are too few values for one."""
    if found is None:
        return NONE
    interval = "" if found.low is None else f" ({form(found.low)}..{form(found.high)})"
    return form(found.median) + interval


def no_speedup(cells: Sequence[CellJudgement]) -> str:
    """Why cells that passed have no speed-up, or empty."""
    return because(cell.ttft.no_speedup for cell in cells if cell.verdict is Verdict.PASS)


def because(whys: Iterable[str | None]) -> str:
    """One sentence of what ``Ttft.no_speedup`` says in cells; empty where all have a speed-up."""
    told = Counter(why for why in whys if why)
    words = [f"{why} ({count(number, 'cell')})" for why, number in told.items()]
    return f"No speed-up: {'; '.join(words)}." if words else ""


def claim(cell: CellJudgement) -> str:
    """``fast but wrong: 3.10x would have been claimed`` for a corrupt cell that looked like a gain, else empty."""
    claimed = cell.ttft.claimed_speedup
    if cell.verdict is not Verdict.CORRUPT or claimed is None or claimed <= 1:
        return ""
    return f"fast but wrong: a speed-up of {claimed:.2f}x would have been claimed"


def title(facts: RunFacts, judgement: Judgement) -> str:
    """The first line of everything: the verdict, and whether the run came to its end at all."""
    text = f"{judgement.verdict.value}: {verdict_line(judgement)}"
    return text if facts.ended else f"did not end: {text}"


def verdict_line(judgement: Judgement) -> str:
    """``16 of 16 pass, first generation identical in 16``, or what there is of each verdict, worst first."""
    total = len(judgement.cells)
    if not total:
        return "the recording has no cell"
    counts = {v: sum(cell.verdict is v for cell in judgement.cells) for v in Verdict}
    worst = sorted((v for v in Verdict if v is not Verdict.PASS and counts[v]), key=lambda v: -v.weight)
    parts = [f"{counts[v]} {v.value}" for v in worst]
    identical = sum(cell.first_generation == "identical" for cell in judgement.cells)
    parts += [f"{counts[Verdict.PASS]} of {total} pass", f"first generation identical in {identical}"]
    return ", ".join(parts)


def _difference(value: float | None) -> str:
    """0.000000 stands for exactly zero: what rounds to it is written out."""
    return _number(value, "{:.1e}" if value and value < 1e-6 else "{:.6f}")


def _number(value: float | None, form: str) -> str:
    return NONE if value is None else form.format(value)
