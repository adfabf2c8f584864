"""Flags (None: not given) and, for --resume, the recording of the run that is continued become ``Settings``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from e2e.base.errors import RecordingError, SettingsError, UsageError
from e2e.grid.selection import parse_cell
from e2e.recording.journal import read
from e2e.recording.resume import check_same, settings_of
from e2e.settings import device, words
from e2e.settings.settings import FREE_ON_RESUME, RECORDING, Settings

RESULTS = Path("results")

#: flag -> (setting, its parser)
_PARSERS: Mapping[str, tuple[str, Callable]] = {
    "grid": ("grid", words.grid),
    "cell": ("cells", lambda given: tuple(parse_cell(text) for text in given)),
    "connector": ("connector", lambda word: str(Path(word).resolve()) if word.endswith(".toml") else word),
    "connector_server": ("connector_server", words.address),
    "attach": ("attach", words.url),
    "lengths": ("lengths", words.lengths),
    "model": ("model", lambda word: str(Path(word).resolve()) if Path(word).is_dir() else word),
    "strict": ("strict", bool),
    "device": ("device", device.choose),
    "attention": ("attention", str),
    "pool_size": ("pool_bytes", lambda word: words.size("--pool-size", word)),
    "kv_cache_size": ("kv_cache_bytes", lambda word: words.size("--kv-cache-size", word)),
    "max_tokens": ("max_tokens", lambda number: int(words.positive("--max-tokens", number))),
    "digests": ("digests", bool),
    "prompts": ("prompts", lambda number: int(words.positive("--prompts", number))),
    "self_test": ("self_test", bool),
    "fault": ("faults", tuple),
    "rounds": ("rounds", lambda number: int(words.positive("--rounds", number))),
    "launcher": ("launcher", words.launcher),
    "image": ("image", str),
    "api_key": ("api_key", words.key),
    "prompts_dir": ("prompts_dir", words.folder),
    "engine_python": ("engine_python", words.python),
    "start_limit_s": ("start_limit_s", lambda number: words.positive("--start-limit-s", number)),
    "request_limit_s": ("request_limit_s", lambda number: words.positive("--request-limit-s", number)),
}


def resolve(flags: Mapping[str, object], *, argv: Sequence[str] = (), results: Path = RESULTS) -> Settings:
    """The settings of ``maru-e2e run``. Raises UsageError or SettingsError with one sentence.

    With ``resume`` (and ``out``, or else the newest run under ``results``) flags that are not given are those of the
    run that is continued; given ones may not differ from it where that would change what is measured.
    """
    given = _parsed(flags)
    out = flags.get("out")
    if not flags.get("resume"):
        folder = _new_folder(Path(str(out)) if out else None, results)
        return _settings(given, out=folder, argv=argv)
    folder = Path(str(out)) if out else _newest(results)
    before = settings_of(read(folder / RECORDING))
    settings = _settings({**before, **given}, out=folder, argv=argv, resume=True)
    check_same(_settings(before, out=folder, argv=argv).as_json(), settings.as_json(), ignore=FREE_ON_RESUME)
    return settings


def resolve_selection(flags: Mapping[str, object], *, argv: Sequence[str] = ()) -> Settings:
    """The settings of ``maru-e2e cells``: nothing runs, so no folder is looked at."""
    return _settings(_parsed(flags), out=RESULTS, argv=argv)


def _parsed(flags: Mapping[str, object]) -> dict[str, object]:
    given = {}
    for flag, (name, parse) in _PARSERS.items():
        raw = flags.get(flag)
        if raw is not None and raw != []:
            given[name] = parse(raw)
    return given


def _settings(values: Mapping[str, object], *, out: Path, argv: Sequence[str], resume: bool = False) -> Settings:
    chosen = dict(values)
    chosen.setdefault("device", device.choose("auto"))
    if chosen["device"] == "cpu" and not chosen.get("attach"):
        chosen["attention"] = chosen.get("attention") or "strided"
    if chosen.get("launcher") == "docker" and chosen.get("attach"):
        raise SettingsError("--attach takes a running engine, so --launcher docker has nothing to start; drop one.")
    if chosen["device"] == "cuda" and chosen.get("attention") == "strided":
        raise SettingsError("--attention strided is a CPU backend; leave it out, or use --device cpu.")
    try:
        return Settings.model_validate({**chosen, "out": out, "argv": words.redacted(argv), "resume": resume})
    except ValidationError as error:
        key = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise RecordingError(
            f"--resume: the recording in {out} has settings that this version can't use ({key}); start a new run."
        ) from error


def _new_folder(out: Path | None, results: Path) -> Path:
    """The folder to write to, not made yet. Raises UsageError when it holds a run already or can't be a folder."""
    if out is None:
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        names = [stamp, *(f"{stamp}-{number}" for number in range(2, 100))]
        return next(results / name for name in names if not (results / name).exists())
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out: {out} is a file; give a folder.")
    if (out / RECORDING).exists() and read(out / RECORDING):
        raise UsageError(f"--out: {out} holds a run already; add --resume to continue it, or choose another folder.")
    return out


def _newest(results: Path) -> Path:
    recordings = sorted(results.glob(f"*/{RECORDING}"), key=lambda path: (path.stat().st_mtime_ns, path))
    if not recordings:
        raise UsageError(f"--resume: there is no run under {results}; give its folder with --out.")
    return recordings[-1].parent
