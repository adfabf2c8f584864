"""What a GPU did when, of single loaded requests: how much of each load hid behind the forward, and pictures of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from e2e.base.gain import Timeline
from e2e.report import plots
from e2e.report.document import Block, Fold, Heading, PageBlock, Paragraph, Plot, Table
from e2e.report.rows import NONE

#: Pictures on a page.
DRAWN = 12
#: Row of a recording -> what it is called.
ROWS = {
    "to_device": "copy to the GPU", "placement": "placement", "attention": "attention", "forward": "forward",
    "from_device": "copy to the host",
}  # fmt: skip


def as_json(each: Timeline) -> dict[str, object]:
    """Without the intervals, which the recording has."""
    return {name: value for name, value in asdict(each).items() if name != "rows"}


def table(found: Sequence[Timeline], names: Mapping[str, str]) -> Iterator[Block]:
    """``names``: what each side is."""
    if not found:
        return
    yield Paragraph(
        "Of one loaded request each, alone and under the profiler, so slower than the timed ones: load is the time in "
        "which something was copied to the GPU or placed, hidden the part of it during which the forward ran, too, and "
        "all the time until the forward had ended:"
    )
    headings = ("branch", "side", "tokens", "load, ms", "hidden", "not hidden, ms", "all, ms", "hidden by layer")
    rows = [
        (each.branch, names[each.side], str(each.length), _ms(each.load_us), _share(each.share),
         _ms(each.load_us * (1 - (each.share or 0.0))), _ms(each.all_us), _by_layer(each))
        for each in found
    ]  # fmt: skip
    yield Table(headings, rows, left=2, optional=("hidden by layer",))


def pictures(found: Sequence[Timeline], names: Mapping[str, str]) -> Iterator[PageBlock]:
    """Of each branch the longest requests, its sides below each other; and layer by layer, where it was placed so."""
    if not found:
        return
    yield Heading("What the GPU did when")
    if not plots.available():
        yield Paragraph(plots.MISSING)
    branches = list(dict.fromkeys(each.branch for each in found))
    for name in branches[:DRAWN]:
        of = [each for each in found if each.branch == name]
        longest = [each for each in of if each.length == max(one.length for one in of)]
        rows = [
            (f"{names[each.side]}: {says}", tuple(ROWS).index(row), each.rows[row])
            for each in longest for row, says in ROWS.items() if each.rows[row]
        ]  # fmt: skip
        if rows and (svg := plots.timeline(rows, rows=len(rows))):
            told = "; ".join(f"{names[each.side]}: {_told(each)}" for each in longest)
            yield Plot(svg, f"{name}, one request of {longest[0].length} tokens: {told}.")
        if layers := [each for each in longest if each.layers]:
            yield Fold(f"{name}: layer by layer", [_layers(layers, names)], spare=1)
    if (left := len(branches) - DRAWN) > 0:
        yield Paragraph(f"{left} more are not drawn; the recording has them.")


def _layers(found: Sequence[Timeline], names: Mapping[str, str]) -> Table:
    headings = ["layer"]
    for each in found:
        headings += [f"{names[each.side]}: load, us", "hidden"]
    rows = [
        (str(number), *(text for each in found for text in _layer(each, number)))
        for number in range(max(len(each.layers) for each in found))
    ]
    return Table(headings, rows)


def _layer(each: Timeline, number: int) -> tuple[str, str]:
    if number >= len(each.layers):
        return NONE, NONE
    return f"{each.layers[number].load_us:.0f}", _share(each.layers[number].share)


def _by_layer(each: Timeline) -> str:
    if not each.layers:
        return NONE
    shares = [layer.share for layer in each.layers]
    return f"{_share(min(shares))} to {_share(max(shares))} of {len(shares)}"


def _told(each: Timeline) -> str:
    if each.share is None:
        return "nothing was loaded"
    hid = f"{_share(each.share)} of a load of {_ms(each.load_us)} ms hid behind the forward"
    return f"{hid}, which had ended after {_ms(each.all_us)} ms"


def _ms(us: float) -> str:
    return f"{us / 1e3:.2f}"


def _share(share: float | None) -> str:
    return NONE if share is None else f"{share * 100:.1f} %"
