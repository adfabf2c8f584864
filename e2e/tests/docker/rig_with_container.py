"""Starts a container engine, says "ready", waits to be killed: python rig_with_container.py RUN_ID FOLDER IMAGE"""

import os
import sys
import time
from pathlib import Path

from e2e.base.event import Event
from e2e.stack.container import ContainerLauncher
from e2e.stack.ledger import Ledger
from e2e.stack.reaper import reap
from e2e.stack.spec import EngineSpec


def main(run_id: str, folder: str, image: str) -> None:
    state = Path(folder) / "state"
    reap(state_dir=state)
    ledger = Ledger(run_id=run_id, state_dir=state)
    env = {"PYTHONPATH": f"{folder}/stand_in", "STAND_IN": "ready"}
    spec = EngineSpec(name="HND.baseline.1", engine_key="HND", role="baseline", model="none/such", env=env)
    print(f"watchdog {ledger._watchdog.pid}", flush=True)
    launcher = ContainerLauncher(ledger=ledger, image=image, environ=os.environ)
    engine = launcher.start(spec, log_path=Path(folder) / "engine.log", record=lambda kind, **data: Event(kind, data))
    engine.wait_ready(60)
    print("ready", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
