"""What a run is made of, settled before anything is written, so that what can't be had is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from e2e.base.cell import Cell
from e2e.base.connector import Adapter
from e2e.base.errors import SettingsError, UsageError
from e2e.base.kv_form import packed_kv
from e2e.connectors.installed import installed
from e2e.connectors.table import ADAPTERS, load
from e2e.faults.cells import once, planted, twins, twins_of
from e2e.faults.info import Shape
from e2e.fit import fitted
from e2e.grid.axes import Value, axis
from e2e.grid.cells import RERUN, Grid, Invalid, expand, in_scenarios, shard
from e2e.material import Material, material
from e2e.part import KeyPart
from e2e.play.nemesis import known
from e2e.report.progress import said_if_slow
from e2e.scenarios.table import lacking
from e2e.settings.settings import Settings
from e2e.settings.world import engine_environment, engine_python, shared_memory
from e2e.stack.attach import Attached, look
from e2e.stack.class_check import check_class


def chosen(settings: Settings, share: tuple[int, int] | None = None) -> tuple[Material, Adapter, Grid]:
    """What engines are made of, the connector, and the cells; an engine of somebody else is asked first. ``share``: of
    an executor, of what --shard leaves."""
    starts = settings.launcher == "process" and not settings.attach
    python = engine_python(settings.engine_python) if starts else sys.executable
    adapter = usable(settings.connector, settings, python=python)
    found = attached(settings)
    fixed = {**settings.axis_fixed, **(told_axes(found) if found else {})}
    grid = expand(settings.selection, adapter, defaults=settings.axis_defaults, fixed=fixed).require_cells()
    if settings.told:
        known(settings.told)
    grid = in_scenarios(grid, settings.stories, settings.stories)
    grid = tellable(grid, adapter, elsewhere=_elsewhere(settings)).require_cells()
    if settings.connector not in ADAPTERS and starts:
        config = adapter.config(grid.cells[0], pool_dir="", block_size=16)
        check_class(config, python=python, environ=engine_environment(python))
    made_of = material(settings, python=python, attached=found)
    if settings.self_test:
        packed = settings.device == "cpu" or packed_kv(installed(python).vllm_version)
        first = {cell.get("scenario", RERUN): cell for cell in reversed(grid.cells)}
        parts = [part_of("", [cell], settings, adapter, made_of) for cell in reversed(first.values())]
        grid = with_faults(grid, parts, packed=packed)
    for each in filter(None, (settings.shard, share)):
        grid = shard(grid, adapter, *each)
    return made_of, adapter, grid


def _elsewhere(settings: Settings) -> str:
    """The flag by which engines run where several can't be given one store of ours."""
    return "--attach" if settings.attach else "--launcher docker" if settings.launcher == "docker" else ""


def tellable(grid: Grid, adapter: Adapter, *, elsewhere: str = "") -> Grid:
    """Without those stories that can't be told of this connector, or not of engines that run ``elsewhere``."""
    names = {cell: str(cell.get("scenario", RERUN)) for cell in grid.cells}
    why = {cell: lacking(name, adapter.abilities, elsewhere=elsewhere) for cell, name in names.items()}
    invalid = tuple(Invalid(cell, f"connector {adapter.name}: {reason}") for cell, reason in why.items() if reason)
    return replace(
        grid, cells=tuple(cell for cell, reason in why.items() if not reason), invalid=(*grid.invalid, *invalid)
    )


def usable(name: str, settings: Settings, *, python: str) -> Adapter:
    """The adapter of that name. SettingsError where it can't run here, or not with this attention backend; an engine of
    somebody else runs already."""
    adapter = load(
        name, pool_bytes=settings.pool_bytes, pool_pace=settings.pool_pace, server=settings.connector_server,
        python=python,
    )  # fmt: skip
    about = {"device": settings.device}
    why = adapter.missing(**about) or adapter.unfit(**about, attention=settings.attention)
    if why and not settings.attach:
        raise SettingsError(f"connector {adapter.name}: {why}")
    return adapter


def attached(settings: Settings) -> Attached | None:
    if not settings.attach:
        return None
    key = settings.api_key.get_secret_value() if settings.api_key else None
    with said_if_slow(f"asking {settings.attach} ..."):
        return look(settings.attach, api_key=key)


def told_axes(found: Attached) -> dict[str, Value]:
    """Axes that an engine of somebody else has fixed, as its worker tells."""
    try:
        return {name: axis(name).parse(found.info[name]) for name in ("layout", "block_size") if name in found.info}
    except SettingsError as error:
        raise UsageError(f"the engine at {found.url} tells what the rig can't use: {error}") from error


def part_of(
    key: str, cells: Sequence[Cell], settings: Settings, adapter: Adapter, made_of: Material, *, room: int = 0
) -> KeyPart:  # fmt: skip
    return fitted(
        key, cells, settings=settings, adapter=adapter, model=made_of.facts, most_tokens=made_of.most_tokens,
        shared=shared_memory(), room=room,
    )  # fmt: skip


def parts_of(
    todo: Mapping[str, Sequence[Cell]], grid: Grid, settings: Settings, adapter: Adapter, made_of: Material,
    *, whole: bool = True,
) -> tuple[list[KeyPart], Grid]:  # fmt: skip
    """By engine key. Of a story that only a pack names, what can't be had is left out of the grid, with the reason.
    SettingsError where nothing is left of the ``whole``; a share may have nothing but that to tell."""
    parts, refused = [], {}
    for key, cells in todo.items():
        try:
            parts.append(part_of(key, cells, settings, adapter, made_of))
        except SettingsError as error:
            story = str(cells[0].get("scenario", RERUN))
            if story in (RERUN, *settings.scenarios):
                raise
            refused |= dict.fromkeys(cells, str(error))
    if refused and not parts and whole:
        raise SettingsError(next(iter(refused.values())))
    left = tuple(cell for cell in grid.cells if cell not in refused)
    invalid = tuple(Invalid(cell, why) for cell, why in refused.items())
    return parts, replace(grid, cells=left, invalid=(*grid.invalid, *invalid))


def with_faults(grid: Grid, parts: Iterable[KeyPart], *, packed: bool) -> Grid:
    """The same cells clean, each several times if asked for, and once more with every fault that can act there; or,
    ``--once``, each fault in the first cell of its stories alone, beside its clean twin.
    ``parts``: one for each story of the grid, of any of its cells; ``packed``: see ``Shape``."""
    parts, made, clean = list(parts), [], grid.cells
    settings, left_out = parts[0].settings, []
    for part in parts:
        around = not part.adapter.abilities.plants_faults
        story = part.cells[0].get("scenario", RERUN)
        cells = [cell for cell in grid.cells if cell.get("scenario", RERUN) == story]
        there, why = planted(cells, settings.faults, shape_of(part, packed=packed), around=around)
        made, left_out = [*made, *there], [*left_out, *why]
    if not made and left_out:
        cell, why = left_out[0]
        raise SettingsError(f"no fault is left to plant ({cell.id}: {why.rstrip('.')}); widen --cell or --fault.")
    if settings.once and made:
        made = once(made)
        clean, somewhere = twins_of(made, grid.cells), {cell.get("fault") for cell in made}
        left_out = [(cell, why) for cell, why in left_out if cell.get("fault") not in somewhere]
    invalid = tuple(Invalid(cell, why) for cell, why in left_out)
    return replace(grid, cells=(*twins(clean, settings.rounds), *made), invalid=(*grid.invalid, *invalid))


def shape_of(part: KeyPart, *, packed: bool) -> Shape:
    """What the effect of a fault in these cells depends on."""
    model, rule, lengths_ = part.model, part.hit_rule(), part.lengths.lengths
    answers = (part.answer(send) for send in part.program.sends if send.external)
    return Shape(
        packed=packed, kv_heads=model.kv_heads if model else 8, layers=model.layers if model else 2,
        block_size=part.block_size, chunk_tokens=rule.granularity,
        served_chunks=max(map(rule.external, lengths_)) // rule.granularity, prompts=len(lengths_),
        answer=max(answers, default=0),
    )  # fmt: skip
