"""Faults that strike while an answer is given: at their token, in their block, and nowhere else."""

from __future__ import annotations

import pytest
import torch
from test_planted_faults import BLOCK, BLOCKS, COLD, LAYERS, WARM, Rig

from e2e.base.cell import Cell
from e2e.faults.catalogue import FAULTS, find
from e2e.faults.info import Shape
from e2e.inside.config import RequestSettings
from e2e.inside.scheduler_side import Answering

PROMPT = 3 * BLOCK + 1
#: Name -> its token, and the slots [block, row] that it spoils, row None: all.
STRUCK = {
    "spoilt_at_token_2": (2, WARM[0], None), "spoilt_at_token_3": (3, WARM[0], None),
    "spoilt_at_token_8": (8, WARM[0], None), "spoilt_at_token_12": (12, WARM[0], None),
    "end_spoilt_at_token_2": (2, WARM[2], None), "answer_lost_at_token_3": (3, WARM[3], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCK)
def test_it_strikes_at_its_token_and_only_there(tmp_path, name):
    rig = Rig(tmp_path, "HND", RequestSettings(fault=name))
    rig.compute("a", COLD, 1)
    truth, (at, block, row) = rig.load("a", WARM), STRUCK[name]
    before = rig.kv([*range(BLOCKS)])
    for token in range(2, 16):
        with torch.inference_mode():
            rig.worker.answer([Answering("warm-a", rig.settings, WARM, PROMPT, token)])
        assert rig.fired == (token >= at)
    changed = (rig.kv([*range(BLOCKS)]) != before).any(dim=5).any(dim=4).any(dim=2)  # [L, B, N]
    assert changed.any(dim=2).nonzero().tolist() == [[layer, block] for layer in range(LAYERS)]
    rows = changed[:, block].any(dim=0).nonzero().flatten().tolist()
    assert rows == ([row] if row is not None else [*range(BLOCK)])
    assert torch.equal(truth, rig.kv(WARM)) is False
    rig.worker.close()


def test_every_fault_of_an_answer_is_held():
    assert {*STRUCK} == {n for n, f in FAULTS.items() if f.kind == "generated tokens" and not f.scenarios}


@pytest.mark.parametrize(("answer", "fits"), [(11, False), (12, True)])
def test_an_answer_must_be_long_enough(answer, fits):
    shape = Shape(
        packed=True, kv_heads=3, layers=30, block_size=16, chunk_tokens=256, served_chunks=2, prompts=2, answer=answer
    )
    why = find("spoilt_at_token_12").why_not(Cell({"layout": "HND"}), shape)
    assert (why is None) is fits
    assert fits or "--max-tokens 12" in why
