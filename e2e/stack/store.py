"""A store: a pool's folder with the servers over it, by name and with a life of its own. Engines are given one.

It outlives engines or ends before them, as whoever plays a story wants. It tells what became of its servers and ends no
engine itself: whoever starts engines ends those of a store whose server died, since their requests would hang for
minutes while /health says 200.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.base.connector import ConnectorConfig, ServiceSpec
from e2e.base.errors import EngineCrashed, EngineError
from e2e.base.event import Record
from e2e.stack.launcher import Engine as Launched
from e2e.stack.ledger import Ledger
from e2e.stack.services import Service

_WATCH_S = 0.5


class Store:
    """``name``: unique in a run; its log files begin with it. ``folder``: the pool, empty at first, on the ledger.

    As a context manager it is closed at the end, whatever happened. After kill -9 of the rig the reaper does the same:
    the servers carry the run's mark and the folder is on the run's ledger.
    """

    def __init__(
        self, name: str, *, parent: Path, ledger: Ledger, environ: Mapping[str, str], log_dir: Path, record: Record
    ) -> None:
        """Makes the folder in ``parent``, or raises UsageError. ``environ``: what servers inherit."""
        self.name, self.log_dir = name, log_dir
        self._ledger, self._environ, self._record = ledger, environ, record
        self.folder = ledger.folder(parent, name)
        self.services: list[Service] = []
        #: engines that were given it, in the order of their starts
        self.users: list[Launched] = []
        self._crash: EngineCrashed | None = None

    @property
    def addresses(self) -> dict[str, str]:
        """Server -> host:port."""
        return {service.spec.name: service.address for service in self.services}

    def serve(self, specs: Sequence[ServiceSpec]) -> None:
        """Starts, in order, those servers that don't run yet. Raises EngineRefused or EngineTimeout with the name,
        cause and cure of the one that is of no use; it is then the last of ``services``."""
        for spec in specs:
            if spec.name in self.addresses:
                continue
            service = Service(
                spec, store=self.name, ledger=self._ledger, environ=self._environ, log_dir=self.log_dir
            )  # fmt: skip
            before = self.addresses
            self.services.append(service)
            service.start(before)
            self._record("note", text=f"{self.name}: {spec.name} works at {service.address}.")

    def give(self, config: ConnectorConfig) -> ConnectorConfig:
        """The connector of an engine on this store: its servers run, and their places are filled in."""
        self.serve(config.services)
        return config.placed(self.addresses)

    def check(self) -> None:
        """Raises EngineCrashed, naming the server, when one has died or is mute that was not broken here."""
        if self._crash:
            raise self._crash
        for service in self.services:
            service.check()

    @contextmanager
    def watched(self, end_engine: Callable[[], None]) -> Iterator[None]:
        """While this lasts, ``end_engine`` is called once when a server dies that was not broken here."""
        if not any(service.child for service in self.services):
            yield
            return
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_WATCH_S):
                if dead := next((service for service in self.services if service.died()), None):
                    # named now: other servers may end of it
                    self._crash = self._crash or dead.crash(f"{dead.spec.name} ended with {dead.child.ended_with()}")
                    end_engine()
                    return

        thread = threading.Thread(target=watch, name=f"servers of {self.name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    # break and mend

    def kill(self, server: str) -> None:
        """SIGKILL; its port stays ours, and refuses."""
        self._service(server).kill()

    def restart(self, server: str) -> None:
        """Starts one that was killed, on the same port and pool. Raises as ``serve`` does."""
        self._service(server).restart(self.addresses)

    def suspend(self, server: str) -> None:
        """SIGSTOP: it takes connections and answers nothing."""
        self._service(server).suspend()

    def resume(self, server: str) -> None:
        self._service(server).resume()

    def found_again(self, server: str) -> None:
        """Waits until engines that found it gone ask it again."""
        self._service(server).found_again()

    def slow(self, server: str) -> None:
        """It answers late, until ``hurry``."""
        self._service(server).slow()

    def hurry(self, server: str) -> None:
        self._service(server).hurry()

    def objects(self) -> list[str]:
        """Names of what the pool holds, the one that was used last at the end."""
        return self._tool("list")

    def damage(self, how: str, *names: str) -> None:
        """``how``: delete, lose (its entry stays), flip (a bit), tear (half of it never arrived), truncate or replace
        (by another one)."""
        self._tool(how, *names)

    def fill(self) -> None:
        """No room is left, in this pool alone, until ``drain``."""
        self._tool("fill")

    def drain(self) -> None:
        self._tool("drain")

    def under_way(self, engine: str, work: str = "") -> dict[str, int]:
        """Kind of work (load, store) -> how often an engine's connector has begun it and not ended it; as soon as there
        is any ``work``, or after some seconds. ``engine``: its id as vLLM has it."""
        return self._tool("under-way", engine, *filter(None, (work,)))

    def _tool(self, *words: str) -> Any:
        """Raises EngineError where the connector brings no such tool, or the tool can't do that."""
        service = next((service for service in self.services if service.spec.tool), None)
        if service is None:
            raise EngineError(f"nobody can list or damage what the store {self.name} holds, or fill it.")
        return service.tool(*words, addresses=self.addresses)

    def _service(self, server: str) -> Service:
        """One that we started. KeyError for another."""
        return {service.spec.name: service for service in self.services if service.child}[server]

    def close(self) -> None:
        """Ends the servers, the last first, and removes the pool. Never raises, may be called again."""
        while self.services:
            self.services.pop().stop()
        shutil.rmtree(self.folder, ignore_errors=True)  # gigabytes of shared memory, which the next one needs

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
