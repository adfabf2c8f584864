"""Whose container is it? Labels that prove it, and what removes the containers of a dead run, and nothing else.

Each container carries the run's id, the machine and process space that started it, and its owner's pid and creation
time: a later start finds those without a living owner even where the run's file is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import docker
import requests
from docker.errors import APIError, DockerException, NotFound

from e2e.base.errors import SettingsError
from e2e.stack.owned import here, living, stamp
from e2e.waits import wait

RUN_LABEL = "maru-e2e.run"
WHERE_LABEL = "maru-e2e.where"
OWNER_LABEL = "maru-e2e.owner"
ENGINE_LABEL = "maru-e2e.engine"
#: A request to the Docker engine may take this long; removing a container frees gigabytes of memory. Seconds.
_REQUEST_S = 60
#: A container whose creation was still going on when its owner died shows up late. Seconds.
_SETTLE_S = 1.0
#: What a call to the Docker engine may raise; requests' errors come through where the connection breaks.
DOCKER_ERRORS = (DockerException, requests.RequestException)


def connect(environ: Mapping[str, str] | None = None) -> docker.DockerClient:
    """A client of the engine that DOCKER_HOST and its kin name. Raises SettingsError when nobody answers there."""
    environ = os.environ if environ is None else environ
    where = environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    try:
        client = docker.from_env(timeout=_REQUEST_S, environment=dict(environ))
        client.ping()
    except DOCKER_ERRORS as error:
        why = "we may not use it" if "Permission denied" in str(error) else "nobody answers there"
        raise SettingsError(
            f"no Docker engine at {where}: {why}; start one (or join the group docker), or use --launcher process."
        ) from error
    return client


def labels(run_id: str, engine: str) -> dict[str, str]:
    return {
        RUN_LABEL: run_id,
        WHERE_LABEL: here(),
        OWNER_LABEL: json.dumps(stamp(os.getpid())),
        ENGINE_LABEL: engine,
    }


def remove_of(client: docker.DockerClient, run_id: str) -> list[str]:
    """Removes a run's containers with their volumes; returns their names. Looks twice: see ``_SETTLE_S``."""
    removed: list[str] = []

    def another_round() -> bool:
        found = client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={run_id}"}, ignore_removed=True)
        removed.extend(container.name for container in found if remove(container))
        return False

    wait(another_round, limit_s=_SETTLE_S, every_s=_SETTLE_S / 2)
    return removed


def remove_orphans(client: docker.DockerClient) -> list[str]:
    """Removes containers of runs of this machine whose owner is dead; returns their names."""
    found = client.containers.list(all=True, filters={"label": RUN_LABEL}, ignore_removed=True)
    return [container.name for container in found if _orphaned(container) and remove(container)]


def _orphaned(container: docker.models.containers.Container) -> bool:
    if container.labels.get(WHERE_LABEL) != here():
        return False
    try:
        return living(json.loads(container.labels[OWNER_LABEL])) is None
    except (KeyError, TypeError, ValueError):
        return False


def remove(container: docker.models.containers.Container) -> bool:
    """False when somebody else was faster. Raises DockerException when it can't be removed."""
    try:
        container.remove(force=True, v=True)
    except NotFound:
        return False
    except APIError as error:
        if error.status_code == 409:  # being removed already
            return False
        raise
    return True
