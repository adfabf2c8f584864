"""Runs the rig as a user does, in a process of its own, on a real vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from e2e.tests.engine.engines import Engines, engines_of

LIMIT_S = 1500


@dataclass(frozen=True)
class Ran:
    """``report`` is report.json; ``out`` its folder."""

    code: int
    said: str
    out: Path

    @property
    def report(self) -> dict:
        return json.loads((self.out / "report.json").read_text())

    @property
    def cells(self) -> dict[str, dict]:
        return {cell["id"]: cell for cell in self.report["cells"]}

    def events(self, kind: str) -> list[dict]:
        lines = (self.out / "recording.jsonl").read_text().splitlines()
        return [event["data"] for event in map(json.loads, lines) if event["kind"] == kind]


class Rig:
    """``state`` is where runs are registered: one of our own, so that tests never meet a user's runs."""

    def __init__(self, state: Path) -> None:
        self.environ = {**os.environ, "XDG_STATE_HOME": str(state), "COLUMNS": "160"}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "e2e.cli", *words]

    def __call__(self, *words: str, out: Path, command: str = "run", limit_s: float = LIMIT_S) -> Ran:
        done = subprocess.run(
            self.command(command, "--out", str(out), *words),
            env=self.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stdout
        return Ran(done.returncode, done.stdout, out)

    def judge(self, out: Path) -> Ran:
        done = subprocess.run(
            self.command("judge", str(out)),
            env=self.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, out)


def left_of(run_id: str) -> list[str]:
    """Processes and pool folders that carry the mark of a run."""
    found = [str(path) for path in Path("/dev/shm").glob(f"*{run_id}*")]
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARU_E2E_RUN") == run_id:
                found.append(f"{process.pid} {process.name()}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.fixture(scope="session")
def engine(tmp_path_factory) -> Iterator[Engines]:
    """engine(**settings of EngineSpec) -> the client of a real engine, as a context."""
    with engines_of(tmp_path_factory.mktemp("engines")) as engines:
        yield engines


@pytest.fixture(scope="session")
def rig(tmp_path_factory) -> Rig:
    return Rig(tmp_path_factory.mktemp("state"))
