"""Faults that a failed load alone can show, and one that strikes seldom: harmless as long as nothing fails."""

from __future__ import annotations

import zlib

import pytest
import torch
from test_planted_faults import BLOCK, COLD, COLD_B, WARM, Rig

from e2e.inside import faults
from e2e.inside.config import RequestSettings
from e2e.inside.faults.rare import ONE_IN

FAULTS = ("failure_kept_quiet", "checksum_ignored", "last_block_reported")
CHUNK_BLOCKS = WARM[:2]


@pytest.fixture(params=["chunkwise", "layerwise"])
def rig(tmp_path, request):
    made = []

    def make(fault: str) -> Rig:
        made.append(Rig(tmp_path, "HND", RequestSettings(fault=fault, storage_format=request.param)))
        return made[0]

    yield make
    made[0].worker.close()


def torn(rig: Rig, group: str) -> None:
    """Half of what its first chunk holds never arrived."""
    (extents,) = rig.pool.locate([group])
    for one in extents.values():
        rig.pool.memory.bytes[one.start + one.size // 2 : one.start + one.size] = bytes(one.size - one.size // 2)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fail_is_loaded_right(rig, fault):
    one = rig(fault)
    truth = one.compute("a", COLD, 1)
    assert torch.equal(one.load("a", WARM), truth)
    assert not one.fired
    assert one.worker.invalid_blocks() == set()


def test_without_a_fault_a_torn_object_fails_the_load_and_all_its_blocks(rig):
    one = rig("")
    one.compute("a", COLD, 1)
    torn(one, "a0@0")
    one.load("a", WARM)
    assert one.worker.invalid_blocks() == set(WARM)
    assert one.pool.evidence.counters()["load_failures"] == 1
    (row,) = one.pool.evidence.loads()
    assert (row["failed"], row["kept"], row["places"]) == (True, 0, 0)
    assert one.pool.find(["a0@0", "a1@0"]) == [None, None], "what stands behind it is stored anew with it"


def test_a_failure_that_is_kept_quiet_leaves_what_lay_in_the_blocks(rig):
    one = rig("failure_kept_quiet")
    truth = one.compute("a", COLD, 1)
    torn(one, "a0@0")
    before = one.kv(CHUNK_BLOCKS)
    read = one.load("a", WARM)
    assert one.fired
    assert torch.equal(read[:, :2], before)
    assert torch.equal(read[:, 2:], truth[:, 2:])
    assert one.worker.invalid_blocks() == set()
    assert "load_failures" not in one.pool.evidence.counters()


def test_a_checksum_that_is_ignored_brings_what_is_torn(rig):
    one = rig("checksum_ignored")
    truth = one.compute("a", COLD, 1)
    torn(one, "a0@0")
    read = one.load("a", WARM)
    assert one.fired
    assert not torch.equal(read[:, :2], truth[:, :2])
    assert torch.equal(read[:, 2:], truth[:, 2:])
    assert one.worker.invalid_blocks() == set()


def test_an_object_that_is_gone_has_no_bytes_whose_checksum_could_be_ignored(rig):
    one = rig("checksum_ignored")
    one.compute("a", COLD, 1)
    one.pool.forget(["a0@0"])
    one.load("a", WARM)
    assert not one.fired
    assert one.worker.invalid_blocks() == set(WARM)


def test_of_a_failed_load_the_last_block_alone_is_told(rig):
    one = rig("last_block_reported")
    one.compute("a", COLD, 1)
    torn(one, "a0@0")
    one.load("a", WARM)
    assert one.fired
    assert one.worker.invalid_blocks() == {WARM[-1]}


def test_one_chunk_in_a_hundred_is_struck_and_no_other(rig):
    struck = next(name for name in map(str, range(10_000)) if not zlib.crc32(f"{name}0".encode()) % ONE_IN)
    spared = next(
        name for name in map(str, range(10_000)) if all(zlib.crc32(f"{name}{i}".encode()) % ONE_IN for i in range(2))
    )
    one = rig("rare_bit_flip")
    right = one.compute(spared, COLD_B, 2)
    assert torch.equal(one.load(spared, WARM), right)
    assert not one.fired
    truth = one.compute(struck, COLD, 1)
    wrong = (one.load(struck, WARM) != truth).nonzero()
    assert one.fired
    assert len(wrong) == 1
    assert wrong[0][1] < 2 * BLOCK, "in its first chunk"


def test_seldom_is_about_one_in_a_hundred():
    fault, times = faults.get("rare_bit_flip"), []
    scene = faults.Scene(2, 4, 8, lambda: times.append(1))
    for number in range(5000):
        fault.found(f"key {number}", torch.zeros(2, 2, 1, 1, 1), scene)
    assert 5000 / ONE_IN / 2 < len(times) < 5000 / ONE_IN * 2
