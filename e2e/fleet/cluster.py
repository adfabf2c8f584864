"""Ray, and nothing else of the rig knows it: the cluster of RAY_ADDRESS, or one of our own on this machine."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from e2e.base.errors import EngineTimeout, SettingsError, Stopped
from e2e.fleet.node import STOP_LIMIT_S, Node, Task, Told
from e2e.fleet.share import Need, Share
from e2e.settings.world import inherited
from e2e.stack.ledger import Ledger

#: Of a Ray of our own, which passes on lines of recordings and no more. Bytes.
STORE_BYTES = 128 << 20
#: How long a node may take for an answer. Seconds.
ANSWER_S = 60.0
#: How long a cluster may take to be there. Seconds.
REACH_S = 10.0
#: What answers there and is no Ray is asked for the better part of a minute, and by default twenty times over.
ONE_TRY = {"RAY_NUM_REDIS_GET_RETRIES": "1"}


class Cluster:
    """The tasks under way. ``runtime_env``: see Ray's own documentation; empty for the nodes' own surroundings."""

    def __init__(self, ray: ModuleType, task: Task, runtime_env: Mapping[str, object]) -> None:
        self._ray, self._task, self._runtime_env = ray, task, runtime_env
        self._actors: dict[Share, Any] = {}
        self._asked: dict[Any, Share] = {}
        self._begun: set[Share] = set()

    def nodes(self) -> list[Need]:
        """What each living one has."""
        has = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return [Need(each.get("CPU", 0.0), int(each.get("GPU", 0))) for each in has]

    @property
    def busy(self) -> bool:
        return bool(self._actors)

    def start(self, share: Share) -> None:
        """On whichever node has what it needs; until then it waits. A task that it had is ended."""
        if share in self._actors:
            self.end(share)
        options = {"num_cpus": share.need.cpus, "num_gpus": share.need.gpus, "runtime_env": dict(self._runtime_env)}
        node = self._ray.remote(Node).options(**options)
        self._actors[share] = node.remote(self._task, share.place, share.begin())
        self._ask(share)

    def _ask(self, share: Share) -> None:
        self._asked[self._actors[share].told.remote(share.recorded, share.said)] = share

    def answers(self, *, limit_s: float) -> Iterator[tuple[Share, Told]]:
        """Of those that have one; each is to be kept (``Share.add``) before the next is taken. Raises EngineTimeout
        when none has within the limit, SettingsError where Ray can't make the surroundings."""
        ready, _ = self._ray.wait([*self._asked], timeout=limit_s)
        if not ready:
            raise EngineTimeout(
                f"no node of the Ray cluster has answered for {limit_s:g} s; look at ray status, and start nodes that "
                f"have {self._wanted()} free."
            )
        for ref in ready:
            share = self._asked.pop(ref)
            try:
                told = self._ray.get(ref)
            except self._ray.exceptions.RuntimeEnvSetupError as error:
                raise SettingsError(f"--runtime-env: Ray can't make it ({_last_line(error)}).") from error
            except self._ray.exceptions.RayError as error:
                told = Told(lost=_last_line(error))
            self._begun.add(share)
            yield share, told
            if told.code is None and not told.lost:
                self._ask(share)

    def _wanted(self) -> str:
        return str(max((share.need for share in self._actors), key=lambda need: (need.gpus, need.cpus)))

    def end(self, share: Share) -> None:
        """Its logs are kept, and nothing of it is left on its node; where that is gone, its reaper sees to it."""
        actor = self._actors.pop(share)
        with contextlib.suppress(self._ray.exceptions.RayError):
            if share in self._begun:  # else it may wait for room still
                share.keep(self._ray.get(actor.logs.remote(), timeout=ANSWER_S))
                self._ray.get(actor.close.remote(), timeout=ANSWER_S)
        self._begun.discard(share)
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor)

    def stop(self) -> None:
        """All that is under way, as ^C does; what it has recorded until then is kept."""
        self._asked.clear()
        stopping = [actor.stop.remote() for share, actor in self._actors.items() if share in self._begun]
        if stopping:
            self._ray.wait(stopping, num_returns=len(stopping), timeout=STOP_LIMIT_S + ANSWER_S)
        for share, actor in [*self._actors.items()]:
            with contextlib.suppress(self._ray.exceptions.RayError):
                if share in self._begun:
                    share.add(self._ray.get(actor.told.remote(share.recorded, share.said), timeout=ANSWER_S))
            self.end(share)


@contextmanager
def cluster(ledger: Ledger, task: Task, *, address: str | None, runtime_env: Path | None) -> Iterator[Cluster]:
    """``address``: of a cluster that runs, None for one of our own, which carries the marks of ``ledger``. Raises
    SettingsError where there is no Ray, or none at that address."""
    ray = _ray(ONE_TRY if address else {})
    if address:
        _answering(address)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            with inherited(ledger.marks("ray") | {"RAY_USAGE_STATS_ENABLED": "0"}):
                folder = ledger.folder(Path(tempfile.gettempdir()), "ray")
                ray.init(address="local", _temp_dir=str(folder), object_store_memory=STORE_BYTES, **quiet)
    except SystemExit as error:  # of Ray's own handler
        raise Stopped(signal.SIGTERM) from error
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise _unreached(address, error) from error
    finally:
        for number, handler in handlers.items():  # Ray has one of its own for SIGTERM, which ends no engine
            signal.signal(number, handler)
    found = Cluster(ray, task, _surroundings(ray, runtime_env) if runtime_env else {})
    try:
        yield found
    except SystemError as error:  # a signal that came while Ray's own code waited
        raise (error.__cause__ if isinstance(error.__cause__, Stopped | KeyboardInterrupt) else error) from None
    finally:
        found.stop()
        ray.shutdown()


def _answering(address: str) -> None:
    """Is anybody there? Ray itself asks for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and port.isdecimal()):  # auto, or some other word of Ray's
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
    except (OSError, OverflowError) as error:
        raise _unreached(address, error) from error


def _unreached(address: str | None, error: BaseException) -> SettingsError:
    where = f"no Ray cluster answers at RAY_ADDRESS={address}" if address else "Ray can't be started here"
    cure = "start it, or unset RAY_ADDRESS for one of our own" if address else "see ray start --head, or leave it out"
    return SettingsError(f"--executor ray: {where} ({_last_line(error)}); {cure}.")


def _ray(variables: Mapping[str, str]) -> ModuleType:
    try:
        with inherited(variables):  # Ray reads them when it is imported
            import ray
    except ImportError:
        raise SettingsError("--executor ray needs Ray; pip install maru-e2e[ray], or leave it out.") from None
    return ray


def _surroundings(ray: ModuleType, path: Path) -> dict[str, object]:
    try:
        return dict(ray.runtime_env.RuntimeEnv(**json.loads(path.read_text())))
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise SettingsError(f"--runtime-env: {path} is no runtime environment of Ray ({_last_line(error)}).") from error


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300].rstrip(".")
