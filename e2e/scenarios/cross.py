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
        asked = [(axis, value) for axis, value in differ.items() if axis in cell.by_request]
        at_most = Hit(Span(0, 0), Span(0, hit.external.most))
        return Program(
            (BASELINE, HOME, *others),
            texts,
            (
                *(alone, Start(HOME.name), cold, *forgotten(HOME), again),
                *(step for axis, value in asked for step in otherwise(HOME, at_most, axis, value)),
                Stop(HOME.name),
                *(step for site in others for step in elsewhere(site, at_most)),
            ),
            self.name,
        )


def elsewhere(site: Site, at_most: Hit) -> tuple[Step, ...]:
    return Start(site.name), *otherwise(site, at_most), Stop(site.name)


def otherwise(site: Site, at_most: Hit, axis: str = "", value: Value = "") -> tuple[Step, ...]:
    """What is computed so, under a salt that nobody else has, is what must be served, if it is served at all.
    ``axis``: that a request brings along."""
    of, settings = f"_{axis}" if axis else "", {axis: value} if axis else {}
    own = Send(f"own{of}", site.name, (0,), (Cold(),), salt=axis or site.name, settings=settings)
    claims = Served(True, (at_most,)), Like((own.where,)), Loaded(own.where)
    return own, *forgotten(site), Send(f"asked{of}", site.name, (0,), claims, settings=settings)
