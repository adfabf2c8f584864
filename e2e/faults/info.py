"""What the rig knows of a planted fault: which kind it is, where it can act, how it should be seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from e2e.base.cell import Cell
from e2e.base.fault import parted

#: Kinds of planted faults; see docs/faults.md#kinds.
KINDS: Mapping[str, str] = {
    "addressing": "the right bytes go to the wrong place, or are taken for what they are not",
    "lifetime": "read too late or written too early: blocks, buffers and objects that are somebody else's by then",
    "failed load": "something did not arrive whole, and the load is reported good",
    "identity": "whole, intact KV of something else is served",
    "partial unit": "the beginning or end of a chunk or block is treated otherwise than the rest",
    "generated tokens": "KV of the answer, or of the prompt while it is answered, is spoilt",
    "damage to others": "a load or store changes what is not its own",
    "rank": "one tensor-parallel rank goes wrong, or takes what is another one's",
}


@dataclass(frozen=True)
class Shape:
    """What a fault's effect depends on. ``packed``: K and V in one head-first page (base/kv_form.py), else rank
    5. ``kv_heads``: of the model, shared by its ranks. ``served_chunks``: of the longest load. ``prompts``: per arm.
    ``answer``: output tokens of the longest answer that follows a load."""

    packed: bool
    kv_heads: int
    layers: int
    block_size: int
    chunk_tokens: int
    served_chunks: int
    prompts: int
    answer: int = 4


Applies = Callable[[Cell, Shape], "str | None"]


@dataclass(frozen=True)
class FaultInfo:
    """``patterns``: names of ``judge/classify`` that locate it right. ``kind``: one of ``KINDS``. ``around_any``: can
    be planted around any connector (``rig_plant``). ``scenarios``: those that provoke what it needs; none: any does.
    ``checks``: of the scoreboard, which see it where it does harm and spoils no answer; none: a wrong answer alone
    counts."""

    name: str
    what: str
    stands_for: str
    patterns: tuple[str, ...]
    applies: Applies
    kind: str = field(kw_only=True)
    around_any: bool = False
    scenarios: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()

    def why_not(self, cell: Cell, shape: Shape) -> str | None:
        """Why it can't act in this cell, as one sentence, or None."""
        ranks, rank = int(cell.get("tensor_parallel", 1)), parted(str(cell.get("fault", self.name)))[1]
        if rank is not None and rank >= ranks:
            return f"There is no rank {rank}: tensor_parallel is {ranks}."
        if self.scenarios and cell.get("scenario", "replay") not in self.scenarios:
            return f"Nothing in this story provokes it; tell it with --scenario {' or '.join(self.scenarios)}."
        return self.applies(cell, replace(shape, kv_heads=max(shape.kv_heads // ranks, 1)))
