"""The commands: each takes its flags, calls the room that does it, and returns an exit code.

A flag is added as a field: of a group in ``settings.settings`` when a run has it (it is recorded then), or of a
command's own class in ``settings.commands``. Name, words, default, help, variable and key of a file stand there and
nowhere else. A command is a function here that takes its class as ``flags``.
"""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from e2e.base.errors import EXIT_PASS, SettingsError, UsageError
from e2e.base.spelling import count
from e2e.connectors.table import load
from e2e.grid.cells import expand, in_scenarios, shard
from e2e.grid.listing import cells_text, invalid_text
from e2e.recording.reader import is_there
from e2e.settings import device as devices
from e2e.settings.commands import (
    CanaryFlags,
    DoctorFlags,
    FaultFlags,
    GainFlags,
    JudgeFlags,
    MergeFlags,
    NightFlags,
    PlacementFlags,
    RunFlags,
    ScoreboardFlags,
    SetupFlags,
    ShrinkFlags,
)
from e2e.settings.flags import FLAT
from e2e.settings.resolve import new_folder, resolve, resolve_selection
from e2e.settings.settings import RECORDING, Settings

PROGRAM = "maru-e2e"
app = App(
    name=PROGRAM,
    help="Proves that a KV-cache connector's cached rerun came from its cache and is what the engine would compute.\n\n"
    "Every flag is also a variable, as MARU_E2E_MAX_TOKENS, and those of a run are keys of a file of --config. "
    "Flags win over variables, and variables over the file.",
    help_format="plaintext",
    version=lambda: version(PROGRAM),
)


@dataclass
class Call:
    """One command line under way: the words that were typed, ``argv`` with those that variables and a file stand for,
    and the folder that it writes to as soon as that is known."""

    typed: tuple[str, ...]
    argv: tuple[str, ...] = ()
    folder: Path | None = None


Ours = Annotated[Call, Parameter(parse=False)]


@app.command
def run(*, flags: Annotated[RunFlags | None, FLAT] = None, call: Ours) -> int:
    """Replay prompts over a grid of settings on real engines and judge every cell.

    Exit codes: 0 all pass, 1 corrupt, 2 usage, 3 inconclusive, 4 engine error, 70 the rig's own error.
    """
    return _played(resolve(flags or RunFlags(), argv=call.argv), call)


@app.command
def faults(*, flags: Annotated[FaultFlags | None, FLAT] = None, call: Ours) -> int:
    """Can the rig see it? Plant faults in every cell beside clean twins, and print the scoreboard.

    Exit codes: 0 every fault caught and no false alarm, 1 a fault missed or a false alarm, else as in run.
    """
    return _played(resolve(flags or FaultFlags(), argv=call.argv, self_test=True), call)


def _played(settings: Settings, call: Call) -> int:
    call.folder = settings.out
    if settings.executor == "ray":
        from e2e.fleet.command import run as run_on_cluster

        return run_on_cluster(settings)
    from e2e.run import run as run_here

    return run_here(settings)


@app.command(show=False)
def share(folder: Path, number: int, of: int, /) -> int:
    """What ``--executor ray`` starts on a node: a share of the run whose settings lie beside its folder."""
    settings = Settings.recorded(json.loads(folder.with_name("settings.json").read_text()))
    from e2e.run import run as run_here

    with contextlib.redirect_stdout(io.StringIO()):  # the driver prints the table of the whole
        return run_here(settings, (number, of))


@app.command
def gain(*, flags: Annotated[GainFlags | None, FLAT] = None, call: Ours) -> int:
    """Is a change worth it? Two settings or two connectors, measured in turn and judged against the noise.

    Exit codes as of run: 0 with an answer for every branch, 3 where there is no figure, or the effect is one that can't
    be seen here.
    """
    flags = flags or GainFlags()
    from e2e import gain as rooms

    if flags.judge:
        typed = any(word.split("=")[0] == "--out" for word in call.typed)  # MARU_E2E_OUT is another run's folder
        return rooms.report(_recorded(flags.judge, "a comparison"), out=flags.out if typed else None)
    if bool(flags.a) != bool(flags.b):
        raise UsageError("--a and --b go together; give both.")
    wanted = rooms.Wanted(
        axis=flags.axis[0] if flags.axis else None, values=flags.axis[1:] if flags.axis else (),
        specs=(flags.a, flags.b) if flags.a and flags.b else (),
        concurrency=flags.concurrency, repeats=flags.repeats, rounds=flags.rounds, looks=flags.looks,
        effect=flags.effect / 100,
    )  # fmt: skip
    settings = resolve(flags, argv=call.argv)
    call.folder = settings.out
    return rooms.gain(settings, wanted)


@app.command
def canary(*, flags: Annotated[CanaryFlags | None, FLAT] = None, call: Ours) -> int:
    """Watch engines in use: read-only probes within a budget, metrics, and an alert when a load is wrong.

    Runs until it is stopped. Exit codes: 0 loads were seen and none was wrong, 1 one was, 3 none was seen.
    """
    flags = flags or CanaryFlags()
    from e2e.canary.command import canary as watch

    return watch(flags, argv=call.argv)


@app.command
def placement(*, flags: Annotated[PlacementFlags | None, FLAT] = None) -> int:
    """Check and time the placement kernels. Exit code 1 when one differs from the reference.

    Without a CUDA GPU what can't run is said and left out.
    """
    flags = flags or PlacementFlags()
    from e2e.lab.command import placement as run_both

    device = flags.device if "device" in flags.given else devices.choose("auto")
    return run_both(flags.out, device=device, quick=flags.quick, engine_python=flags.engine_python)


@app.command
def judge(
    folder: Annotated[Path, Parameter(help="Folder of a run.")], /, *,
    flags: Annotated[JudgeFlags | None, FLAT] = None, call: Ours,
) -> int:  # fmt: skip
    """Judge a recording again and write its reports anew; nothing is run."""
    out = (flags or JudgeFlags()).out
    call.folder = out or folder
    _recorded(folder, "a run")
    from e2e.run import rejudge

    return rejudge(folder, out=out)


@app.command
def scoreboard(
    folders: Annotated[tuple[Path, ...], Parameter(help="Folders of runs.")], /, *,
    flags: Annotated[ScoreboardFlags | None, FLAT] = None,
) -> int:  # fmt: skip
    """Judge several recordings again and add them up: faults caught, and false alarms of clean cells; nothing is run.

    Exit codes as of faults.
    """
    for folder in folders:
        _recorded(folder, "a run")
    from e2e.run import add_up

    return add_up(folders, out=(flags or ScoreboardFlags()).out)


@app.command
def merge(
    folders: Annotated[tuple[Path, ...], Parameter(help="Folders of runs.")], /, *,
    flags: Annotated[MergeFlags | None, FLAT] = None, call: Ours,
) -> int:  # fmt: skip
    """Put recordings of several runs together, such as those of --shard, and judge them as one; nothing is run.

    Exit codes as of run, and of faults where some were planted.
    """
    out = new_folder((flags or MergeFlags()).out)
    for folder in folders:
        _recorded(folder, "a run")
    call.folder = out
    from e2e.run import merge as put_together

    return put_together(folders, out=out)


@app.command
def shrink(
    folder: Annotated[Path, Parameter(help="Folder of a run with a corrupt cell.")], /, *,
    flags: Annotated[ShrinkFlags | None, FLAT] = None, call: Ours,
) -> int:  # fmt: skip
    """Reduce a corrupt cell to the least that still fails, on real engines, and print the command that replays it.

    Exit codes: 1 with what still fails, 3 when the cell does not fail again, else as in run.
    """
    flags = flags or ShrinkFlags()
    _recorded(folder, "a run")
    from e2e.shrink.shrinking import Limits
    from e2e.shrink.shrinking import shrink as reduce

    call.folder = flags.out or folder
    limits = Limits(flags.starts, flags.minutes * 60)
    return reduce(folder, cell=flags.cell, limits=limits, out=flags.out, resume=flags.resume, argv=call.argv)


@app.command
def cells(*, flags: Annotated[RunFlags | None, FLAT] = None, call: Ours) -> int:
    """List the cells that a run with these flags would have, with their engine keys, and what can't run and why."""
    flags = flags or RunFlags()
    settings = (resolve if flags.resume else resolve_selection)(flags, argv=call.argv)
    adapter = load(settings.connector, pool_bytes=settings.pool_bytes, pool_pace=settings.pool_pace)
    from e2e.chosen import tellable

    grid = expand(settings.selection, adapter, defaults=settings.axis_defaults, fixed=settings.axis_fixed)
    found = tellable(in_scenarios(grid, settings.stories, settings.stories), adapter)
    if not found.cells:
        raise SettingsError(
            f"no cell is left to run; {'; '.join(invalid_text(found.invalid))}; widen --cell or --grid."
        )
    print(cells_text(shard(found, adapter, *settings.shard) if settings.shard else found, adapter))
    return EXIT_PASS


@app.command
def doctor(*, flags: Annotated[DoctorFlags | None, FLAT] = None) -> int:
    """Say what this machine can run, and the cure for what it can't. Exit code 0 when the default grid can run."""
    flags = flags or DoctorFlags()
    from e2e import doctor as rooms

    lines, code = rooms.doctor(server=flags.connector_server, engine_python=flags.engine_python)
    print(rooms.text(lines))
    return code


@app.command
def night(
    folder: Annotated[Path, Parameter(help="Folder of a night of scripts/nightly.")], /, *,
    flags: Annotated[NightFlags | None, FLAT] = None,
) -> int:  # fmt: skip
    """Close a night of scripts/nightly: summary.md, issue.md, junit.xml, compared with earlier good nights."""
    from e2e.report.nightly_files import close_night

    code, summary = close_night(folder, history=(flags or NightFlags()).history)
    print(summary)
    return code


@app.command
def index(folder: Annotated[Path, Parameter(help="Folder that holds runs or nights.")], /) -> int:
    """Write index.html over all runs and nights below a folder: a static page beside them, to open or to publish."""
    from e2e.report.index import write_index

    runs, nights = write_index(folder)
    print(f"{folder / 'index.html'}: {count(runs, 'run')}, {count(nights, 'night')}")
    return EXIT_PASS


@app.command
def setup(*, flags: Annotated[SetupFlags | None, FLAT] = None) -> int:
    """Make the environment that engines run in: vLLM for what this machine has, and the default model."""
    flags = flags or SetupFlags()
    from e2e.setup import setup as make

    return make(device=flags.device, vllm=flags.vllm, venv=flags.venv, dry_run=flags.dry_run)


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the script that completes this command in a shell."""
    print(app.generate_completion(shell=shell))
    return EXIT_PASS


def _recorded(folder: Path, what: str) -> Path:
    if not is_there(folder / RECORDING):
        raise UsageError(f"{folder} holds no {RECORDING}; give the folder of {what}.")
    return folder
