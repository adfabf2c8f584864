"""What many nights say, as blocks of a page: cells that need a look, their verdicts night by night, times and gain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from e2e.base.spelling import count
from e2e.report import plots
from e2e.report.document import Code, Heading, Judged, Matrix, PageBlock, Paragraph, Plot, Table, Tile
from e2e.report.nightly import Night
from e2e.report.trends import FLAKY, STEADY, WINDOW, Standing, Trend, standings, trends

#: Night -> the address of its page, or an empty text.
Address = Callable[[str], str]


def over_nights(nights: Sequence[Night], address: Address = lambda _: "") -> Iterator[PageBlock]:
    """``nights``: oldest first; nothing of a single one."""
    if len(nights) < 2:
        return
    yield Heading(f"Over {len(nights)} nights")
    yield from _cells(nights, standings(nights), address)
    found = trends(nights)
    if found and not plots.available():
        yield Paragraph(plots.MISSING)
    for trend in found:
        if svg := plots.trend(trend):
            yield Plot(svg, _told(trend))


def _cells(nights: Sequence[Night], found: Sequence[Standing], address: Address) -> Iterator[PageBlock]:
    look = [each for each in found if each.word != STEADY]
    steady = len(found) - len(look)
    yield Paragraph(f"{count(steady, 'cell')} of {len(found)} passed in each of the last nights.")
    if not look:
        return
    headings = ("cell", "stands", "tonight", "so since", "nights not passed")
    rows = [(Code(s.cell), Judged(s.word), Judged(s.verdict), s.since, f"{s.failed} of {s.of}") for s in look]
    yield Table(headings, rows, left=4)
    if any(each.word == FLAKY and "corrupt" in each.seen.values() for each in look):
        yield Paragraph("Answers are compared bit for bit, so what comes and goes is no noise, but likely a race.")
    names = [night.name for night in nights[-WINDOW:]]
    tiles = [
        (each.cell, [Tile(Judged(each.seen[name]), address(name)) if name in each.seen else None for name in names])
        for each in look
    ]
    yield Matrix("cell by night", _short(names), tiles)


def _short(names: Sequence[str]) -> Sequence[str]:
    """Days, where no two nights share one."""
    days = [name.partition("T")[0] for name in names]
    return days if len({*days}) == len(days) else names


def _told(trend: Trend) -> str:
    """For those who can't see the plot, too."""
    now = trend.values[-1]
    said = "none tonight" if now is None else f"tonight {plots.value(now, trend.unit)}"
    if trend.low is not None:
        said += f", noise {plots.value(trend.low, trend.unit)} to {plots.value(trend.high, trend.unit)}"
        said += ": outside the noise" if trend.outside else ""
    return f"{trend.name} over {count(len(trend.nights), 'night')}: {said}."
