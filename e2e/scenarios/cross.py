"""What is stored under one setting is asked for under another."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from e2e.base.program import (
    Cold,
    Computed,
    Hit,
    Like,
    Loaded,
    Program,
    Send,
    Served,
    Site,
    Span,
    Start,
    Step,
    Stop,
    Text,
)
from e2e.scenarios.arms import BASELINE, forgotten
from e2e.scenarios.sized import Scenario, Sized

Value = str | int
#: Axis -> what the other engine has instead of the cell's value.
OTHERWISE: Mapping[str, Callable[[Value], Value]] = {
    "layout": lambda value: "NHD" if value == "HND" else "HND",
    "storage_format": lambda value: "chunkwise" if value == "layerwise" else "layerwise",
    "placement": lambda value: "index" if value == "kernel" else "kernel",
    "dtype": lambda value: "float16" if value == "bfloat16" else "bfloat16",
    "block_size": lambda value: int(value) * 2,
    "chunk_tokens": lambda value: max(int(value) // 2, 1),
}
HOME = Site("home")


class Cross(Scenario):
    """What was stored under one setting is asked for under another, of the same engine where a request brings it along:
    served right, or not at all."""

    name = "cross"
    needs = ("survives_restart",)

    def program(self, cell: Sized) -> Program:
        texts = (Text(min(cell.lengths)),)
        alone = Send("cold", BASELINE.name, (0,), (Cold(),))
        cold = Send("cold", HOME.name, (0,), (Cold(), Like((alone.where,)), Computed(alone.where)))
        hit = cell.hit(texts[0].tokens)
        again = Send(
            "again", HOME.name, (0,), (Served(True, (hit,)), Like((alone.where, cold.where)), Loaded(cold.where))
        )
        differ = {axis: told(cell.settings[axis]) for axis, told in OTHERWISE.items() if axis in cell.settings}
        others = [Site(axis, settings={axis: value}) for axis, value in differ.items() if axis not in cell.by_request]
        at_most = Hit(Span(0, 0), Span(0, hit.external.most))
        brought = [otherwise(HOME, at_most, {axis: differ[axis]}) for axis in differ if axis in cell.by_request]
        return Program(
            (BASELINE, HOME, *others),
            texts,
            (
                # what is computed comes before anything is loaded, since a load may spoil an engine
                *(alone, Start(HOME.name), cold, *(own for own, _ in brought), *forgotten(HOME), again),
                *(step for _, asked in brought for step in (*forgotten(HOME), asked)),
                Stop(HOME.name),
                *(step for site in others for step in elsewhere(site, at_most)),
            ),
            self.name,
        )


def elsewhere(site: Site, at_most: Hit) -> tuple[Step, ...]:
    own, asked = otherwise(site, at_most)
    return Start(site.name), own, *forgotten(site), asked, Stop(site.name)


def otherwise(site: Site, at_most: Hit, settings: Mapping[str, Value] | None = None) -> tuple[Send, Send]:
    """What is computed so, under a salt that nobody else has, is what must be served, if it is served at all.
    ``settings``: that the requests bring along."""
    of = "_".join(("", *(settings or ())))
    own = Send(f"own{of}", site.name, (0,), (Cold(),), salt=f"{site.name}{of}", settings=settings or {})
    claims = Served(True, (at_most,)), Like((own.where,)), Loaded(own.where)
    return own, Send(f"asked{of}", site.name, (0,), claims, settings=settings or {})
