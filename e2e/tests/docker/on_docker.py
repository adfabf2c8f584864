"""What tests ask of Docker: one Compose command, and a run's containers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import docker

from e2e.stack.containers import RUN_LABEL

CLONE = Path(__file__).resolve().parents[3]


def compose(*words: str, limit_s: float = 60, **environ: str) -> subprocess.CompletedProcess:
    """One ``docker compose`` command in the clone; its output and error together."""
    return subprocess.run(
        ["docker", "compose", *words],
        cwd=CLONE, env={**os.environ, "RIG_USER": f"{os.getuid()}:{os.getgid()}", **environ},
        text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=limit_s, check=False,
    )  # fmt: skip


def containers_of(client: docker.DockerClient, run_id: str) -> list[str]:
    return [
        one.name
        for one in client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={run_id}"}, ignore_removed=True)
    ]
