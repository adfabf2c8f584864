"""The answer to "is the change worth it?": one sentence per branch, a table behind it, and the figures as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from e2e.base.event import Event
from e2e.base.gain import FASTER, NOTHING, UNSEEN, WITHIN, Answer, Change, GainJudgement, Launches, Overlap
from e2e.base.judgement import Judgement
from e2e.base.speed import by_length
from e2e.base.verdict import Verdict
from e2e.connectors.table import DEFAULT, load
from e2e.report import plots, terminal, timeline
from e2e.report.document import Block, Code, Document, Heading, Items, Page, PageBlock, Paragraph, Plot, Table
from e2e.report.facts import facts
from e2e.report.files import write as write_forms
from e2e.report.forms import Report
from e2e.report.rows import no_speedup, seconds, share, times
from e2e.report.sentences import headline, verdict_text

SCHEMA = "maru-e2e/gain/3"
#: What the rig's own connector is the double of.
_REAL = load(DEFAULT).abilities.double_of
DOUBLE = (
    f"Measured is the {DEFAULT} double, which has {_REAL}'s shape and keys, and not {_REAL}: its pool is shared "
    f"memory, so these figures say what the change does here, not what it does in {_REAL}."
)
ONE_DOUBLE = (
    f"One of the two is the {DEFAULT} double of {_REAL}, whose pool is shared memory: what is between it and the other "
    f"says nothing about a change in {_REAL}."
)


def write(found: GainJudgement, events: Sequence[Event], folder: Path) -> None:
    """gain.* in ``folder``, and on the terminal. UsageError when it can't be written."""
    shown = document(found, events)
    report = Report(
        lambda: shown, page=lambda: _page(shown, found), data=lambda: as_json(found, events),
        rows=lambda: [{**asdict(answer), "sentence": sentence(answer)} for answer in found.answers],
    )  # fmt: skip
    write_forms(report, folder, "gain", cure="make room for it in the folder of the comparison")
    terminal.show(shown, on=terminal.console(sys.stdout))


def _page(shown: Document, found: GainJudgement) -> Page:
    """The plot stands in front of the first table, timelines at the end."""
    at = next(number for number, block in enumerate(shown) if isinstance(block, Table))
    return [*shown[:at], *_plot(found.answers), *shown[at:], *timeline.pictures(found.timelines, found.plan["names"])]


def _plot(answers: Sequence[Answer]) -> Iterator[PageBlock]:
    told = [answer for answer in answers if answer.client is not None]
    if not told:
        return
    if svg := plots.changes([(_named(answer), answer) for answer in told], rows=len(told)):
        says = "Change of the client's TTFT with its interval; grey is a again against a, the noise."
        yield Plot(svg, f"{says} Blue is told to be faster, orange slower.")
    else:
        yield Paragraph(plots.MISSING)


def _named(answer: Answer) -> str:
    return f"{answer.branch}, {answer.concurrency} at once, {answer.length or 'all'} tokens"


def as_json(found: GainJudgement, events: Iterable[Event]) -> dict[str, object]:
    cells = [{"id": cell.id, "verdict": cell.verdict.value, "ttft": asdict(cell.ttft)} for cell in found.cells.cells]
    return {
        "schema": SCHEMA, "plan": dict(found.plan), "measured_on": _measured_on(events), "cells": cells,
        "copy_speed": found.copy_speed,
        "answers": [{**asdict(answer), "sentence": sentence(answer)} for answer in found.answers],
        "ttft": [asdict(each) for each in by_length(found.cells)],
        "launches": [asdict(each) for each in found.launches],
        "overlaps": [asdict(each) for each in found.overlaps],
        "timelines": [timeline.as_json(each) for each in found.timelines], "exit_code": found.exit_code,
    }  # fmt: skip


def sentence(answer: Answer) -> str:
    """One per branch and number of requests at once."""
    at = f"at {answer.concurrency} at once" + (f", {answer.length} tokens" if answer.length else "")
    if answer.answer == NOTHING:
        return f"no figure {at}: {answer.why}"
    figure = f"{_percent(answer.client.median)} ({_range(answer.client)}) {at}"
    beside = f"({figure}; noise {_range(answer.noise)})"
    if answer.answer == WITHIN:
        return f"within the noise, where {_saving(answer.sought)} would have been seen: do not make the change {beside}"
    if answer.answer == UNSEEN:
        return f"can't be seen here: {_why_unseen(answer)} {beside}"
    slower = "" if answer.answer == FASTER else ": slower, do not make the change"
    return f"beyond the noise: {figure}{slower}"


def _why_unseen(answer: Answer) -> str:
    """What was sought, and what was the least that could be told."""
    least = f"this run tells {_saving(answer.smallest)} and more from noise"
    part = answer.share
    if part is None or part.share > answer.sought:
        return f"{least}, and {_saving(answer.sought)} was asked for"
    text = f"{least}, and {part.what.partition(',')[0]} takes {_saving(part.share)} of TTFT"
    derived = part.at_copy_speed
    return text if derived is None else f"{text} (derived: {_saving(derived)} at the machine's own copy speed)"


def document(found: GainJudgement, events: Sequence[Event]) -> Document:
    plan, names = found.plan, found.plan["names"]
    what = f"{plan['axis']}: " if plan["axis"] else ""
    blocks: list[Block] = [Heading(f"{_unended(events)}Gain: {what}{names['b']} against {names['a']}", level=1)]
    blocks.append(Paragraph(f"{_measured_on(events)}."))
    blocks += [Paragraph(said) for said in _double(plan["double"], events)]
    if plan["device"] == "cpu":
        blocks.append(Paragraph("It ran on a CPU: nothing here says anything about a GPU."))
    whole = [answer for answer in found.answers if answer.length is None]
    blocks.append(Items([f"{answer.branch}: {sentence(answer)}" for answer in whole]))
    blocks += [_table(found.answers), Paragraph(_what_tells(plan)), *_shares(found)]
    blocks += [*_worth(found.cells), *_launches(found.launches, names)]
    blocks += timeline.table(found.timelines, names)
    if found.overlaps:
        blocks.append(Paragraph("Timed loads that were meant to overlap the forward:"))
        blocks.append(Items([_overlap(each) for each in found.overlaps]))
    if left := facts(events).untold:
        blocks.append(Paragraph(f"Not tried: {', '.join(left)}."))
    failed = [cell for cell in found.cells.cells if cell.verdict is not Verdict.PASS]
    if failed:
        blocks.append(Paragraph("Not proven:"))
        blocks.append(Items([f"{cell.id} is {verdict_text(cell)}. {headline(cell)}" for cell in failed]))
    return blocks


def _unended(events: Sequence[Event]) -> str:
    return "" if facts(events).ended else "did not end: "


def _overlap(each: Overlap) -> str:
    return (
        f"{each.cell}: {each.pending} of {each.loads} had layers missing when the forward began, "
        f"{each.waited} made it wait"
    )


def _what_tells(plan: Mapping[str, object]) -> str:
    looks = int(plan.get("looks", 1))
    often = f", though it is looked at up to {looks} times" if looks > 1 else ""
    matters = _saving(float(plan.get("effect", 0.05)))
    return (
        "In brackets are intervals of the medians: where a change does nothing, at most one answer in twenty finds an "
        f"effect{often}. Tells from: the smallest saving that four of five such runs find beyond the noise. What "
        f"matters is {matters} of TTFT, or all that the changed part takes, where that is less."
    )


def _shares(found: GainJudgement) -> Iterator[Block]:
    """What the changed part takes at all, of single requests."""
    whole = [each for each in found.answers if each.length is None and each.concurrency == 1 and each.client]
    told = []
    for each in whole:
        if (part := each.share) is None:
            told.append(f"{each.branch}: unknown")
            continue
        derived = part.at_copy_speed
        text = f"{each.branch}: {_ms(part.seconds)} ms, {_saving(part.share)} of TTFT ({part.what})"
        told.append(text if derived is None else f"{text}; derived: {_saving(derived)} at the machine's own copy speed")
    if told:
        yield Paragraph("What the changed part takes of a single request, which is the most that changing it can save:")
        yield Items(told)
    if found.copy_speed is not None:
        yield Paragraph(f"The machine's own copy speed, measured in the engine: {found.copy_speed / 1e9:.1f} GB/s.")


def _worth(cells: Judgement) -> Iterator[Block]:
    yield Paragraph("Against an engine without a connector, as the cells were proven:")
    headings = ("cell", "TTFT baseline", "cold", "external", "speed-up", "first slower by")
    rows = [
        (Code(cell.id), seconds(t.baseline_cold_s), seconds(t.cold_s), seconds(t.external_s), times(t.speedup),
         share(t.store_cost))
        for cell in cells.cells for t in [cell.ttft]
    ]  # fmt: skip
    yield Table(headings, rows, optional=("TTFT baseline", "cold", "external"))
    if why := no_speedup(cells.cells):
        yield Paragraph(why)


def _table(answers: Iterable[Answer]) -> Table:
    headings = (
        "branch", "at once", "tokens", "a, ms", "b, ms", "client TTFT", "a again", "tells from", "server TTFT", "pairs",
        "left out",
    )  # fmt: skip
    rows = [
        (
            each.branch, str(each.concurrency), str(each.length or "all"), _ms(each.a_s), _ms(each.b_s),
            _both(each.client), _both(each.noise), _saving(each.smallest), _both(each.server), str(each.client.pairs),
            str(each.left_out),
        )
        for each in answers if each.client is not None
    ]  # fmt: skip
    return Table(headings, rows, optional=("server TTFT", "left out", "pairs", "a, ms", "b, ms", "a again"))


def _launches(launches: Sequence[Launches], names: Mapping[str, str]) -> list[Block]:
    if not launches:
        return [Paragraph("Launches were not counted.")]
    unit = "launches" if launches[0].device == "cuda" else "ATen operations (nothing is launched on a CPU)"
    headings = ("branch", "side", "tokens", "all", "in placement", "GPU time of placement, us")
    rows = [
        (each.branch, names[each.side], str(each.length), _whole(each.total), _whole(each.placement),
         _whole(each.device_us))
        for each in launches
    ]  # fmt: skip
    return [Paragraph(f"Counted per request by the profiler, in {unit}:"), Table(headings, rows, left=2)]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _double(planned: bool, events: Iterable[Event]) -> list[str]:
    """What is to be said where the embedded connector was measured, under whatever name it was given."""
    loaded = {event["effective"].get("connector") for event in events if event.kind == "engine.config"} - {None}
    others = {name for name in loaded if not str(name).startswith("e2e.inside.")}
    if not planned and loaded == others:
        return []
    return [ONE_DOUBLE if others else DOUBLE]


def _measured_on(events: Iterable[Event]) -> str:
    """GPU or processor, vLLM and torch, as the worker told them."""
    effective = next((event["effective"] for event in events if event.kind == "engine.config"), {})
    versions = effective.get("versions", {})
    machine = next((event["machine"] for event in events if event.kind == "run.begin"), {})
    where = effective.get("gpu") or f"CPU ({machine.get('threads', '?')} threads)"
    return f"{where}, vLLM {versions.get('vllm', '?')}, torch {versions.get('torch', '?')}"


def _saving(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.1f} %"


def _percent(value: float) -> str:
    return f"{value * 100:+.1f} %"


def _range(change: Change) -> str:
    return f"{change.low * 100:+.1f}..{change.high * 100:+.1f}"


def _both(change: Change | None) -> str:
    return "-" if change is None else f"{_percent(change.median)} ({_range(change)})"
