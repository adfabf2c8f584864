"""What was run, on what, by which command: the facts without which nobody can place a result."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from e2e.base.judgement import CellJudgement, Judgement
from e2e.base.spelling import count
from e2e.report.facts import RunFacts

Pairs = list[tuple[str, str]]


def identity(facts: RunFacts, judgement: Judgement) -> Pairs:
    """(name, value), of what is known only."""
    run, settings, cells = facts.run, facts.settings, judgement.cells
    versions = _mapping(run.get("versions"))
    rig = [_of(versions, "maru-e2e"), f"commit {versions['commit']}" if "commit" in versions else ""]
    rig.append(f"Python {versions['python']}" if "python" in versions else "")
    pairs = [
        ("model", _several(cell.effective.get("model") for cell in cells) or _of(settings, "model")),
        ("connector", _connector(cells, settings, versions)),
        ("device", _join([_several(_device(cell) for cell in cells) or _of(settings, "device")])),
        ("dtype", _several(cell.effective.get("dtype") or cell.settings.get("dtype") for cell in cells)),
        ("engine", _several(_engine(cell) for cell in cells)),
        ("machine", machine(_mapping(run.get("machine")))),
        ("prompts", _lengths(cells, settings)),
        ("soak", _soak(cells, settings)),
        ("rig", _join(rig)),
        ("command", command(run.get("command"))),
        ("began", _of(run, "began")),
        ("took", took(facts)),
    ]
    return [(name, text) for name, text in pairs if text]


def _soak(cells: Iterable[CellJudgement], settings: Mapping) -> str:
    """What its story was drawn by."""
    if not any(cell.settings.get("scenario") == "soak" for cell in cells) or "seed" not in settings:
        return ""
    return f"seed {settings['seed']}, for about {settings['for_s']:g} s"


def command(words: object) -> str:
    return shlex.join(map(str, words)) if isinstance(words, (list, tuple)) else str(words or "")


def took(facts: RunFacts) -> str:
    if not (attempts := facts.run["attempts"]):
        return ""
    text = f"{facts.run['seconds']:.1f} s in {count(len(attempts), 'attempt')}"
    return text if facts.ended else f"{text}, up to the last that was recorded: it did not end"


def machine(known: Mapping[str, object]) -> str:
    """Processor and memory in words; whatever else the recording has, as it stands."""
    parts = [_of(known, "system"), _of(known, "processor")]
    for name, unit in (("cores", "cores"), ("threads", "threads"), ("memory_gib", "GiB")):
        parts.append(f"{known[name]} {unit}" if known.get(name) is not None else "")
    return _join(parts)


def _connector(cells: Iterable[CellJudgement], settings: Mapping, versions: Mapping) -> str:
    """Its name, its class, and the version of the package that brings it, as far as the engine told."""
    name = _several(cell.adapter for cell in cells) or _of(settings, "connector")
    details = [_several(_build(cell) for cell in cells)]
    details.append(_several(cell.effective.get("connector") for cell in cells))
    return f"{name} ({_join(details)})" if _join(details) else name


def _build(cell: CellJudgement) -> str:
    build = _mapping(cell.effective.get("connector_build"))
    if build:
        return " ".join(f"{name} {value}" for name, value in build.items())
    return str(cell.effective.get("connector_version") or "")


def _device(cell: CellJudgement) -> str:
    return _join([str(cell.effective.get("device") or ""), str(cell.effective.get("gpu") or "")])


def _engine(cell: CellJudgement) -> str:
    versions = _mapping(cell.effective.get("versions"))
    parts = [f"{name} {versions[name]}" for name in ("vllm", "torch") if name in versions]
    return _join([*parts, str(cell.effective.get("attention_backend") or "")])


def _lengths(cells: Iterable[CellJudgement], settings: Mapping) -> str:
    lengths = sorted({each.tokens for cell in cells for each in cell.ttft.by_length})
    text = f"{', '.join(map(str, lengths))} tokens" if lengths else ""
    return _join([text, f"{settings['max_tokens']} to generate" if "max_tokens" in settings else ""])


def _several(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value))


def _of(table: Mapping[str, object], name: str) -> str:
    value = table.get(name)
    return "" if value is None else str(value)


def _join(parts: Iterable[str]) -> str:
    return ", ".join(part for part in parts if part)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
