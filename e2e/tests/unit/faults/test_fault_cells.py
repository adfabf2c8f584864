import re
from dataclasses import replace
from pathlib import Path

from e2e.base.cell import Cell
from e2e.faults.catalogue import FAULTS
from e2e.faults.cells import once, planted, twins, twins_of
from e2e.faults.info import Shape
from e2e.scenarios.table import SCENARIOS

SHAPE = Shape(packed=True, kv_heads=3, layers=30, block_size=16, chunk_tokens=256, served_chunks=4, prompts=2)
CELLS = [
    Cell({"layout": layout, "storage_format": "chunkwise", "overlap": overlap, "placement": placement})
    for layout in ("NHD", "HND")
    for overlap in ("off", "on")
    for placement in ("index", "kernel")
]


def test_every_pair_of_cell_and_fault_is_planted_or_left_out_with_a_reason():
    cells = [replace(cell, settings={**cell.settings, "scenario": name}) for cell in CELLS for name in SCENARIOS]
    cells += [replace(cell, settings={**cell.settings, "tensor_parallel": 2}) for cell in cells[:1]]
    made, left_out = planted(cells, [], replace(SHAPE, kv_heads=6, answer=16), around=False)
    assert len(made) + len(left_out) == len(cells) * len(FAULTS)
    assert len({cell.id for cell in made}) == len(made)
    assert all(why for _, why in left_out)
    assert {cell.settings["fault"] for cell in made} == set(FAULTS)


def test_the_original_defect_on_packed_tensors_strikes_nhd_kernel_overlap_only():
    made, _ = planted(CELLS, ["physical_view_omitted"], SHAPE, around=False)
    assert [cell.id for cell in made] == ["NHD-chunkwise-overlap_on-kernel-fault_physical_view_omitted"]


def test_around_another_connector_only_what_can_be_planted_there():
    made, left_out = planted(CELLS[:1], ["bit_flip", "one_slot_off"], SHAPE, around=True)
    assert [cell.settings["fault"] for cell in made] == ["bit_flip"]
    assert "can't be planted around" in left_out[0][1]


def test_twins_differ_in_nothing_but_their_round():
    assert twins(CELLS, 1) == CELLS
    rounds = twins(CELLS[:1], 3)
    assert [cell.id for cell in rounds] == [f"{CELLS[0].id}-round_{n}" for n in (1, 2, 3)]
    assert {k: v for k, v in rounds[0].settings.items() if k != "round"} == dict(CELLS[0].settings)


def test_a_fault_that_is_named_twice_is_planted_once():
    cells = [Cell({"layout": "HND", "overlap": "off", "placement": "index"})]
    made, _ = planted(cells, ["bit_flip", "zero_layer", "bit_flip"], SHAPE, around=False)
    assert [cell.settings["fault"] for cell in made] == ["bit_flip", "zero_layer"]


def test_once_each_fault_is_planted_in_one_cell_of_each_story_that_is_to_see_it():
    told = [replace(cell, settings={**cell.settings, "scenario": name}) for name in ("arms", "crowd") for cell in CELLS]
    cells = [*CELLS, *told]
    names = ["bit_flip", "overlap_not_waited", "loads_exchanged", "worn_out_at_load_3"]
    made = once(planted(cells, names, SHAPE, around=False)[0])
    assert [cell.id.removeprefix("NHD-chunkwise-") for cell in made] == [
        "overlap_off-index-fault_bit_flip", "overlap_on-index-fault_overlap_not_waited",
        "overlap_off-index-scenario_crowd-fault_loads_exchanged", "overlap_off-index-fault_worn_out_at_load_3",
        "overlap_off-index-scenario_crowd-fault_worn_out_at_load_3",
    ]  # fmt: skip
    twins = [cell.id.removeprefix("NHD-chunkwise-") for cell in twins_of(made, cells)]
    assert twins == ["overlap_off-index", "overlap_on-index", "overlap_off-index-scenario_crowd"]


def test_a_fault_on_one_rank_is_planted_where_there_is_one():
    two = [Cell({**cell.settings, "tensor_parallel": 2}) for cell in CELLS[:1]]
    made, left_out = planted([*CELLS[:1], *two], ["bit_flip_on_rank_1"], replace(SHAPE, kv_heads=4), around=True)
    assert [cell.settings["tensor_parallel"] for cell in made] == [2]
    assert made[0].id.endswith("tensor_parallel_2-fault_bit_flip_on_rank_1")
    assert [why for _, why in left_out] == ["There is no rank 1: tensor_parallel is 1."]


def test_ranks_share_the_heads_that_a_fault_needs():
    made, left_out = planted(
        [Cell({**CELLS[0].settings, "tensor_parallel": ranks}) for ranks in (1, 2, 4)], ["heads_permuted"],
        replace(SHAPE, kv_heads=4), around=False,
    )  # fmt: skip
    assert [cell.settings["tensor_parallel"] for cell in made] == [1, 2]
    assert "one KV head" in left_out[0][1]


def test_a_night_plants_every_fault_of_the_rerun_in_one_of_its_cells():
    script = (Path(__file__).resolve().parents[4] / "scripts" / "nightly").read_text()
    (words,) = re.findall(r"for cell in (.*); do\n *IFS", script)
    axes = ("layout", "storage_format", "overlap", "placement")
    cells = [Cell(dict(zip(axes, word.split(","), strict=True))) for word in words.split()]
    assert all(f"cells[{n}]" in script for n in (0, 1, 2))
    shape = replace(SHAPE, answer=int(re.findall(r"--max-tokens (\d+) --cell", script)[0]))
    made, _ = planted(cells[:3], [], shape, around=False)
    of_rerun = {name for name, fault in FAULTS.items() if not fault.scenarios or "replay" in fault.scenarios}
    assert {cell.settings["fault"] for cell in made} == of_rerun - {n for n in of_rerun if FAULTS[n].kind == "rank"}


def test_none_plants_nothing():
    assert planted(CELLS, ["none"], SHAPE, around=False) == ([], [])
