"""Opens a store with its index, says "ready PORT FOLDER", waits to be killed: python store_to_kill.py RUN_ID FOLDER"""

import os
import sys
import time
from pathlib import Path

from e2e.base.cell import Cell
from e2e.connectors.embedded import INDEX, Embedded
from e2e.stack.ledger import Ledger
from e2e.stack.store import Store


def main(run_id: str, folder: str) -> None:
    ledger = Ledger(run_id=run_id, state_dir=Path(folder) / "state")
    store = Store(
        "shared", parent=Path("/dev/shm"), ledger=ledger, environ=dict(os.environ), log_dir=Path(folder) / "logs",
        record=lambda kind, **data: None,
    )  # fmt: skip
    cell = Cell({})
    store.give(Embedded(pool_bytes=1 << 20).config(cell, pool_dir=str(store.folder), block_size=16))
    (store.folder / "region").write_bytes(bytes(1 << 20))
    print("ready", store.addresses[INDEX].rpartition(":")[2], store.folder, flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
