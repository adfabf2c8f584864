"""What holds of a region wherever it lies: the same contract for each place, and one sentence for what can't be."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from e2e.inside import region as module
from e2e.inside.evidence import Evidence
from e2e.inside.memory import Mapped
from e2e.inside.pool import Pool
from e2e.inside.region import PoolError, region
from e2e.tests.unit.inside.dax import ALIGN, Device
from e2e.tests.unit.inside.pools import filled, index_of

SIZE = 2 * ALIGN
#: A real DAX device, such as /dev/dax0.0, whose first bytes these tests may overwrite.
DEVICE = os.environ.get("CXL_DEVICE", "")
DEVICES = ("double of a DAX device", *((DEVICE,) if DEVICE else ()))
PLACES = ("shared memory", "file", "hugetlbfs", *DEVICES)
PAGES = Path("/proc/sys/vm/nr_hugepages")


@pytest.fixture(params=PLACES)
def path(request, tmp_path, monkeypatch):
    """Where a region of ``SIZE`` can lie."""
    if request.param == "file":
        yield str(tmp_path / "pool")
    elif request.param == "hugetlbfs":
        with_pages = request.getfixturevalue("huge")
        yield str(with_pages / "pool")
    elif request.param == DEVICE:
        region(DEVICE, SIZE)[:] = bytes(SIZE)
        yield DEVICE
    else:
        folder = Path("/dev/shm") / f"region-test-{uuid.uuid4().hex}"
        folder.mkdir()
        if request.param in DEVICES:
            Device(folder / "pool", SIZE, tmp_path).install(monkeypatch, tmp_path)
        yield str(folder / "pool")
        shutil.rmtree(folder)


@pytest.fixture
def huge(tmp_path):
    """A hugetlbfs with room for one region; what this machine had is put back."""
    if os.getuid() or not PAGES.exists():
        pytest.skip("hugetlbfs is mounted by root, on a kernel that has it")
    before = PAGES.read_text()
    folder = tmp_path / "huge"
    folder.mkdir()
    try:
        PAGES.write_text(str(int(before) + SIZE // ALIGN))
        if int(PAGES.read_text()) < int(before) + SIZE // ALIGN:
            pytest.skip("there is no room for huge pages here")
        if subprocess.run(["mount", "-t", "hugetlbfs", "none", folder], check=False, timeout=20).returncode:
            pytest.skip("this machine mounts no hugetlbfs")
        yield folder
        subprocess.run(["umount", folder], check=True, timeout=20)
    finally:
        PAGES.write_text(before)


def _write(path: str) -> None:
    region(path, SIZE)[SIZE - 5 :] = b"hello"


def test_what_one_process_writes_another_reads(path):
    mapped = region(path, SIZE)
    writer = multiprocessing.get_context("fork").Process(target=_write, args=(path,))
    writer.start()
    writer.join(30)
    assert writer.exitcode == 0
    assert mapped[SIZE - 5 :] == b"hello"
    assert mapped[:5] == bytes(5)


def test_it_is_there_for_whoever_comes_later(path):
    region(path, SIZE)[:3] = b"kv!"
    assert region(path, SIZE)[:3] == b"kv!"


def test_a_pool_keeps_objects_in_it(path, tmp_path):
    pool = Pool(Mapped(region(path, SIZE)), SIZE, index=index_of(SIZE), evidence=Evidence(str(tmp_path), "engine"))
    stored = memoryview(bytearray(range(256)) * 16)
    assert pool.put("a", "t", [("a", stored)]) == ""
    (extents,) = pool.locate(["a"])
    out = filled(0, 4096)
    assert pool.read(extents["a"], out)
    assert out == stored


def test_it_may_begin_further_on(path):
    region(path, ALIGN, offset=ALIGN)[:3] = b"kv!"
    assert region(path, SIZE)[ALIGN : ALIGN + 3] == b"kv!"


def test_a_place_between_pages_is_one_sentence(path):
    with pytest.raises(PoolError, match=r"whose beginnings are multiples of \d+ KiB, and embedded_pool_offset is 2560"):
        region(path, ALIGN, offset=2560)


@pytest.mark.parametrize("path", [*DEVICES, "hugetlbfs"], indirect=True)
def test_a_size_between_its_multiples_is_one_sentence(path):
    with pytest.raises(PoolError, match=r"whose sizes are multiples of 2048 KiB, and maru_pool_size is .* round it\.$"):
        region(path, SIZE - 4096)


@pytest.mark.parametrize("path", DEVICES, indirect=True)
@pytest.mark.parametrize("begin", [0, ALIGN])
def test_more_than_a_device_has_is_one_sentence(path, begin):
    most = _size_of(DEVICE) if path == DEVICE else SIZE
    with pytest.raises(
        PoolError, match=rf"is a DAX device of {most >> 20} MiB, and maru_pool_size asks for .*; set a smaller one\.$"
    ):
        region(path, most + ALIGN - begin, offset=begin)


@pytest.mark.parametrize("path", DEVICES, indirect=True)
def test_a_private_mapping_of_a_device_is_one_sentence(path):
    with pytest.raises(PoolError, match=r"is a DAX device, which is mapped shared or not at all; use MAP_SHARED\.$"):
        region(path, SIZE, flags=mmap.MAP_PRIVATE)


@pytest.mark.parametrize("path", DEVICES, indirect=True)
def test_msync_of_a_device_is_one_sentence(path):
    with pytest.raises(PoolError, match=r"is a DAX device, which has no msync: .*; set embedded_pool_flush\.$"):
        region(path, SIZE).flush()


@pytest.mark.parametrize("path", DEVICES, indirect=True)
def test_the_double_has_a_device_s_rules(path):
    """Else it would prove nothing of one."""
    handle = module.os.open(path, os.O_RDWR)
    assert module.os.fstat(handle).st_size == 0
    for length, more in ((0, {}), (4096, {}), (SIZE, {"offset": 4096}), (SIZE, {"flags": mmap.MAP_PRIVATE})):
        with pytest.raises(OSError, match="Invalid argument"):
            module.mmap.mmap(handle, length, **more)
    with pytest.raises(OSError, match="No such device"):
        module.os.posix_fallocate(handle, 0, SIZE)
    with pytest.raises(OSError, match="Invalid argument"):
        module.mmap.mmap(handle, SIZE).flush()
    os.close(handle)


def test_the_end_of_the_double_can_not_be_touched(tmp_path, monkeypatch):
    device = Device(tmp_path / "pool", SIZE, tmp_path)
    device.install(monkeypatch, tmp_path)
    handle = module.os.open(str(device.path), os.O_RDWR)
    with pytest.raises(AssertionError, match="SIGBUS"):
        module.mmap.mmap(handle, SIZE + ALIGN)
    os.close(handle)


@pytest.mark.skipif(not DEVICE, reason="CXL_DEVICE names no DAX device, such as scripts/cxl-host has")
def test_whoever_touches_the_end_of_a_device_is_killed():
    """So a region asks first."""
    size = _size_of(DEVICE)
    script = f"import mmap, os; mmap.mmap(os.open({DEVICE!r}, os.O_RDWR), {size + ALIGN})[{size}]"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert ran.returncode == -signal.SIGBUS


def _size_of(device: str) -> int:
    return int(Path(f"/sys/bus/dax/devices/{Path(device).name}/size").read_text())


def test_another_device_is_none():
    with pytest.raises(PoolError, match=r"The pool /dev/null is a device, but no DAX device; name one, or a file\.$"):
        region("/dev/null", SIZE)


def test_a_device_that_is_not_there_is_one_sentence():
    with pytest.raises(PoolError, match=r"There is no device /dev/dax99\.9; daxctl list shows .*, or name a file\.$"):
        region("/dev/dax99.9", SIZE)
    assert not Path("/dev/dax99.9").exists()


def test_a_node_that_is_none_is_one_sentence(tmp_path):
    with pytest.raises(PoolError, match=r"There is no NUMA node 63 for the pool; give 0"):
        region(str(tmp_path / "pool"), SIZE, numa=63)


def test_pages_lie_on_the_node_that_was_asked_for(tmp_path):
    mapped = region(str(tmp_path / "pool"), SIZE, numa=0)
    mode, nodes = ctypes.c_int(), ctypes.c_ulong()
    start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapped)))
    numa = ctypes.CDLL("libnuma.so.1")
    by_address = 2  # MPOL_F_ADDR
    assert numa.get_mempolicy(ctypes.byref(mode), ctypes.byref(nodes), ctypes.c_ulong(64), start, by_address) == 0
    assert (mode.value, nodes.value) == (2, 1), "bound, to the first node alone"


def test_it_needs_no_torch():
    """A host may share a pool without having one."""
    script = (
        "import sys, e2e.inside.pool, e2e.inside.index.client, e2e.inside.index.tool; print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["False"]
