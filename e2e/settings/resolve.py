"""What was given and, for --resume, the recording of the run that is continued become ``Settings``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from e2e.base import redact
from e2e.base.errors import RecordingError, SettingsError, UsageError
from e2e.base.event import Event
from e2e.grid.cells import RERUN
from e2e.recording.journal import read
from e2e.recording.resume import check_same, settings_of
from e2e.settings import device
from e2e.settings.flags import Flags
from e2e.settings.settings import FREE_ON_RESUME, RECORDING, Settings

RESULTS = Path("results")


def resolve(flags: Flags, *, argv: Sequence[str] = (), results: Path = RESULTS, self_test: bool = False) -> Settings:
    """The settings of a run. Raises UsageError or SettingsError with one sentence.

    With ``resume`` (and ``out``, or else the newest run under ``results``) what is not given is that of the run that is
    continued; what is given may not differ from it where that would change what is measured.
    """
    given = {**flags.given, **({"self_test": True} if self_test else {})}
    out = given.pop("out", None)
    if not given.pop("resume", False):
        return _settings({**_defaults(flags), **given}, out=new_folder(out, results), argv=argv)
    folder = out or _newest(results)
    before = _settings_before(folder)
    settings = _settings({**before, **given}, out=folder, argv=argv, resume=True)
    if redact.HIDDEN in (settings.attach or ""):
        raise UsageError(
            "--resume: the user and password of --attach were not recorded; give --attach with them again."
        )
    same = (redact.redacted(each.as_json())[0] for each in (_settings(before, out=folder, argv=argv), settings))
    check_same(*same, ignore=FREE_ON_RESUME)
    return settings


def resolve_selection(flags: Flags, *, argv: Sequence[str] = ()) -> Settings:
    """The settings of ``maru-e2e cells``: nothing runs, so no folder is looked at."""
    return _settings({**_defaults(flags), **flags.given}, out=RESULTS, argv=argv)


def _defaults(flags: Flags) -> dict[str, object]:
    """A command's own ones may differ from those of a run. Which device is there is asked only when nobody chose."""
    fields = type(flags).model_fields
    return {name: field.default for name, field in fields.items() if name not in ("device", "out", "resume")}


def _settings(values: Mapping[str, object], *, out: Path, argv: Sequence[str], resume: bool = False) -> Settings:
    chosen = dict(values)
    chosen.setdefault("device", device.choose("auto"))
    if chosen["device"] == "cpu" and not chosen.get("attach"):
        chosen["attention"] = chosen.get("attention") or "strided"
    if chosen.get("launcher") == "docker" and chosen.get("attach"):
        raise SettingsError("--attach takes a running engine, so --launcher docker has nothing to start; drop one.")
    if chosen.get("executor") == "ray" and chosen.get("attach"):
        raise SettingsError("--attach takes a running engine, so --executor ray has nothing to start; drop one.")
    if chosen.get("runtime_env") and chosen.get("executor") != "ray":
        raise SettingsError("--runtime-env is for --executor ray; give both, or drop it.")
    if chosen.get("program") and tuple(chosen.get("scenarios", (RERUN,))) != (RERUN,):
        raise SettingsError("--program is the story of each cell, and --scenario names another; drop one.")
    if chosen["device"] == "cuda" and chosen.get("attention") == "strided":
        raise SettingsError("--attention strided is a CPU backend; leave it out, or use --device cpu.")
    _check_alone(chosen)
    if not chosen.get("attach") and any(word.split("=")[0] == "--api-key" for word in argv):  # a variable may stay set
        raise SettingsError("--api-key is for the engine of --attach; give both, or drop it.")
    try:
        return Settings.recorded({**chosen, "out": out, "argv": redact.words(argv), "resume": resume})
    except ValidationError as error:
        key = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise RecordingError(
            f"--resume: the recording in {out} has settings that this version can't use ({key}); start a new run."
        ) from error


def _check_alone(chosen: Mapping[str, object]) -> None:
    """Who shares what with whom."""
    at_once, timed = chosen.get("side_by_side", 1), chosen.get("timed")
    if at_once != 1 and timed:
        raise SettingsError(f"--timed has the machine to itself, and --side-by-side {at_once} shares it; drop one.")
    if at_once != 1 and (chosen.get("attach") or chosen.get("launcher") == "docker"):
        other = "--attach" if chosen.get("attach") else "--launcher docker"
        raise SettingsError(f"--side-by-side shares this machine among engine processes of ours; drop it or {other}.")
    if timed and chosen.get("executor") == "ray":
        raise SettingsError("--timed has this machine to itself, and --executor ray plays on others, too; drop one.")
    if timed and chosen.get("attach"):
        raise SettingsError(
            "--timed lets no other run have engines, and who uses that of --attach is not known; drop one."
        )


def _settings_before(folder: Path) -> Mapping[str, object]:
    """Of the run in ``folder``. UsageError when none began there, or when it holds a comparison."""
    events = read(folder / RECORDING)
    settings = settings_of(events)
    if is_comparison(events):
        raise UsageError(f"--resume: {folder} is a comparison, which can't be continued; start maru-e2e gain again.")
    return settings


def is_comparison(events: Sequence[Event]) -> bool:
    """Was it recorded by ``maru-e2e gain``? The word of its command line tells also when it ended before its plan."""
    return any(
        event.kind == "gain.plan" or (event.kind == "run.begin" and [*event["command"]][1:2] == ["gain"])
        for event in events
    )


def new_folder(out: Path | None, results: Path = RESULTS) -> Path:
    """The folder to write to, not made yet. Raises UsageError when it holds a run already."""
    if out is None:
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        names = [stamp, *(f"{stamp}-{number}" for number in range(2, 100))]
        return next(results / name for name in names if not (results / name).exists())
    if (out / RECORDING).exists() and read(out / RECORDING):
        raise UsageError(f"--out: {out} holds a run already; add --resume to continue it, or choose another folder.")
    return out


def _newest(results: Path) -> Path:
    """The newest folder in which a run began: what failed before that has nothing to continue."""
    recordings = sorted(results.glob(f"*/{RECORDING}"), key=lambda path: (path.stat().st_mtime_ns, path))
    for path in reversed(recordings):
        if _began(path):
            return path.parent
    raise UsageError(f"--resume: there is no run under {results}; give its folder with --out.")


def _began(recording: Path) -> bool:
    try:
        events = read(recording)
    except RecordingError:
        return True  # a damaged one is the newest all the same, and is named
    return any(event.kind == "run.begin" for event in events) and not is_comparison(events)
