"""Recordings of several runs as one: what shards of a grid saw, in a file that is judged like any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.base.errors import UsageError
from e2e.base.event import Event
from e2e.recording.journal import encode
from e2e.recording.resume import differing, settings_of


@dataclass(frozen=True)
class Share:
    """One recording, by the folder that it lies in."""

    folder: Path
    events: Sequence[Event]

    @property
    def runs(self) -> set[object]:
        return {event["run_id"] for event in self.events if event.kind == "run.begin"}

    @property
    def cells(self) -> list[str]:
        return [event["cell"] for event in self.events if event.kind == "plan.cell"]


def gathered(shares: Sequence[Share], *, free: Iterable[str] = ()) -> list[Event]:
    """The events of all shares, one after the other: the attempts of each follow on those before it, and its engine
    starts are told from theirs. ``free``: settings in which shares may differ.

    Raises UsageError for a run or a cell that stands in two of them, and for runs that measured different things.
    """
    _check(shares, free)
    events: list[Event] = []
    before = 0
    for number, share in enumerate(shares, start=1):
        lay = _lay(share.events)
        events += [_moved(_found(event, lay, share.folder), before, number) for event in share.events]
        before += sum(event.kind == "run.begin" for event in share.events)
    return events


def write(path: Path, events: Sequence[Event]) -> None:
    """Raises UsageError where a file is or can't be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.writelines(encode(event, seq) for seq, event in enumerate(events))
    except FileExistsError as error:
        raise UsageError(f"{path} is there already; give another --out.") from error
    except OSError as error:
        raise UsageError(f"{path} can't be written ({error.strerror}); give another --out.") from error


def count(share: Share, runs: dict[object, Path]) -> None:
    """Adds its runs to ``runs``, which are those of other folders so far. UsageError for one that would count twice."""
    for run in share.runs:
        if (twin := runs.setdefault(run, share.folder)) is not share.folder:
            raise UsageError(f"{share.folder} and {twin} hold the same run; give each once.")


def _check(shares: Sequence[Share], free: Iterable[str]) -> None:
    runs: dict[object, Path] = {}
    cells: dict[str, Path] = {}
    for share in shares:
        count(share, runs)
        for cell in share.cells:
            if (twin := cells.setdefault(cell, share.folder)) is not share.folder:
                raise UsageError(f"the cell {cell} stands in {twin} and in {share.folder}; merge shards of one grid.")
    first, *others = shares
    for share in others:
        one, other = settings_of(first.events), settings_of(share.events)
        if names := differing(one, other, ignore=free):
            name = names[0]
            raise UsageError(
                f"{first.folder} and {share.folder} differ in {', '.join(names)} ({name}: {one.get(name)!r} and "
                f"{other.get(name)!r}); merge shards of one grid."
            )


def _lay(events: Sequence[Event]) -> Path | None:
    """Where the run's folder was, while it ran."""
    begun = next((event for event in events if event.kind == "run.begin"), None)
    out, folder = (begun["settings"].get("out"), begun.data.get("folder")) if begun else (None, None)
    return Path(str(folder or "/"), str(out)) if out else None


def _found(event: Event, lay: Path | None, folder: Path) -> Event:
    """With its log where that lies now: with the recording, from wherever that was brought."""
    log = event.data.get("log")
    if lay is None or not isinstance(log, str) or not Path(log).is_relative_to(lay):
        return event
    return Event(event.kind, {**event.data, "log": str(folder.absolute() / Path(log).relative_to(lay))}, event.t_ns)


def _moved(event: Event, attempts: int, number: int) -> Event:
    data: Mapping[str, object] = event.data
    changed: dict[str, object] = {}
    if "attempt" in data:
        changed["attempt"] = data["attempt"] + attempts  # type: ignore[operator]
    if data.get("engine") is not None and number > 1:
        changed["engine"] = f"{data['engine']}@{number}"
    return Event(event.kind, {**data, **changed}, event.t_ns)
