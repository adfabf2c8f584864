"""Engines compute on every core that they may, and on none that they may not; both engines on equally many."""

from __future__ import annotations

import os

import pytest

from e2e.base.connector import ConnectorConfig
from e2e.stack.cores import usable_cores
from e2e.stack.spec import EngineSpec


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """machine(siblings, files) -> arguments of usable_cores; ``siblings``: per allowed CPU the threads of its core."""

    def machine(siblings, files=None, line="0::/a/b"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(len(siblings))))
        for cpu, threads in enumerate(siblings):
            if threads:
                folder = tmp_path / "cpus" / f"cpu{cpu}" / "topology"
                folder.mkdir(parents=True)
                (folder / "thread_siblings_list").write_text(f"{threads}\n")
        for name, text in (files or {}).items():
            path = tmp_path / "cgroups" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "cgroup").write_text(f"{line}\n")
        return {"cpus": tmp_path / "cpus", "proc": tmp_path / "cgroup", "cgroups": tmp_path / "cgroups"}

    return machine


@pytest.mark.parametrize(
    ("siblings", "cores"),
    [(["0", "1"], 2), (["0"], 1), (["0-1", "0-1", "2-3", "2-3"], 2), (["0,4", "1,5", "2,6", "3,7"], 4), ([""] * 3, 3)],
)
def test_allowed_cpus_count_once_per_core(machine, siblings, cores):
    assert usable_cores(**machine(siblings)) == cores


@pytest.mark.parametrize(
    ("line", "files", "cores"),
    [
        ("0::/a/b", {"a/b/cpu.max": "max 100000"}, 8),
        ("0::/a/b", {"a/b/cpu.max": "300000 100000"}, 3),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("4:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "400000", "cpu/a/cpu.cfs_period_us": "100000"}, 4),
        ("4:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 8),
        ("0::/a/b", {"a/b/cpu.max": "nonsense"}, 8),
    ],
)
def test_a_quota_is_respected(machine, line, files, cores):
    assert usable_cores(**machine([""] * 8, files, line)) == cores


def test_both_engines_get_every_core_and_neither_bind_nor_spin():
    common = {"name": "x", "engine_key": "x", "model": "none/such"}
    baseline = EngineSpec(role="baseline", **common).environment({})
    connector = EngineSpec(role="connector", connector=ConnectorConfig("Some"), **common).environment({})
    assert baseline["OMP_NUM_THREADS"] == connector["OMP_NUM_THREADS"] == str(usable_cores())
    assert baseline["VLLM_CPU_OMP_THREADS_BIND"] == connector["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert baseline["OMP_WAIT_POLICY"] == connector["OMP_WAIT_POLICY"] == "passive"
