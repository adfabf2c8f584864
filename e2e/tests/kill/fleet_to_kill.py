"""A driver with a Ray of its own: ``fleet_to_kill.py SOURCE OUT``, see share_to_kill.py."""

import signal
import sys
from pathlib import Path

from e2e.base.errors import Stopped
from e2e.cli import _stop
from e2e.fleet.cluster import cluster
from e2e.fleet.command import play
from e2e.fleet.node import Task
from e2e.fleet.share import Need
from e2e.fleet.whole import Whole
from e2e.settings.settings import Settings
from e2e.settings.world import ray_address, state_dir
from e2e.stack.ledger import Ledger
from e2e.tests.kill.share_to_kill import SOURCE

STANDIN = Path(__file__).with_name("share_to_kill.py")


def drive(source: Path, out: Path, *, run_id: str) -> None:
    """Two shares, one after the other or on two nodes."""
    task = Task({}, {SOURCE: str(source)}, str(source), (str(STANDIN),))
    with (
        Whole(Settings.recorded({"out": out})) as whole,
        Ledger(run_id=run_id, state_dir=state_dir()) as ledger,
        cluster(ledger, task, address=ray_address(), runtime_env=None) as found,
    ):
        for number in (1, 2):
            whole.add((number, 2), f"key{number}", [], Need(1))
        play(whole, found)
        whole.write()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)  # as the command line has it
    try:
        drive(*map(Path, sys.argv[1:3]), run_id=sys.argv[3])
    except Stopped as stopped:
        raise SystemExit(stopped.exit_code) from None
