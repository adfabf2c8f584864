"""What is decided before anything runs: per engine key the prompt lengths, the engines and what each cell must show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from e2e.base.cell import Cell
from e2e.base.connector import Adapter, HitRule
from e2e.base.program import Program, Send, Site, Start, plainly
from e2e.grid import blind, lengths
from e2e.grid.cells import RERUN
from e2e.scenarios.sized import Sized
from e2e.scenarios.table import SCENARIOS
from e2e.settings.settings import Settings
from e2e.stack.model_facts import ModelFacts
from e2e.stack.spec import EngineSpec

#: Spare room in the KV cache over what one arm needs.
KV_SPARE = 1.3
#: Settings of a cell that can be read back from the worker or the connector.
CHECKABLE = ("layout", "block_size", "storage_format", "placement", "overlap", "load")
#: What --attention asks for -> the name under which the worker reports it.
REPORTED_AS = {"strided": "STRIDED_CPU", "stock": "CPU_ATTN"}


@dataclass(frozen=True)
class KeyPart:
    """What the cells of one engine key have in common. ``lengths``: solved prompt lengths, tokens. ``room``: tokens
    that the KV cache of each of its engines must hold at least, whatever its program sends. ``told``: the program,
    where it is no scenario's."""

    key: str
    cells: tuple[Cell, ...]
    settings: Settings
    adapter: Adapter
    model: ModelFacts | None
    block_size: int
    lengths: lengths.Solution
    room: int = 0
    told: Program | None = None

    @property
    def concurrency(self) -> int:
        return int(self.cells[0].get("concurrency", 1))

    def hit_rule(self, cell: Cell | None = None) -> HitRule:
        return self.adapter.hit_rule(cell or self.cells[0], block_size=self.block_size)

    @cached_property
    def programs(self) -> Mapping[str, Program]:
        """Cell's id -> what it does."""
        if told := self.told or self.settings.told:
            return {cell.id: told for cell in self.cells}
        scenario = SCENARIOS[str(self.cells[0].get("scenario", RERUN))]
        return {cell.id: scenario.program(self.sized(cell)) for cell in self.cells}

    def sized(self, cell: Cell) -> Sized:
        return Sized(
            lengths=self.lengths.lengths, rule=self.hit_rule(cell), block_size=self.block_size, step=self.lengths.step,
            answer=self.settings.max_tokens, at_once=self.concurrency, baseline=not self.settings.attach,
            solved=not self.settings.lengths, digests=self.settings.digests, abilities=self.adapter.abilities,
            takes=lambda tokens: self.adapter.refuses(cell, tokens) is None,
            settings=self._meant(cell), by_request=self.adapter.axes - self.adapter.engine_axes,
            seed=self.settings.seed, for_s=self.settings.for_s,
        )  # fmt: skip

    def _meant(self, cell: Cell) -> Mapping[str, str | int]:
        """Its settings, the model's own dtype where it is left to vLLM: a site of another dtype must have another."""
        auto = cell.get("dtype") == "auto" and self.model and self.model.dtype
        return {**cell.settings, "dtype": self.model.dtype} if auto else cell.settings

    @property
    def program(self) -> Program:
        """Of any cell: they differ in nothing that an engine sees."""
        return self.programs[self.cells[0].id]

    def block_size_of(self, site: Site) -> int:
        return int(site.settings.get("block_size", self.block_size))

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(text.tokens for text in self.program.texts)

    def sends(self, site: Site) -> Sequence[Send]:
        """Those that the site's engine is made for: its own, where it has room of its own, since vLLM starts no engine
        whose cache can't hold its longest request."""
        own = [send for send in self.program.sends if site.kv_tokens and send.site == site.name]
        return own or self.program.sends

    def longest_at(self, site: Site) -> int:
        """Tokens of the longest prompt that it takes for sure."""
        return max(self.program.texts[text].tokens for send in self.sends(site) for text in send.texts)

    def tokens(self, site: Site) -> int:
        """Tokens that the site keeps in its KV cache: whole blocks of every prompt that it is sent under a salt, and of
        its answer, and the null block."""
        block, spans = self.block_size_of(site), self.program.spans(site, self.settings.max_tokens)
        whole = (sum(-(-span // block) for span in spans) + 1) * block
        room = max(site.kv_tokens or whole, self.room)
        return -(-room // block) * block  # what is asked for in bytes is had in whole blocks

    @property
    def stored(self) -> int:
        """Tokens that a cell leaves in its store, at most: every prompt that a connector sees, under each salt."""
        sends = (send for send in self.program.sends if self.program.site(send.site).connector)
        return sum(
            self.program.texts[text].tokens for text, _ in {(t, send.salt) for send in sends for t in send.texts}
        )

    def answer(self, send: Send) -> int:
        """Output tokens."""
        return send.answer or self.settings.max_tokens

    @property
    def bytes_per_token(self) -> int | None:
        wide = self.cells[0].get("dtype") == "float32"
        return self.model.kv_bytes_per_token(4 if wide else 2) if self.model else None

    @property
    def kv_bytes(self) -> int:
        """Of the largest KV cache that one of its engines is given."""
        rooms = (self.tokens(site) * KV_SPARE * (self.bytes_per_token or 0) for site in self.program.sites)
        return self.settings.kv_cache_bytes or int(max(rooms))

    def _on_pool(self, site: Site) -> Adapter:
        if site.pool is None:
            return self.adapter
        return self.adapter.with_pool(site.pool.tokens * (self.bytes_per_token or 0), evicts=site.pool.evicts)

    def blind_spots(self, cell: Cell) -> list[dict[str, str]]:
        spots = self.adapter.blind(cell)
        if self.model:
            heads = max(self.model.kv_heads // int(cell.get("tensor_parallel", 1)), 1)
            shape = blind.Geometry(kv_heads=heads, layers=self.model.layers, block_size=self.block_size)
            spots += blind.guard(shape, self.hit_rule(cell), self.lengths.lengths, digests=self.settings.digests)
        if not self.program.plain:
            why = "there is no engine without the connector to compare with, so a spoilt first answer looks right"
            spots.append({"fault_class": "first answer", "why": why})
        return spots

    def event(self, cell: Cell, *, attempt: int, untold: Sequence[str] = ()) -> dict[str, object]:
        """``plan.cell``, see base/event.py: all that the judge has to know of a cell beforehand. ``untold``: scenarios
        that its run does not play."""
        expect = {axis: cell.settings[axis] for axis in CHECKABLE if axis in cell.settings}
        attention = self.settings.attention
        if attention and not self.settings.attach:
            expect["attention_backend"] = REPORTED_AS.get(attention, attention)
        alone, program = self.concurrency == 1, self.programs[cell.id]
        config = self.adapter.config(cell, pool_dir="", block_size=self.block_size)
        beside = {"timed": False} if self.settings.side_by_side > 1 else {}
        policy = {} if self.settings.attach else {"load_failure_policy": config.load_failure_policy}
        return {
            "cell": cell.id, "attempt": attempt, "settings": dict(cell.settings), "engine_key": self.key,
            "adapter": self.adapter.name, "expect": expect, "oracle": self.lengths.oracle if alone else "split_matched",
            "step": self.lengths.step, "lengths": [text.tokens for text in program.texts],
            "blind": self.blind_spots(cell), "counters": self.adapter.abilities.counters,
            "baseline": not self.settings.attach,
            "digests": self.settings.digests, "fault": cell.get("fault"), "scenario": program.scenario,
            "program": plainly(program), "program_digest": program.digest,
            "lossy": self.adapter.abilities.lossy, "untold": list(untold), **policy, **beside,
        }  # fmt: skip

    @property
    def shared(self) -> tuple[EngineSpec, ...]:
        """Its lent plain engines without a name: keys for which they are equal can share them."""
        named = (self.spec(site, name="", model="", pool_dir="") for site in self.program.shared)
        return tuple(replace(spec, engine_key="") for spec in named)

    @property
    def ranks(self) -> int:
        """Of the widest of its engines."""
        cells = [self.cells[0].at(site.settings) for site in self.program.sites]
        return max(int(cell.get("tensor_parallel", 1)) for cell in cells)

    @property
    def starts(self) -> int:
        """Of engines for it alone: those that it is lent, and those that its cells start."""
        lent = sum(site.connector and self.program.lent(site) for site in self.program.sites)
        own = (isinstance(step, Start) for program in self.programs.values() for step in program.flat)
        return lent + sum(own)

    @property
    def engines(self) -> int:
        """That its cells have at once, at most."""
        return max(len(self.program.sites) - len(self.program.shared), 1)

    def spec(self, site: Site, *, name: str, model: str, pool_dir: str) -> EngineSpec:
        """The engine of a site. Without the connector it differs in nothing else."""
        cell, settings, block_size = self.cells[0].at(site.settings), self.settings, self.block_size_of(site)
        config = self._on_pool(site).config(cell, pool_dir=pool_dir, block_size=block_size)
        if site.connector and site.slow_s:
            config = self.adapter.slowed(config, site.slow_s)
        longest = max(self.program.texts[text].tokens + self.answer(s) for s in self.sends(site) for text in s.texts)
        room = int(self.tokens(site) * (1 if site.kv_tokens else KV_SPARE)) * (self.bytes_per_token or 0)
        return EngineSpec(
            name=name, engine_key=self.key, role=site.name, model=model, device=settings.device,
            layout=cell.get("layout"), block_size=block_size, dtype=cell.get("dtype"),
            kv_cache_dtype=cell.get("kv_cache_dtype"), max_num_batched_tokens=site.step or self.lengths.step,
            max_model_len=-(-longest // block_size) * block_size + block_size,
            kv_cache_memory_bytes=(room if site.kv_tokens else settings.kv_cache_bytes or room) or None,
            tensor_parallel=int(cell.get("tensor_parallel", 1)), beside=settings.side_by_side,
            attention=settings.attention,
            connector=config if site.connector else None,
            adapters={lora(seed): "" for seed in self.program.adapters(site)},
            # what the connector's engine needs shapes the steps, so the plain one must have it too
            extra_args=() if site.connector else config.engine_args,
        )  # fmt: skip


def lora(seed: int) -> str:
    """What an adapter is called."""
    return f"lora-{seed}"
