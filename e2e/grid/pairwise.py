"""A small grid in which every two values of different axes meet at least once, wherever they can go together.

Most faults need one or two settings to show (docs/faults.md#classes), so this finds nearly what the full grid finds,
with a fraction of its cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from allpairspy import AllPairs

from e2e.grid.axes import Value
from e2e.grid.constraints import why_invalid

#: axis -> values; the grid is their product. Several products are united.
Product = Mapping[str, tuple[Value, ...]]

#: Axes that bind each other. Their possible combinations are taken as the values of one axis: a generator of pairs that
#: is told of constraints only by a filter runs into dead ends and leaves pairs out.
_BOUND = ("overlap", "load", "release_after_layers")


def pairwise(axes: Product) -> tuple[Product, ...]:
    """One product of single values per cell, always the same for the same ``axes`` in the same order."""
    free = [name for name in axes if name not in _BOUND]
    ways = list(_ways({name: axes[name] for name in _BOUND if name in axes}))
    rows = AllPairs([ways, *(axes[name] for name in free)])
    points = ({**row[0], **dict(zip(free, row[1:], strict=True))} for row in rows)
    return tuple({name: (point[name],) for name in axes if name in point} for point in points)


def _ways(bound: Product) -> Iterator[dict[str, Value]]:
    """Every combination that the constraints allow; release_after_layers has no value without overlap."""
    seen = []
    for values in product(*bound.values()):
        way = dict(zip(bound, values, strict=True))
        if way.get("overlap") != "on":
            way.pop("release_after_layers", None)
        if way not in seen and why_invalid(way) is None:
            seen.append(way)
            yield way
