"""Engines as containers: the process launcher's argv and environment in an image that has vLLM and no rig.

One container an engine, labelled with the run, on a random port of 127.0.0.1, as the calling user, with a read-only
root and no capabilities. The model's folder, and what the connector adds to PYTHONPATH, are mounted read-only under
their own paths. Pools and temporary files lie in the container's memory and go with it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import docker
from docker.errors import ImageNotFound
from docker.types import DeviceRequest, Mount

from e2e.base.errors import EngineRefused, SettingsError
from e2e.base.event import Record
from e2e.stack import probe
from e2e.stack.containers import DOCKER_ERRORS, connect, labels, remove, remove_orphans
from e2e.stack.ledger import Ledger
from e2e.stack.logged import LoggedEngine
from e2e.stack.spec import EngineSpec
from e2e.waits import Outcome, wait

HOST = "127.0.0.1"
#: Inside the container.
PORT = 8000
#: Shared memory for the embedded connector's usual pool, and beside the pool for vLLM's own queues. Bytes.
DEFAULT_POOL = 2 << 30
SPARE_SHM = 1 << 30
#: Of the rig's environment only this goes into containers; the rest names things of the host, or is set per engine.
PASSED = ("HF_TOKEN", "HF_ENDPOINT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "VLLM_BATCH_INVARIANT")
#: How long the last of a container's output may take to arrive. Seconds.
_OUTPUT_S = 5.0


class ContainerLauncher:
    """``image``: has vLLM and e2e.inside. ``environ``: where Docker is, and ``PASSED``. ``pool_bytes``: of the
    connector's pool, which needs shared memory; None: the default one. ``attempt``: of this run."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        image: str,
        environ: Mapping[str, str],
        pool_bytes: int | None = None,
        attempt: int = 1,
    ) -> None:
        """Removes what dead runs left. Raises SettingsError when there is no Docker engine, or no such image."""
        self.ledger, self.image, self.environ = ledger, image, environ
        self.shm_bytes, self.attempt = (pool_bytes or DEFAULT_POOL) + SPARE_SHM, attempt
        self.client = connect(environ)
        try:
            self.client.images.get(image)
            ledger.own_containers()
            remove_orphans(self.client)
        except ImageNotFound as error:
            raise SettingsError(
                f"image {image} is not here; build it (docker compose build engine-image) or name another with --image."
            ) from error
        except DOCKER_ERRORS as error:
            raise SettingsError(f"the Docker engine refuses: {_words(error)}; look at its log.") from error

    def start(self, spec: EngineSpec, *, log_path: Path, record: Record) -> ContainerEngine:
        """Raises SettingsError when the log can't be written, EngineRefused when the container can't be started."""
        if spec.connector and spec.connector.services:
            raise SettingsError("this connector needs servers beside the engine; use --launcher process.")
        return ContainerEngine(self, spec, log_path=log_path, record=record)


class ContainerEngine(LoggedEngine):
    """A container with its server. See ``launcher.Engine`` for the meaning of each method."""

    def __init__(self, launcher: ContainerLauncher, spec: EngineSpec, *, log_path: Path, record: Record) -> None:
        super().__init__(spec, log_path=log_path, record=record)
        self._launcher = launcher
        self._container: docker.models.containers.Container | None = None
        self._log = self._open_log()
        argv = spec.argv(PORT, python="python", host="0.0.0.0")
        self._announce(argv, launcher="docker", attempt=launcher.attempt, image=launcher.image)
        try:
            self._container = self._create(argv)
            self._container.start()
            self._container.reload()
            self.port = int(self._container.ports[f"{PORT}/tcp"][0]["HostPort"])
        except (*DOCKER_ERRORS, LookupError, TypeError) as error:
            self.stop()
            cause = _words(error)
            text = f"engine {self.name}: Docker can't start its container: {cause}; {_cure(cause)}."
            raise self._fail(EngineRefused(text, cause=cause), stage="start") from error
        self._follower = threading.Thread(target=self._follow, name=f"log of {self.name}", daemon=True)
        self._follower.start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _open_log(self):
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            return self.log_path.open("ab", buffering=0)
        except OSError as error:
            raise SettingsError(f"engine {self.name} can't be run: {error.strerror}: {error.filename}.") from error

    def _create(self, argv: list[str]) -> docker.models.containers.Container:
        environ = {name: self._launcher.environ[name] for name in PASSED if name in self._launcher.environ}
        env = self.spec.environment(environ)
        mounts = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
        if Path(self.spec.model).is_dir():
            mounts.append(os.path.abspath(self.spec.model))
        gpu = [DeviceRequest(count=-1, capabilities=[["gpu"]])] if self.spec.device == "cuda" else None
        return self._launcher.client.containers.create(
            self._launcher.image,
            command=argv,
            labels=labels(self._launcher.ledger.run_id, self.name),
            environment=env | {"HOME": "/tmp", "PYTHONUNBUFFERED": "1"} | self._launcher.ledger.marks(self.name),
            ports={f"{PORT}/tcp": (HOST, None)},
            mounts=[Mount(path, path, type="bind", read_only=True) for path in dict.fromkeys(mounts)],
            user=f"{os.getuid()}:{os.getgid()}",
            working_dir="/tmp",
            init=True,
            stop_signal="SIGINT",
            read_only=True,
            tmpfs={"/tmp": "exec,mode=1777"},
            shm_size=self._launcher.shm_bytes,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            device_requests=gpu,
        )

    def _follow(self) -> None:
        """The container's output into our file, until it ends or Docker does."""
        with contextlib.suppress(*DOCKER_ERRORS, OSError, ValueError):
            for chunk in self._container.logs(stream=True, follow=True):
                self._log.write(chunk)

    def wait_ready(self, limit_s: float) -> None:
        outcome = wait(lambda: probe.is_healthy(self.url), dead=lambda: not self.alive(), limit_s=limit_s)
        if outcome is Outcome.READY:
            self._record("engine.ready", engine=self.name, start_s=(time.monotonic_ns() - self._began_ns) / 1e9)
            return
        raise self._never_ready(outcome, limit_s)

    def alive(self) -> bool:
        return self._state().get("Status") in ("created", "running")

    def _state(self) -> Mapping[str, object]:
        """What Docker says of the container; empty when it or Docker itself is gone."""
        try:
            self._container.reload()
            return self._container.attrs["State"]
        except DOCKER_ERRORS:
            return {}

    def _end_cause(self) -> str:
        """Why a container ended, after the last of its output has arrived."""
        self._follower.join(_OUTPUT_S)
        state = self._state()
        if state.get("OOMKilled"):
            return "it used more memory than it may and was killed"
        if not state:
            return self.cause() or "its container, or the Docker engine, is gone"
        return self.cause() or f"it ended with exit code {state.get('ExitCode')} and said nothing"

    def kill(self) -> None:
        with contextlib.suppress(*DOCKER_ERRORS):
            self._container.kill()

    def stop(self, limit_s: float = 20.0) -> None:
        if self._stopped:
            return
        self._stopped = True
        began_ns, graceful = time.monotonic_ns(), False
        with contextlib.suppress(*DOCKER_ERRORS):
            if self._container and self.alive():
                self._container.stop(timeout=int(limit_s))
                graceful = self._state().get("ExitCode") != 137
        if follower := getattr(self, "_follower", None):
            follower.join(_OUTPUT_S)
        with contextlib.suppress(*DOCKER_ERRORS):  # what is still there then, the ledger removes
            if self._container:
                remove(self._container)
        self._log.close()
        stop_s = (time.monotonic_ns() - began_ns) / 1e9
        self._record("engine.stop", engine=self.name, graceful=graceful, stop_s=stop_s)


def _words(error: BaseException) -> str:
    """Docker's own sentence, without the address and status in front of it."""
    explanation = getattr(error, "explanation", None)
    return " ".join(str(explanation or error).split()).rstrip(".")


def _cure(cause: str) -> str:
    known = {
        "no space left": "make room (docker system df shows what takes it)",
        "port is already allocated": "start again, another port will be chosen",
        "address already in use": "start again, another port will be chosen",
        "bind source path does not exist": "the Docker engine must see this machine's files",
        "could not select device driver": "install the NVIDIA container toolkit, or use --device cpu",
    }
    return next((cure for words, cure in known.items() if words in cause.lower()), "look at the Docker engine's log")
