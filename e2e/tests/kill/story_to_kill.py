"""Plays a program on engines and a server that stand in for real ones, says "ready" after one kind of step, waits to be
killed: python story_to_kill.py RUN_ID FOLDER HOW KIND

HOW: fork, stock, or an image of Docker's. KIND: a word of ``STEPS``."""

import json
import os
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

from e2e.base.connector import ServiceSpec
from e2e.base.event import Event
from e2e.base.program import (
    Break,
    Cold,
    Empty,
    Forget,
    Mend,
    Program,
    Scribble,
    Send,
    Site,
    Start,
    Stop,
    Text,
    Together,
)
from e2e.play.nemesis import broken
from e2e.play.story import Story
from e2e.play.world import Scene
from e2e.stack.container import ContainerLauncher
from e2e.stack.ledger import Ledger
from e2e.stack.process import ProcessLauncher
from e2e.stack.spec import EngineSpec
from e2e.stack.store import Store
from e2e.stack.zygote import Zygote

LISTENS = """
import http.server, sys
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), None)
print("up", flush=True)
server.serve_forever()
"""
SERVER = ServiceSpec(name="index", argv=(sys.executable, "-c", LISTENS, "{index.port}"), ready="up")
SEND = Send("cold", "one", (0,), (Cold(),))
SUSPENDED, KILLED = Break("server", "suspend", "index"), Break("server", "kill", "index")
#: What was done just before.
STEPS = {
    "start": (Start("one"),),
    "send": (Start("one"), SEND),
    "forget": (Start("one"), Forget("one")),
    "scribble": (Start("one"), Forget("one"), Scribble("one")),
    "empty": (Start("one"), Empty("pool")),
    "stop": (Start("one"), Stop("one")),
    "stop killed": (Start("one"), Stop("one", killed=True)),
    "engine kill": (Start("one"), Break("engine", "kill", "one")),
    "server suspend": (SUSPENDED,),
    "server kill": (KILLED,),
    "mend": (KILLED, Mend("server", "kill", "index")),
    "together": (Start("one"), Together((SEND, Stop("one", killed=True), SUSPENDED))),
}


class Engine:
    """Sends nothing; at the last step it waits to be killed."""

    def __init__(self, name, process, store, ready):
        self.name, self.process, self.store, self.ready = name, process, store, ready

    def looking(self, scene, send, *, forgiving):
        return nullcontext()

    def send(self, scene, send, *, forgiving): ...

    def scribble(self, scene, before): ...

    def empty(self): ...

    def check(self): ...

    def end(self, *, killed):
        if killed:
            self.process.kill()

    def forget(self, scene, before):
        if before == "last":
            self.ready(self)


class World:
    def __init__(self, folder, ledger, launcher, ready):
        self.folder, self.ledger, self.launcher, self.ready = folder, ledger, launcher, ready

    @contextmanager
    def store(self, part, name):
        shared = Path("/dev/shm")
        with Store(
            name, parent=shared, ledger=self.ledger, environ=os.environ, log_dir=self.folder, record=record
        ) as store:
            store.serve([SERVER])
            yield store

    @contextmanager
    def engine(self, scene, site, name, store):
        env = {"PYTHONPATH": f"{self.folder}/stand_in", "STAND_IN": "ready"}
        spec = EngineSpec(name=name, engine_key="K", role=site.name, model="none/such", env=env)
        with self.launcher.start(spec, log_path=self.folder / f"{name}.log", record=record) as process:
            process.wait_ready(60)
            yield Engine(name, process, store, self.ready)

    def broken(self, step, engines, stores):
        return broken(step, engines, stores)


def record(kind, **data):
    return Event(kind, data)


def main(run_id: str, folder: str, how: str, kind: str) -> None:
    ledger = Ledger(run_id=run_id, state_dir=Path(folder) / "state")
    if how in ("fork", "stock"):
        zygote = Zygote(ledger=ledger) if how == "fork" else None
        launcher = ProcessLauncher(ledger=ledger, environ=os.environ, zygote=zygote)
    else:
        launcher = ContainerLauncher(ledger=ledger, environ=os.environ, image=how)

    def ready(engine) -> None:
        ports = [engine.process.port, int(engine.store.addresses["index"].rpartition(":")[2])]
        print(json.dumps({"ports": ports, "folders": [str(engine.store.folder)]}), flush=True)
        time.sleep(600)

    other = Site("other")
    steps = (Start("other"), *STEPS[kind], Forget("other"), Send("last", "other", (0,), (Cold(),)))
    program = Program((other, Site("one")), (Text(9),), steps)
    world = World(Path(folder), ledger, launcher, ready)

    def open(scene, site, own, lasting, stores):
        if site.store not in stores:
            stores[site.store] = lasting.enter_context(world.store(None, site.store))
        return own.enter_context(world.engine(scene, site, f"K.{site.name}.1", stores[site.store]))

    Story(Scene(None, program, "cell"), world, record, open, engines={}, stores={}).play(lambda step: True)


if __name__ == "__main__":
    main(*sys.argv[1:])
