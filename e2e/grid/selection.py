"""What the user asked for: a grid (products of axis values) narrowed or changed by --cell alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from e2e.base.errors import SettingsError
from e2e.base.spelling import meant
from e2e.grid.axes import Value, axis
from e2e.grid.pairwise import Product, pairwise

_BASE: Product = {
    "layout": ("NHD", "HND"),
    "storage_format": ("chunkwise", "layerwise"),
    "overlap": ("off", "on"),
    "placement": ("index", "kernel"),
}
GRIDS: Mapping[str, tuple[Product, ...]] = {
    "default": (_BASE,),
    "full": (
        {**_BASE, "overlap": ("off",), "load": ("sync", "async"), "chunk_tokens": (128, 256)},
        {**_BASE, "overlap": ("on",), "release_after_layers": (1, 4), "chunk_tokens": (128, 256)},
    ),
    "pairwise": pairwise(
        {**_BASE, "load": ("sync", "async"), "release_after_layers": (1, 4), "chunk_tokens": (128, 256)}
    ),
}


@dataclass(frozen=True)
class Selection:
    """``grid``: united products. ``cells``: alternatives of --cell, each axis -> value; none means the whole grid."""

    grid: tuple[Product, ...] = GRIDS["default"]
    cells: tuple[Mapping[str, Value], ...] = ()

    def points(self) -> Iterator[tuple[dict[str, Value], frozenset[str]]]:
        """Points in grid order with the axes that a --cell named; not yet checked, may repeat.

        A named value that the grid has picks it; one that the grid lacks replaces the grid's values on that axis.
        """
        for chosen in self.cells or ({},):
            for values in self._narrowed(chosen):
                for point in product(*values.values()):
                    yield dict(zip(values, point, strict=True)), frozenset(chosen)

    def along(self, axes: Mapping[str, Sequence[str]]) -> Selection:
        """With axes that the grid does not name, all their values; ``axes``: name -> words of the values. Raises
        SettingsError for what is no axis or no value of it."""
        more = {name: tuple(axis(name).parse(word) for word in words) for name, words in axes.items()}
        return Selection(tuple({**more, **values} for values in self.grid), self.cells)

    def _narrowed(self, chosen: Mapping[str, Value]) -> Iterator[Product]:
        known = {name: {v for p in self.grid for v in p.get(name, ())} for name in chosen}
        for values in self.grid:
            if all(values.get(name) is None or v in values[name] or v not in known[name] for name, v in chosen.items()):
                yield {**values, **{name: (value,) for name, value in chosen.items()}}


def parse_grid(table: Mapping[str, object], *, source: str) -> tuple[Product, ...]:
    """The content of a grid file: one table ``[grid]``, axis = list of values (or one value).

    ``source`` is named in the SettingsError.
    """
    for name in sorted(set(table) - {"grid"}):
        close = meant(name, ("grid",))
        cure = f"did you mean {close}?" if close else "put axes into the table [grid]."
        raise SettingsError(f"{source}: {name} is unknown; {cure}")
    grid = table.get("grid")
    if not isinstance(grid, Mapping) or not grid:
        raise SettingsError(f"{source}: a grid file holds one table [grid] of axis = [values]; it has none.")
    values: dict[str, tuple[Value, ...]] = {}
    for name, raw in grid.items():
        raws = raw if isinstance(raw, Sequence) and not isinstance(raw, str) else [raw]
        try:
            parsed = tuple(dict.fromkeys(axis(name).parse(item) for item in raws))
        except SettingsError as error:
            raise SettingsError(f"{source}: {error}") from None
        if not parsed:
            raise SettingsError(f"{source}: axis {name} has no value; give at least one or leave it out.")
        values[name] = parsed
    return (values,)


def parse_cell(text: str) -> dict[str, Value]:
    """``layout=HND,overlap=on`` -> axis -> value. Raises SettingsError for a bad word, axis or value."""
    chosen: dict[str, Value] = {}
    for word in text.split(","):
        name, equals, raw = (part.strip() for part in word.partition("="))
        if not equals or not name or not raw:
            raise SettingsError(f"{word.strip()!r} is no axis=value; write layout=HND,overlap=on.")
        if name in chosen:
            raise SettingsError(f"{text!r} names {name} twice; give --cell twice for alternatives.")
        chosen[name] = axis(name).parse(raw)
    return chosen
