"""Events: the only thing that rooms hand over to each other, and all that the judge ever sees.

An event is a kind, a monotonic time and a flat dict of JSON values; ``KINDS`` is the whole vocabulary: kind -> class
whose fields are the keys, see ``kinds.py``. Times ending in ``_ns`` come from ``time.monotonic_ns()`` of the rig's
process; those ending in ``_s`` are seconds. "engine" is the name of one engine start, unique in a recording
(``HND.connector.2``), its "role" a site of the cell's program; "arm" the name of a Send; "cell" a cell's id, or None
for arms of a lent plain site, which belong to every cell of the engine key. "prompt" is the index of a text in the
program, and of a prompt in the attempt's list for its engine key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields

import e2e.base.kinds_arm
import e2e.base.kinds_canary
import e2e.base.kinds_gain  # noqa: F401  (their kinds join the others)
from e2e.base.errors import EngineError
from e2e.base.kinds import ARMS, KINDS

__all__ = ["ARMS", "KINDS", "REQUIRED", "SCHEMA", "Event", "Record", "engine_failed"]

SCHEMA = "maru-e2e/recording/1"

REQUIRED: Mapping[str, frozenset[str]] = {
    kind: frozenset(f.name for f in fields(shape) if f.default is f.default_factory is MISSING)
    for kind, shape in KINDS.items()
}


@dataclass(frozen=True)
class Event:
    """``t_ns``: monotonic nanoseconds of the rig. Raises ValueError for an unknown kind or a missing key; the types of
    ``data`` are checked where it is read."""

    kind: str
    data: Mapping[str, object] = field(default_factory=dict)
    t_ns: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown event kind {self.kind!r}")
        missing = REQUIRED[self.kind] - self.data.keys()
        if missing:
            raise ValueError(f"event {self.kind} lacks {', '.join(sorted(missing))}")

    def __getitem__(self, key: str) -> object:
        return self.data[key]


#: What rooms that see things take: ``record("engine.ready", engine="HND.connector.1", start_s=21.4)``.
#: The recording stamps the time and has the line on disk when it returns.
Record = Callable[..., Event]


def engine_failed(
    record: Record, engine: str, stage: str, error: EngineError, *, cause: str = "", log_tail: str = ""
) -> None:  # fmt: skip
    """Records ``engine.failed``. ``cause``, ``log_tail``: where the error itself has none to tell."""
    record(
        "engine.failed", engine=engine, stage=stage, error=type(error).__name__, cause=cause or error.cause,
        log_tail=log_tail or error.log_tail, **({"log": error.log} if error.log else {}),
    )  # fmt: skip
