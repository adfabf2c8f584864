"""How long the default grid takes on this CPU, beside its goals.

python -m e2e.tests.benchmarks.cpu_grid [options of maru-e2e run]
Goals are for two cores of a server CPU with nothing else running. A ratio above 1 misses its goal; no ratio fails.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from e2e.base.event import Event
from e2e.recording.journal import read
from e2e.report.floor import floor
from e2e.settings.settings import RECORDING
from e2e.stack.cores import usable_cores

#: Seconds. The rig's own time is what is left of a run without starts and answers: stops, warm-ups, digests, resets.
WHOLE_S, OWN_S, FORK_S = 150, 15, 5


def figures(events: Sequence[Event]) -> list[tuple[str, float, float]]:
    """(what, seconds, goal in seconds)."""
    whole = (events[-1].t_ns - events[0].t_ns) / 1e9
    parts = floor(events, total_s=whole)
    found = [("the whole run", whole, WHOLE_S)]
    found.append(("the rig's own time", whole - parts["starts_s"] - parts["tokens_s"], OWN_S))
    how = {event["engine"]: event.data.get("started") for event in events if event.kind == "engine.start"}
    starts = [event["start_s"] for event in events if event.kind == "engine.ready" and how[event["engine"]] == "fork"]
    if len(starts) > 1:  # the first one waits for the imports
        found.append(("a start by fork, median", statistics.median(starts[1:]), FORK_S))
    return found


def main(options: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "e2e.cli", "run", "--out", folder, "--device", "cpu", *options]
        code = subprocess.run(command, check=False).returncode
        events = read(Path(folder) / RECORDING)
    print(f"\nmaru-e2e run, exit code {code}, on {usable_cores()} cores")
    for what, seconds, goal in figures(events):
        print(f"{what:26} {seconds:7.1f} s   goal {goal:4} s   ratio {seconds / goal:.2f}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
