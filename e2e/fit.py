"""What of a part can't be had, or has no room: refused in one sentence before anything runs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.base.cell import Cell
from e2e.base.connector import Adapter
from e2e.base.errors import SettingsError
from e2e.base.program import Site
from e2e.grid import lengths
from e2e.part import KeyPart
from e2e.settings.settings import Settings
from e2e.stack.model_facts import ModelFacts

#: What an engine takes beside weights and KV, about: a CUDA context, or the imports of vLLM.
ENGINE_BYTES = 1 << 30


def fitted(
    key: str,
    cells: Sequence[Cell],
    *,
    settings: Settings,
    adapter: Adapter,
    model: ModelFacts | None,
    shared: Path,
    most_tokens: int | None = None,
    room: int = 0,
) -> KeyPart:
    """``shared``: where pools lie. ``most_tokens``: of prompt and answer together. ``room``: see ``KeyPart``.
    SettingsError for lengths that can't be had and for what has no room."""
    cell = cells[0]
    block_size, ranks = int(cell.get("block_size", 16)), int(cell.get("tensor_parallel", 1))
    if model and not model.shared_by(ranks):
        raise SettingsError(
            f"tensor_parallel={ranks}: {ranks} ranks can't share this model's {model.heads} heads over "
            f"{model.kv_heads} KV heads; take a number that divides them, or another --model."
        )
    limits = [adapter.abilities.longest_prompt]
    if most_tokens:
        if settings.max_tokens >= most_tokens:
            raise SettingsError(
                f"--max-tokens: {settings.max_tokens} is too many; the model takes {most_tokens} tokens in all."
            )
        limits.append(most_tokens - settings.max_tokens)
    solved = lengths.solve(
        adapter.hit_rule(cell, block_size=block_size),
        None if settings.attach else adapter.step(cell, block_size=block_size),
        block_size, settings.lengths, number=settings.prompts, longest=min((n for n in limits if n), default=None),
    )  # fmt: skip
    if why := next(filter(None, (adapter.refuses(cell, n) for n in solved.lengths)), None):
        raise SettingsError(f"connector {adapter.name}: {why}")
    part = KeyPart(key, tuple(cells), settings, adapter, model, block_size, solved, room)
    special = (site for site in part.program.sites if site.kv_tokens or site.pool or site.step or site.slow_s)
    own = [*special, *(site for site in part.program.sites if not part.program.lent(site))]
    if settings.attach and own:
        raise SettingsError(f"scenario {part.program.scenario} needs engines of its own; run it without --attach.")
    if any(site.pool for site in part.program.sites) and not adapter.abilities.sized_pool:
        raise SettingsError(
            f"scenario {part.program.scenario} needs a pool of a given size, and connector {adapter.name} has none; "
            "take another connector or scenario."
        )
    _check_identities(part)
    _check_requests(part)
    if settings.told and settings.attach and part.program.plain:
        raise SettingsError("--program has an engine without the connector; run it without --attach.")
    _check_texts(part, limits)
    if part.bytes_per_token and not settings.attach:
        check_space(part, shared)
    if settings.side_by_side > 1 and not (part.bytes_per_token or settings.kv_cache_bytes):
        raise SettingsError(
            f"--side-by-side: model {settings.model} does not tell how large its KV is, and an engine that is left to "
            "itself takes all there is; give --kv-cache-size."
        )
    return part


def _check_requests(part: KeyPart) -> None:
    """Only what goes with a request can differ between those of one engine."""
    of_engine = {axis for send in part.program.sends for axis in send.settings} & part.adapter.engine_axes
    if of_engine:
        raise SettingsError(
            f"--program: {', '.join(sorted(of_engine))} is set when an engine of connector {part.adapter.name} starts, "
            "not with a request; give it to a site."
        )


def _check_identities(part: KeyPart) -> None:
    program, settings = part.program, part.settings
    if any(map(program.adapters, program.sites)) and not part.adapter.abilities.lora:
        raise SettingsError(
            f"scenario {program.scenario} asks LoRA adapters, and connector {part.adapter.name} states no lora."
        )
    if any(any(program.identity(send)) for send in program.sends) and (settings.attach or not part.model):
        raise SettingsError(
            f"scenario {program.scenario} makes weights and adapters of a model folder; give --model one, "
            "without --attach."
        )


def _check_texts(part: KeyPart, limits: Sequence[int | None]) -> None:
    """``limits``: of a prompt, in tokens."""
    program, most = part.program, min((n for n in limits if n), default=None)
    if most and part.longest > most:
        of = "--program" if part.settings.told else f"scenario {program.scenario}"
        raise SettingsError(f"{of}: a text has {part.longest} tokens; this engine takes {most} beside an answer.")
    if why := next(filter(None, (part.adapter.refuses(part.cells[0], text.tokens) for text in program.texts)), None):
        raise SettingsError(f"connector {part.adapter.name}: {why}")


def check_space(part: KeyPart, shared: Path) -> None:
    """Refuses early what would end as a missed hit, or as an engine that dies on a full file system."""
    room, needed = part.settings.kv_cache_bytes, max(map(part.tokens, part.program.sites)) * part.bytes_per_token
    if room and room < needed:
        raise SettingsError(
            f"--kv-cache-size is {_mib(room)} and one arm needs {_mib(needed)}; raise it, or ask for shorter --lengths."
        )
    pool = part.adapter.abilities.pool_bytes
    if not pool:
        return
    if any(site.pool for site in part.program.sites):
        return  # too small on purpose
    needed = part.stored * part.bytes_per_token
    if pool < needed:
        raise SettingsError(
            f"the pool is {_mib(pool)} and one cell stores up to {_mib(needed)}; raise --pool-size, or ask for shorter "
            "--lengths."
        )
    free = shutil.disk_usage(shared).free
    pool = max(pool, needed * part.settings.side_by_side)  # several take no more of it than they store
    if free < pool and part.settings.launcher == "process":
        raise SettingsError(
            f"the pool needs {_mib(pool)} and {shared} has {_mib(free)} free; free space there, or set a smaller "
            "--pool-size."
        )


def check_beside(parts: Sequence[KeyPart], *, weights: int, free: int | None) -> None:
    """Do as many engines fit as are to run side by side? In bytes: ``weights`` of the model, ``free`` on the GPU, or on
    this machine, None where nobody tells."""
    at_once = parts[0].settings.side_by_side if parts else 1
    if at_once == 1 or free is None:
        return
    each = weights + ENGINE_BYTES + max(part.kv_bytes for part in parts)
    if free < at_once * each:
        where = "the GPU" if parts[0].settings.device == "cuda" else "this machine"
        raise SettingsError(
            f"--side-by-side: {at_once} engines need about {_mib(at_once * each)} and {where} has {_mib(free)} free; "
            f"{free // each} would fit."
        )


def check_room(part: KeyPart, site: Site, effective: Mapping[str, object]) -> None:
    """The same once an engine is there: it may have given itself another cache than was asked for."""
    blocks, needed = effective.get("num_blocks"), part.tokens(site)
    block = part.block_size_of(site)
    if isinstance(blocks, int) and blocks * block < needed:
        raise SettingsError(
            f"the KV cache holds {blocks * block} tokens and an arm needs {needed}; "
            "raise --kv-cache-size, or ask for shorter --lengths."
        )


def _mib(size: int) -> str:
    return f"{-(-size >> 20)} MiB"
