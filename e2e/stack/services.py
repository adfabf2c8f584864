"""Servers of a store: what a connector needs beside its engines.

A listening port is not enough: a server is ready when its log says so and its probe gets what the engine will ask for.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.base.connector import ServiceSpec, filled
from e2e.base.errors import EngineCrashed, EngineError, EngineRefused, EngineTimeout
from e2e.stack.child import Child, Log, spawn
from e2e.stack.ledger import Ledger
from e2e.stack.process import HOST, HeldPort
from e2e.waits import Outcome, wait

_STOP_S = 5.0
_TOOL_S = 60.0
#: A slow server stands still so long, then does what it can for a moment, over and over. Seconds.
_STILL_S, _MOMENT_S = 0.3, 0.002


class Service:
    """One server, started by us or only asked (``argv`` empty)."""

    def __init__(
        self, spec: ServiceSpec, *, store: str, ledger: Ledger, environ: Mapping[str, str], log_dir: Path
    ) -> None:
        self.spec, self.name, self._ledger, self._environ = spec, f"{store}.{spec.name}", ledger, environ
        self.log_path = log_dir / f"{self.name}.log"
        self.address = spec.address or ""
        self.log = Log(self.log_path)
        self.child: Child | None = None
        self._held: HeldPort | None = None
        self._broken = False
        self._slow: tuple[threading.Thread, threading.Event] | None = None

    def start(self, addresses: Mapping[str, str]) -> None:
        """``addresses``: of the servers before it."""
        if self.spec.argv:
            self._held = self._held or HeldPort()
            self.address = f"{HOST}:{self._held.port}"
            self._spawn({**addresses, self.spec.name: self.address})
            self._wait_for_log()
        self._wait_for_probe()

    def _spawn(self, places: Mapping[str, str]) -> None:
        argv = [str(filled(word, places)) for word in self.spec.argv]
        if self.spec.within:
            argv = self.spec.within(argv)
        # not every server binds beside a socket that is held for it, so the port is free for a moment
        self._release_port()
        self.log = Log(self.log_path, since=self.log_path.stat().st_size if self.log_path.exists() else 0)
        self.child = Child(
            spawn(self.spec.name, argv, env=self._env(), log_path=self.log_path), self.name, self._ledger.run_id
        )

    def _env(self) -> dict[str, str]:
        paths = [env["PYTHONPATH"] for env in (self.spec.env, self._environ) if env.get("PYTHONPATH")]
        env = {**self._environ, **self.spec.env, "PYTHONUNBUFFERED": "1", **self._ledger.marks(self.name)}
        return {**env, "PYTHONPATH": os.pathsep.join(paths)} if paths else env

    def _release_port(self) -> None:
        if self._held:
            self._held.release()
            self._held = None

    def _wait_for_log(self) -> None:
        spec = self.spec

        def says(pattern: str | None) -> bool:
            return pattern is not None and re.search(pattern, self.log.text()) is not None

        outcome = wait(
            lambda: says(spec.useless) or spec.ready is None or says(spec.ready),
            dead=lambda: not self.alive(),
            limit_s=spec.limit_s,
        )
        if says(spec.useless):
            raise self._refused(
                next(line for line in self.log.text().splitlines() if re.search(str(spec.useless), line))
            )
        if outcome is Outcome.DEAD:
            raise self._refused(f"it ended with {self.child.ended_with()}: {self.log.last_line()}")
        if outcome is Outcome.LATE:
            raise self._late(f"its log does not say {spec.ready!r}; its last word: {self.log.last_line()}")

    def _wait_for_probe(self) -> None:
        probe = self.spec.probe
        if probe is None:
            return
        last: list[EngineError] = []

        def works() -> bool:
            try:
                probe(self.spec, self.address)
            except EngineTimeout as error:
                last.append(error)
                return False
            return True

        try:
            outcome = wait(works, dead=lambda: not self.alive(), limit_s=self.spec.limit_s)
        except EngineRefused as error:
            raise self._refused(error.cause) from error
        if outcome is Outcome.DEAD:
            raise self._refused(f"it ended with {self.child.ended_with()}: {self.log.last_line()}")
        if outcome is Outcome.LATE:
            raise self._late(last[-1].cause)

    def alive(self) -> bool:
        return self.child is None or self.child.alive()

    def died(self) -> bool:
        """Has it ended though nobody here broke it?"""
        return not self._broken and not self.alive()

    def check(self) -> None:
        if self._broken:
            return
        if not self.alive():
            raise self.crash(f"{self.spec.name} ended with {self.child.ended_with()}")
        try:
            if self.spec.probe:
                self.spec.probe(self.spec, self.address)
        except EngineRefused:
            return  # a pool that is full by now is no dead server
        except EngineTimeout as error:
            raise self.crash(error.cause, ", whose requests then hang") from error

    def crash(self, what: str, then: str = "") -> EngineCrashed:
        cause = f"{what} under a running engine{then}"
        return EngineCrashed(f"{cause}; {self._cure()}.", cause=cause, **self._said())

    def _refused(self, why: str) -> EngineRefused:
        cause = f"{self.spec.name} is of no use: {' '.join(why.split())}"
        return EngineRefused(f"{cause}; {self._cure()}.", cause=cause, **self._said())

    def _late(self, why: str) -> EngineTimeout:
        cause = f"{self.spec.name} did not work within {self.spec.limit_s:g} s: {' '.join(why.split())}"
        return EngineTimeout(f"{cause}; {self._cure()}.", cause=cause, **self._said())

    def _said(self) -> dict[str, str]:
        return {"log_tail": self.log.tail(), "log": str(self.log_path) if self.child else ""}

    def _cure(self) -> str:
        cure = self.spec.cure or "see its log"
        return f"{cure} (log: {self.log_path})" if self.child else cure

    # break and mend

    def kill(self) -> None:
        self._broken = True
        self.child.kill()
        self._held = HeldPort(int(self.address.rpartition(":")[2]))

    def restart(self, addresses: Mapping[str, str]) -> None:
        """After ``kill``."""
        self.start(addresses)
        self._broken = False

    def suspend(self) -> None:
        self._broken = True
        self.child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.child.signal(signal.SIGCONT)
        self._broken = False

    def slow(self) -> None:
        """Each answer takes up to ``_STILL_S`` longer, until ``hurry``."""
        over = threading.Event()
        thread = threading.Thread(target=self._stutter, args=(over,), name=f"slow {self.name}", daemon=True)
        self._broken, self._slow = True, (thread, over)
        thread.start()

    def _stutter(self, over: threading.Event) -> None:
        while not over.is_set():
            self.child.signal(signal.SIGSTOP)
            over.wait(_STILL_S)
            self.child.signal(signal.SIGCONT)
            over.wait(_MOMENT_S)

    def hurry(self) -> None:
        """After ``slow``."""
        if self._slow:
            thread, over = self._slow
            over.set()
            thread.join()
            self._broken, self._slow = False, None

    def found_again(self) -> None:
        """Waits until engines that found it gone ask it again."""
        wait(lambda: False, dead=lambda: not self.alive(), limit_s=self.spec.back_s)

    def tool(self, *words: str, addresses: Mapping[str, str]) -> Any:
        """See ``ServiceSpec.tool``. Raises EngineError with the tool's own sentence."""
        argv = [str(filled(word, addresses)) for word in self.spec.tool]
        try:
            done = subprocess.run(
                [*argv, *words], env=self._env(), capture_output=True, text=True, timeout=_TOOL_S, check=False
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"the tool of {self.spec.name} can't be run: {error}.") from error
        if done.returncode:
            raise EngineError(f"{done.stderr.strip().rpartition(chr(10))[2] or 'the tool said nothing'}.")
        return json.loads(done.stdout)

    def stop(self) -> None:
        """Never raises."""
        self.hurry()
        self._release_port()
        if self.child:
            self.child.end(signal.SIGTERM, signal.SIGCONT, limit_s=_STOP_S)
