"""The command line: words in, exit code out. Whatever goes wrong becomes one sentence and an exit code."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from cyclopts import CycloptsError

from e2e.base import redact
from e2e.base.errors import EXIT_PASS, EXIT_RIG, EXIT_USAGE, RigError, Stopped
from e2e.commands import PROGRAM, Call, app
from e2e.settings.flags import PREFIX
from e2e.settings.settings import RECORDING
from e2e.settings.sources import Elsewhere, refusal, steps, unknown_variables
from e2e.streams import forgive

EXIT_INTERRUPTED = 130


def execute(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs one command line and returns its exit code; prints one sentence for whatever stopped it."""
    call = Call(tuple(argv))
    if not argv:
        return _say(f"give a command, such as run; see {PROGRAM} --help.", EXIT_USAGE)
    elsewhere = Elsewhere()
    app.config = steps(elsewhere)
    try:
        command, bound, ours = app.parse_args(list(argv), print_error=False, exit_on_error=False)
        _warn_of_variables(environ)
        call.argv = tuple(elsewhere.spelled_out(argv))
        return command(*bound.args, **bound.kwargs, **({"call": call} if "call" in ours else {})) or EXIT_PASS
    except CycloptsError as error:
        return _say(refusal(error), EXIT_USAGE)
    except Stopped as stopped:
        return _say_stopped(stopped.exit_code, call)
    except RigError as error:
        return _say(elsewhere.explained(str(error)), error.exit_code)
    except KeyboardInterrupt:
        return _say_stopped(EXIT_INTERRUPTED, call)
    except (Exception, SystemExit) as error:
        known = redact.secrets(dict(environ)) | redact.secrets(list(argv))
        where = _save_trace(redact.text(traceback.format_exc(), known), call.folder)
        return _say(f"the rig itself failed ({type(error).__name__}); {where}, please report it.", EXIT_RIG)


def _warn_of_variables(environ: Mapping[str, str]) -> None:
    if not any(name.startswith(PREFIX) for name in environ):
        return
    commands = [app[name] for name in app if not name.startswith("-")]
    known = {
        variable
        for command in commands
        for argument in command.assemble_argument_collection()
        for variable in argument.parameter.env_var
    }
    if why := unknown_variables(environ, known):
        _say(why, EXIT_PASS)


def _say(sentence: str, code: int) -> int:
    """One line, whatever a file name, a log or an answer brought into it."""
    line = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in sentence)
    sys.stderr.write(f"{PROGRAM}: {line}\n")
    return code


def _say_stopped(code: int, call: Call) -> int:
    """With a way to go on where there is one: a run that has begun to record."""
    recorded = call.folder is not None and (call.folder / RECORDING).is_file()
    resumable = recorded and call.typed[0] in ("run", "faults")
    again = f"run --resume --out {call.folder}" if resumable else ""
    if call.typed[0] == "shrink":
        again = shlex.join([*call.typed, *(() if "--resume" in call.typed else ("--resume",))])
    hint = f"; {PROGRAM} {again} continues it" if again else ""
    return _say(f"stopped by a signal{hint}.", code)


def _save_trace(trace: str, folder: Path | None) -> str:
    """Keeps the trace with the run, or in a temporary file, and says where."""
    for place in [*([folder] if folder else []), Path(tempfile.gettempdir())]:
        try:
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", prefix="crash-", suffix=".txt", dir=place, delete=False) as file:
                file.write(trace)
            return f"the trace is in {file.name}"
        except OSError:
            continue
    return "the trace could not be saved"


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Stopped(number)


def main() -> NoReturn:
    """The console script. SIGTERM and SIGHUP end a run like ^C, so that engines are stopped. ^C does also where a shell
    started the rig in the background and had it ignored, which engines would inherit; nohup is heeded. Once there is an
    exit code no signal changes it."""
    forgive()
    heeded = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        heeded.append(signal.SIGHUP)
    for number in heeded:
        signal.signal(number, _stop)
    try:
        code = execute(sys.argv[1:])
    except Stopped as second:  # while the first was told
        first = second.__context__
        code = (first if isinstance(first, Stopped) else second).exit_code
    for number in heeded:
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
