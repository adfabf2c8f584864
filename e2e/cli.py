"""The command line: settings in, exit code out. Whatever goes wrong becomes one sentence and an exit code."""

from __future__ import annotations

import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from e2e.base.connector import Adapter
from e2e.base.errors import EXIT_RIG, EXIT_USAGE, RigError, Stopped, UsageError
from e2e.connectors.table import load
from e2e.grid.cells import Grid, engine_key, expand
from e2e.recording.reader import is_there
from e2e.settings import device as devices
from e2e.settings import flags, words
from e2e.settings.resolve import resolve, resolve_selection
from e2e.settings.settings import RECORDING

PROGRAM = "maru-e2e"
EXIT_INTERRUPTED = 130
app = typer.Typer(
    name=PROGRAM,
    help="Proves that a KV-cache connector's cached rerun came from its cache and is what the engine would compute.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_folders: list[Path] = []


@app.command()
def run(
    grid: flags.Grid = None,
    cell: flags.Cells = None,
    connector: flags.Connector = None,
    connector_server: flags.ConnectorServer = None,
    attach: flags.Attach = None,
    lengths: flags.Lengths = None,
    resume: flags.Resume = False,
    out: flags.Out = None,
    model: flags.Model = None,
    strict: flags.Strict = None,
    device: flags.Device = None,
    attention: flags.Attention = None,
    pool_size: flags.PoolSize = None,
    kv_cache_size: flags.KvCacheSize = None,
    max_tokens: flags.MaxTokens = None,
    start_limit_s: flags.StartLimit = None,
    request_limit_s: flags.RequestLimit = None,
    digests: flags.Digests = None,
    prompts: flags.Prompts = None,
    launcher: flags.LaunchWith = None,
    image: flags.Image = None,
    api_key: flags.ApiKey = None,
    prompts_dir: flags.PromptsDir = None,
    engine_python: flags.EnginePython = None,
) -> int:
    """Replay prompts over a grid of settings on real engines and judge every cell.

    Exit codes: 0 all pass, 1 corrupt, 2 usage, 3 inconclusive, 4 engine error, 70 the rig's own error.
    """
    settings = resolve(locals(), argv=sys.argv[1:])
    _folders.append(settings.out)
    from e2e.run import run as run_all

    return run_all(settings)


@app.command()
def faults(
    fault: flags.Faults = None,
    rounds: flags.Rounds = None,
    grid: flags.Grid = None,
    cell: flags.Cells = None,
    connector: flags.Connector = None,
    resume: flags.Resume = False,
    out: flags.Out = None,
    model: flags.Model = None,
    device: flags.Device = None,
    attention: flags.Attention = None,
    lengths: flags.Lengths = None,
    prompts: flags.Prompts = None,
    max_tokens: flags.MaxTokens = None,
    digests: flags.Digests = None,
    prompts_dir: flags.PromptsDir = None,
    engine_python: flags.EnginePython = None,
) -> int:
    """Can the rig see it? Plant faults in every cell beside clean twins, and print the scoreboard.

    Exit codes: 0 every fault caught and no false alarm, 1 a fault missed or a false alarm, else as in run.
    """
    wanted = {**locals(), "self_test": True, "prompts": prompts or 2, "max_tokens": max_tokens or 4}
    settings = resolve(wanted, argv=sys.argv[1:])
    _folders.append(settings.out)
    from e2e.run import run as run_all

    return run_all(settings)


@app.command()
def gain(
    axis: flags.Axis = None,
    a: flags.SpecA = None,
    b: flags.SpecB = None,
    concurrency: flags.AtOnce = None,
    repeats: flags.Repeats = 10,
    rounds: flags.GainRounds = 2,
    cell: flags.Cells = None,
    connector: flags.Connector = None,
    lengths: flags.Lengths = None,
    out: flags.Out = None,
    model: flags.Model = None,
    device: flags.Device = None,
    attention: flags.Attention = None,
    pool_size: flags.PoolSize = None,
    kv_cache_size: flags.KvCacheSize = None,
    start_limit_s: flags.StartLimit = None,
    request_limit_s: flags.RequestLimit = None,
    judge: flags.JudgeOnly = None,
    prompts_dir: flags.PromptsDir = None,
    engine_python: flags.EnginePython = None,
) -> int:
    """Is a change worth it? Two settings or two connectors, measured in turn and judged against the noise.

    Exit codes as of run: 0 with a figure for every branch, 3 where there is none.
    """
    given = dict(locals())
    from e2e import gain as rooms

    if judge:
        if not is_there(judge / RECORDING):
            raise UsageError(f"{judge} holds no {RECORDING}; give the folder of a comparison.")
        return rooms.report(judge)
    if bool(a) != bool(b):
        raise UsageError("--a and --b go together; give both.")
    at_once = (1, 8) if concurrency is None else words.lengths(concurrency, flag="--concurrency")
    wanted = rooms.Wanted(
        axis=axis[0] if axis else None, values=axis[1:] if axis else (), specs=(a, b) if a and b else (),
        concurrency=at_once, repeats=repeats, rounds=rounds,
    )  # fmt: skip
    settings = resolve(given, argv=sys.argv[1:])
    _folders.append(settings.out)
    return rooms.gain(settings, wanted)


@app.command()
def placement(
    out: flags.Out = None,
    device: flags.Device = None,
    quick: flags.Quick = False,
    engine_python: flags.EnginePython = None,
) -> int:
    """Check and time the placement kernels. Exit code 1 when one differs from the reference.

    Without a CUDA GPU what can't run is said and left out.
    """
    from e2e.kernels import placement as run_both

    folder = out or Path("results") / "placement"
    python = words.python(engine_python) if engine_python else None
    return run_both(folder, device=devices.choose(device or "auto"), quick=quick, engine_python=python)


@app.command()
def judge(folder: flags.RunFolder) -> int:
    """Judge a recording again and write its reports anew; nothing is run."""
    if not is_there(folder / RECORDING):
        raise UsageError(f"{folder} holds no {RECORDING}; give the folder of a run.")
    _folders.append(folder)
    from e2e.run import rejudge

    return rejudge(folder)


@app.command()
def cells(
    grid: flags.Grid = None,
    cell: flags.Cells = None,
    connector: flags.Connector = None,
    device: flags.Device = None,
    attention: flags.Attention = None,
) -> int:
    """List the cells that a run would have, with their engine keys, and what can't run with its reason."""
    settings = resolve_selection(locals(), argv=sys.argv[1:])
    adapter = load(settings.connector)
    found = expand(settings.selection, adapter, defaults=settings.axis_defaults, fixed=settings.axis_fixed)
    typer.echo(cells_text(found, adapter))
    return 0 if found.cells else EXIT_USAGE


@app.command()
def doctor(connector_server: flags.ConnectorServer = None, engine_python: flags.EnginePython = None) -> int:
    """Say what this machine can run, and the cure for what it can't. Exit code 0 when the default grid can run."""
    from e2e import doctor as rooms

    lines, code = rooms.doctor(
        server=words.address(connector_server) if connector_server else None,
        engine_python=words.python(engine_python) if engine_python else None,
    )
    typer.echo(rooms.text(lines))
    return code


@app.command()
def setup(
    vllm: flags.Vllm = None, venv: flags.Venv = None, device: flags.Device = None, dry_run: flags.DryRun = False
) -> int:
    """Make the environment that engines run in: vLLM for what this machine has, and the default model."""
    from e2e.setup import setup as make

    return make(device=device or "auto", vllm=vllm, venv=venv, dry_run=dry_run)


@app.command()
def night(folder: flags.NightFolder, history: flags.History = None) -> int:
    """Close a night of scripts/nightly: summary.md, issue.md, junit.xml, compared with earlier good nights."""
    from e2e.report.nightly_files import close_night

    code, summary = close_night(folder, history=history)
    typer.echo(summary)
    return code


def cells_text(grid: Grid, adapter: Adapter) -> str:
    """One line a cell: id, engine key; then what collapsed and what is invalid."""
    rows = [("CELL", "ENGINE KEY"), *((cell.id, engine_key(cell, adapter)) for cell in grid.cells)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {key}" for name, key in rows]
    lines += ["", f"connector: {adapter.name}", f"cells: {len(grid.cells)}"]
    lines += [f"engine keys: {len({key for _, key in rows[1:]})}"]
    if grid.collapsed:
        lines.append(f"axes without a choice here: {', '.join(grid.collapsed)}")
    lines += [f"invalid: {invalid.cell.id}: {invalid.why}" for invalid in grid.invalid]
    return "\n".join(lines)


def execute(argv: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; prints one sentence for whatever stopped it.

    Some versions of typer turn ^C into the exit code 130, others into Abort.
    """
    _folders.clear()
    try:
        code = app(args=list(argv), prog_name=PROGRAM, standalone_mode=False) or 0
        return _say_stopped(code, argv) if code == EXIT_INTERRUPTED else code
    except Stopped as stopped:
        return _say_stopped(stopped.exit_code, argv)
    except RigError as error:
        return _say(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _say_stopped(EXIT_INTERRUPTED, argv)
    except Exception as error:
        # newer typer carries its own copy of click, so its usage errors have no public class
        if hasattr(error, "format_message"):
            return _say(f"{error.format_message().rstrip('.')}; see {PROGRAM} --help.", EXIT_USAGE)
        where = _save_trace(traceback.format_exc())
        return _say(f"the rig itself failed ({type(error).__name__}); {where}, please report it.", EXIT_RIG)


def _say(sentence: str, code: int) -> int:
    sys.stderr.write(f"{PROGRAM}: {sentence}\n")
    return code


def _say_stopped(code: int, argv: Sequence[str]) -> int:
    """With a way to go on where there is one: a run that has begun to record."""
    recorded = [folder for folder in _folders if (folder / RECORDING).is_file()]
    resumable = recorded and argv[:1] in (["run"], ["faults"])
    hint = f"; {PROGRAM} run --resume --out {recorded[0]} continues it" if resumable else ""
    return _say(f"stopped by a signal{hint}.", code)


def _save_trace(trace: str) -> str:
    """Keeps the trace with the run, or in a temporary file, and says where."""
    for folder in [*_folders, Path(tempfile.gettempdir())]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", prefix="crash-", suffix=".txt", dir=folder, delete=False) as file:
                file.write(trace)
            return f"the trace is in {file.name}"
        except OSError:
            continue
    return "the trace could not be saved"


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Stopped(number)


def main() -> NoReturn:
    """The console script. SIGTERM and SIGHUP end a run like ^C, so that engines are stopped. ^C does also where a shell
    started the rig in the background and had it ignored, which engines would inherit; nohup is heeded."""
    heeded = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        heeded.append(signal.SIGHUP)
    for number in heeded:
        signal.signal(number, _stop)
    raise SystemExit(execute(sys.argv[1:]))


if __name__ == "__main__":
    main()
