"""How long the default grid takes on this CPU, and its four arms alone, beside its goals.

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
from e2e.report.overhead import overhead
from e2e.settings.settings import RECORDING
from e2e.stack.cores import usable_cores

#: Seconds. The rig's own time is what is left of a run without starts and answers: stops, warm-ups, digests, resets.
WHOLE_S, OWN_S, FORK_S = 150, 15, 5
#: What the rerun may cost, by what its four arms alone do.
GROWN = 1.4


def figures(events: Sequence[Event]) -> list[tuple[str, float, float]]:
    """(what, seconds, goal in seconds)."""
    whole = _whole_s(events)
    parts = overhead(events, total_s=whole)
    found = [("the whole run", whole, WHOLE_S)]
    found.append(("the rig's own time", whole - parts["starts_s"] - parts["tokens_s"], OWN_S))
    how = {event["engine"]: event.data.get("started") for event in events if event.kind == "engine.start"}
    starts = [event["start_s"] for event in events if event.kind == "engine.ready" and how[event["engine"]] == "fork"]
    if len(starts) > 1:  # the first one waits for the imports
        found.append(("a start by fork, median", statistics.median(starts[1:]), FORK_S))
    return found


def beside_arms(arms: Sequence[Event], grown: Sequence[Event]) -> tuple[float, float]:
    """What the rerun costs by what the four arms do: the whole run, and its cells alone."""
    return _whole_s(grown) / _whole_s(arms), _cells_s(grown) / _cells_s(arms)


def _whole_s(events: Sequence[Event]) -> float:
    return (events[-1].t_ns - events[0].t_ns) / 1e9


def _cells_s(events: Sequence[Event]) -> float:
    signs = {"cell.begin": -1, "cell.end": 1}
    return sum(signs.get(event.kind, 0) * event.t_ns for event in events) / 1e9


def _run(scenario: str, options: Sequence[str]) -> tuple[int, list[Event]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "e2e.cli", "run", "--out", folder, "--device", "cpu", "--scenario", scenario]
        code = subprocess.run([*command, *options], check=False).returncode
        return code, list(read(Path(folder) / RECORDING))


def main(options: Sequence[str]) -> int:
    (arms_code, arms), (code, grown) = (_run(name, options) for name in ("arms", "replay"))
    print(f"\nmaru-e2e run, exit code {code}, the four arms alone {arms_code}, on {usable_cores()} cores")
    print(f"{'the four arms alone':26} {_whole_s(arms):7.1f} s")
    for what, seconds, goal in figures(grown):
        print(f"{what:26} {seconds:7.1f} s   goal {goal:4} s   ratio {seconds / goal:.2f}")
    for what, times in zip(("the whole run", "its cells"), beside_arms(arms, grown), strict=True):
        print(f"{what + ' by the four arms':32} {times:.2f}   goal {GROWN}   ratio {times / GROWN:.2f}")
    return code or arms_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
