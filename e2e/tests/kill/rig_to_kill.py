"""Starts one engine, says "ready", waits to be killed: python rig_to_kill.py RUN_ID FOLDER MODEL LIMIT_S HOW

HOW: fork or stock."""

import os
import sys
import time
from pathlib import Path

from e2e.base.event import Event
from e2e.stack.ledger import Ledger
from e2e.stack.process import ProcessLauncher
from e2e.stack.spec import EngineSpec
from e2e.stack.zygote import Zygote


def main(run_id: str, folder: str, model: str, limit_s: str, how: str) -> None:
    ledger = Ledger(run_id=run_id, state_dir=Path(folder) / "state")
    pool = ledger.folder(Path("/dev/shm"), "pool")
    (pool / "chunk").write_text("x")
    spec = EngineSpec(
        name="HND.baseline.1",
        engine_key="HND",
        role="baseline",
        model=model,
        block_size=16,
        max_model_len=512,
        max_num_batched_tokens=256,
        kv_cache_memory_bytes=64 << 20,
        attention="strided",
    )
    zygote = Zygote(ledger=ledger) if how == "fork" else None
    launcher = ProcessLauncher(ledger=ledger, environ=os.environ, zygote=zygote)
    engine = launcher.start(spec, log_path=Path(folder) / "engine.log", record=lambda kind, **data: Event(kind, data))
    engine.wait_ready(float(limit_s))
    by = zygote._popen.pid if zygote else 0
    print(f"ready {engine.port} {ledger._watchdog.pid} {engine._tmp.parent} {by}", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
