"""Plots as SVG, by matplotlib where it is installed (``maru-e2e[report]``); None where it is not. Equal data give equal
bytes. They stand in a page as pictures, which run nothing."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING

from e2e.base.gain import FASTER, SLOWER
from e2e.report.escape import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from e2e.base.gain import Answer
    from e2e.report.trends import Trend

MISSING = (
    "No plots: matplotlib is not installed; pip install 'maru-e2e[report]', then maru-e2e judge this folder again."
)
#: Told apart by those who see few colours, too (after Okabe and Ito), and on light as on dark paper.
COLOURS = ("#2f81c7", "#d55e00", "#009e73", "#b8679f", "#b87f00", "#56b4e9")
#: Stands for the colour of the words around, until the file is written.
_INK = "#010203"
_STYLE = "<style>svg{color:#1c2128}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"
_SETTINGS = {
    "svg.fonttype": "none", "svg.hashsalt": "maru-e2e", "text.parse_math": False, "font.family": "sans-serif",
    "font.size": 9, "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _INK, "xtick.color": _INK,
    "ytick.color": _INK, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    "grid.color": _INK, "grid.alpha": 0.15, "axes.grid": True, "axes.grid.axis": "y",
}  # fmt: skip
#: Height of a plot and of a row of one, in inches; characters of a name in it.
_HEIGHT, _ROW, _NAME = 2.8, 0.28, 64


def available() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def _drawn(draw: Callable[..., None]) -> Callable[..., str | None]:
    @wraps(draw)
    def drawn(*args: object, rows: int = 0) -> str | None:
        if not available():
            return None
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        with rc_context(_SETTINGS):
            figure = Figure(figsize=(7, max(_HEIGHT, rows * _ROW + 1.2)), layout="constrained")
            figure.patch.set_alpha(0)
            axes = figure.subplots()
            axes.patch.set_alpha(0)
            draw(axes, *args)
            file = io.StringIO()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its own fonts lack a letter; the reader's browser has it
                figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        return _themed(file.getvalue())

    return drawn


def _themed(svg: str) -> str:
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    return re.sub(r"(<svg[^>]*>)", lambda found: found[0] + _STYLE, svg, count=1)


def named(text: object) -> str:
    text = one_line(text)
    return text if len(text) <= _NAME else f"{text[: _NAME // 2 - 2]} .. {text[-_NAME // 2 + 2 :]}"


@_drawn
def by_length(
    axes: Axes, samples: Mapping[str, Sequence[tuple[int, float]]], noise: Mapping[int, tuple[float, float]]
) -> None:  # fmt: skip
    """``samples``: what was timed -> (tokens, seconds). Each one a point, medians as bars. ``noise``: tokens -> seconds
    between which nothing can be told apart."""
    lengths = sorted({tokens for points in samples.values() for tokens, _ in points})
    for place in (place for place, tokens in enumerate(lengths) if tokens in noise):
        axes.fill_between(
            [place - 0.45, place + 0.45], *noise[lengths[place]], color=_INK, alpha=0.12, linewidth=0
        )  # fmt: skip
    share = 0.8 / max(len(samples), 1)
    for number, (name, points) in enumerate(samples.items()):
        colour = COLOURS[number % len(COLOURS)]
        left = (number - (len(samples) - 1) / 2) * share
        for place, tokens in enumerate(lengths):
            seconds = sorted(value for length, value in points if length == tokens)
            spread = [place + left + share * 0.5 * ((i * 7 % 11) / 11 - 0.5) for i in range(len(seconds))]
            axes.plot(spread, seconds, "o", markersize=3, alpha=0.55, color=colour, markeredgewidth=0)
            if seconds:
                middle = seconds[len(seconds) // 2] / 2 + seconds[(len(seconds) - 1) // 2] / 2
                axes.hlines(middle, place + left - share * 0.4, place + left + share * 0.4, colors=colour, linewidth=2)
        axes.plot([], [], "o", color=colour, label=named(name))
    axes.set_xticks(range(len(lengths)), [str(tokens) for tokens in lengths])
    axes.set_yscale("log")
    for formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "125" else "")
    axes.set_xlabel("tokens of the prompt")
    axes.set_ylabel("TTFT, s")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)


@_drawn
def changes(axes: Axes, answers: Sequence[tuple[str, Answer]]) -> None:
    """(name, answer): relative changes of TTFT with their intervals, from above down, coloured by what was told."""
    for row, (_, answer) in enumerate(answers):
        change, noise = answer.client, answer.noise
        if noise is not None:
            axes.plot([noise.low * 100, noise.high * 100], [row, row], linewidth=9, alpha=0.25, color=_INK)
        colour = {FASTER: COLOURS[0], SLOWER: COLOURS[1]}.get(answer.answer, _INK)
        axes.plot([change.low * 100, change.high * 100], [row, row], linewidth=2, color=colour)
        axes.plot([change.median * 100], [row], "o", markersize=5, color=colour)
    axes.axvline(0, linewidth=0.8, color=_INK)
    axes.set_yticks(range(len(answers)), [named(name) for name, _ in answers])
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.set_xlabel("change of TTFT, %")


@_drawn
def placements(axes: Axes, found: Sequence[tuple[str, Mapping[str, Sequence[float]], Sequence[float]]]) -> None:
    """(shape, way -> microseconds, one a layout, those of a plain copy), from above down, smallest to largest."""
    ways = list(dict.fromkeys(way for _, times, _ in found for way in times))
    for row, (_, times, copies) in enumerate(found):
        for copy in copies:
            axes.plot([copy, copy], [row - 0.4, row + 0.4], linewidth=1.5, color=_INK, alpha=0.6)
        for number, way in enumerate(ways):
            at = row + ((number + 0.5) / len(ways) - 0.5) * 0.7
            mine = times.get(way, ())
            axes.plot(mine, [at] * len(mine), "o", markersize=4, color=COLOURS[number % len(COLOURS)])
    for number, way in enumerate(ways):
        axes.plot([], [], "o", color=COLOURS[number % len(COLOURS)], label=named(way))
    axes.plot([], [], "|", color=_INK, label="a plain copy of as many bytes", markersize=12)
    axes.set_yticks(range(len(found)), [named(name) for name, _, _ in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(axis="x")
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("microseconds for all layers of a request")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


@_drawn
def timeline(axes: Axes, found: Sequence[tuple[str, int, Sequence[tuple[float, float]]]]) -> None:
    """(name, number of its colour, [(start, end) in microseconds, ..]): rows from above down. What can't be told apart
    by eye is one bar, and a row is one path, so that thousands of kernels stay small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    whole = max(end for _, _, spans in found for _, end in spans)
    for row, (_, colour, spans) in enumerate(found):
        corners = [
            [(left, row - 0.36), (right, row - 0.36), (right, row + 0.36), (left, row + 0.36), (left, row - 0.36)]
            for left, right in _seen(spans, whole / 800)
        ]
        bars = Path([point for bar in corners for point in bar], [1, 2, 2, 2, 79] * len(corners))
        axes.add_patch(PathPatch(bars, color=COLOURS[colour % len(COLOURS)], linewidth=0))
    axes.set_axisbelow(True)
    axes.set_xlim(0, whole / 1e3)
    axes.set_yticks(range(len(found)), [named(name) for name, _, _ in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.grid(axis="x")
    axes.set_xlabel("ms from the first that ran")


def _seen(spans: Sequence[tuple[float, float]], least: float) -> list[tuple[float, float]]:
    """In milliseconds, none thinner than ``least`` microseconds nor closer than that to the next."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        end = max(end, start + least)
        if found and start - found[-1][1] * 1e3 < least:
            found[-1] = found[-1][0], max(found[-1][1], end / 1e3)
        else:
            found.append((start / 1e3, end / 1e3))
    return found


def value(number: float, unit: str) -> str:
    """As words beside a plot: factors as they are, shares as percents."""
    return f"{number:.2f}{unit}" if unit == "x" else f"{number:.0%} {unit}".strip()


@_drawn
def trend(axes: Axes, found: Trend) -> None:
    """One point a night; the band is the noise of earlier ones."""
    places = [place for place, number in enumerate(found.values) if number is not None]
    if found.low is not None:
        axes.axhspan(found.low, found.high, color=COLOURS[5], alpha=0.2, linewidth=0, label="noise of earlier nights")
    for place, span in enumerate(found.spans):
        if span is not None:
            axes.plot([place, place], span, linewidth=1.5, alpha=0.6, color=COLOURS[0])
    axes.plot(places, [found.values[place] for place in places], "o-", markersize=4, linewidth=1, color=COLOURS[0])
    if found.outside:
        axes.plot(places[-1:], [found.values[-1]], "o", markersize=8, color=COLOURS[1], label="outside the noise")
    every = max(len(found.nights) // 6, 1)
    shown = range(len(found.nights) - 1, -1, -every)
    axes.set_xticks(list(shown), [named(found.nights[place].partition("T")[0]) for place in shown])
    axes.yaxis.set_major_formatter(lambda number, _: value(number, "x" if found.unit == "x" else ""))
    axes.set_title(named(found.name), loc="left", fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
