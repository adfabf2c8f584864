"""The set-up of the engines' environment, and the Python that is named for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from row import Row

XXHASH = {"xxhash": {"origin": "", "folders": []}}


def python(name: str = "python", **differs: object) -> Callable[[Path], None]:
    """A program that answers what an engine's Python would, or something else."""
    found = {"python": [3, 12], "vllm": ["vllm", "0.23.0"], "modules": XXHASH, "maru": None} | differs

    def make(folder: Path) -> None:
        program(name, f"echo 'MARU-E2E {json.dumps(found)}'")(folder)

    return make


def program(name: str, text: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    return make


def filled(folder: Path) -> None:
    (folder / "home").mkdir()
    (folder / "home" / "diary.txt").write_text("mine")


def file(folder: Path) -> None:
    (folder / "file").write_text("")


def engine(name: str, given: Callable[[Path], None] | None, *says: str, word: str = "./python") -> Row:
    return Row(name, ("run", "--engine-python", word), 2, says, given)


ROWS = (
    Row("setup: no version", ("setup", "--vllm", "newest"), 2, ("--vllm", "'newest'", "write 0.32.0")),
    Row("setup: empty version", ("setup", "--vllm", ""), 2, ("--vllm", "''", "write 0.32.0")),
    Row("setup: a requirement is no version", ("setup", "--vllm", ">=0.20"), 2, ("--vllm", "write 0.32.0")),
    Row("setup: version too old", ("setup", "--vllm", "0.13.0"), 2, ("0.13.0 is older than 0.14",)),
    Row("setup: device unknown", ("setup", "--device", "gpu"), 2, ("--device", "'gpu'", "auto, cpu or cuda")),
    Row("setup: place is a file", ("setup", "--venv", "file"), 2, ("file", "no virtual environment", "another"), file),
    Row("setup: place is somebody's", ("setup", "--venv", "home"), 2, ("home", "no virtual environment"), filled),
    Row(
        "setup: place under a file",
        ("setup", "--device", "cuda", "--venv", "file/venv"),
        2,
        ("file can't be written", "another --venv"),
        file,
    ),
    Row("setup: a word too many", ("setup", "0.32.0"), 2, ("0.32.0",)),
    engine("engine's Python is not there", None, "--engine-python", "./python", "no program"),
    engine("engine's Python is a folder", lambda at: (at / "python").mkdir(), "--engine-python", "no program"),
    engine("engine's Python may not be run", lambda at: (at / "python").touch(), "--engine-python", "no program"),
    engine("engine's Python is no Python", program("python", "echo hello"), "no Python 3.10 or newer", "name another"),
    engine("engine's Python fails", program("python", "echo lost >&2; exit 3"), "lost", "name another"),
    engine("engine's Python ends without a word", program("python", "exit 3"), "exit code 3", "name another"),
    engine("engine's Python is too old", python(python=[3, 9]), "is 3.9; take 3.10 or newer"),
    engine("engine's Python has no vLLM", python(vllm=None), "has no vLLM", "maru-e2e setup", "--engine-python"),
    engine("engine's Python lacks xxhash", python(modules={}), "lacks xxhash", "-m pip install xxhash"),
    Row(
        "gain: engine's Python has no vLLM",
        ("gain", "--axis", "placement", "index", "kernel", "--engine-python", "./python"),
        2,
        ("has no vLLM", "maru-e2e setup"),
        python(vllm=None),
    ),
    Row(
        "placement: engine's Python has no vLLM",
        ("placement", "--device", "cpu", "--engine-python", "./python"),
        2,
        ("has no vLLM", "maru-e2e setup"),
        python(vllm=None),
    ),
    Row(
        "doctor: engine's Python is no Python",
        ("doctor", "--engine-python", "./python"),
        2,
        ("no Python 3.10 or newer", "name another"),
        program("python", "echo hello"),
    ),
    Row(
        "maru: the engine's Python lacks it",
        ("run", "--connector", "maru", "--device", "cpu", "--engine-python", "./python"),
        2,
        ("Maru is not installed", "the engine's Python", "MARU_REQUIREMENT"),
        python(),
    ),
    Row("prompts: no folder", ("run", "--prompts-dir", "texts"), 2, ("--prompts-dir", "'texts' is no folder")),
    Row("prompts: a file", ("run", "--prompts-dir", "file"), 2, ("--prompts-dir", "'file' is no folder"), file),
    Row(
        "prompts: no text in it",
        ("run", "--prompts-dir", "texts"),
        2,
        ("--prompts-dir", "'texts' has no text", "*.txt"),
        lambda at: (at / "texts").mkdir(),
    ),
)
