"""The rig's errors, drawn as one tree; each leaf says which exit code it means.

    RigError                 our own fault or an unforeseen one           exit 70
      UsageError             wrong flag, file, axis, prompt, address      exit 2
        SettingsError        a value in a file or flag that can't be used
        RecordingError       a recording that can't be read
      EngineError            the engine could not be started or used      exit 4
        EngineRefused        it ended before it was ready
        EngineCrashed        it ended after it was ready
        EngineTimeout        a named wait ran out
        EngineAnswer         it answered with an HTTP error

A message is one sentence: the cause, then the cure. Foreign exceptions stop at the room that met them.

``Stopped`` is none of them: a signal is nobody's error.
"""

from __future__ import annotations

EXIT_PASS, EXIT_CORRUPT, EXIT_USAGE, EXIT_INCONCLUSIVE, EXIT_ENGINE, EXIT_RIG = 0, 1, 2, 3, 4, 70


class Stopped(BaseException):
    """SIGINT, SIGTERM or SIGHUP told the rig to end. ``exit_code``: 128 + the signal, as shells have it, until the flow
    has judged something corrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.exit_code = 128 + number


class RigError(Exception):
    exit_code = EXIT_RIG


class UsageError(RigError):
    exit_code = EXIT_USAGE


class SettingsError(UsageError):
    """A setting that can't be used."""


class RecordingError(UsageError):
    """A recording that can't be read."""


class EngineError(RigError):
    """``cause`` is the root-cause line picked out of the engine's log, ``log_tail`` its last lines. ``log``: where a
    server's is meant, that. ``recorded``: does the recording hold it already?"""

    exit_code = EXIT_ENGINE
    recorded = False

    def __init__(self, message: str, *, cause: str = "", log_tail: str = "", log: str = "") -> None:
        super().__init__(message)
        self.cause = cause or message
        self.log_tail, self.log = log_tail, log


class EngineRefused(EngineError):
    """The engine ended before it was ready."""


class EngineCrashed(EngineError):
    """The engine ended after it had been ready."""


class EngineTimeout(EngineError):
    """A named wait on the engine ran out."""


class EngineAnswer(EngineError):
    """The engine answered a request with an error; ``status`` is the HTTP code (200 for an error inside a stream)."""

    def __init__(self, message: str, *, status: int, cause: str = "") -> None:
        super().__init__(message, cause=cause)
        self.status = status
