"""What a night is made of, read and checked: steps.tsv, report.json and junit.xml of grids, night.json of others.

Only what a night uses is asked for. Raises UsageError naming the file whose content is not what a step leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import junitparser
import msgspec

from e2e.base.errors import UsageError
from e2e.regular import read_bytes, read_text
from e2e.report.nightly import GAIN, GRID, READ, SELF_TEST, CellFigures, GainFigures, Night, Step

T = TypeVar("T")
Number = float | None
Plain = str | int | float | bool | None


class _Hits(msgspec.Struct):
    engine: int | None


class _Ttft(msgspec.Struct):
    baseline_cold_s: Number
    cold_s: Number
    external_s: Number
    speedup: Number
    store_cost: Number
    no_speedup: str | None
    claimed_speedup: Number = None


class _Finding(msgspec.Struct):
    sentence: str


class _Effective(msgspec.Struct):
    gpu: str | None = None
    connector_build: dict[str, Plain] | None = None


class _Texts(msgspec.Struct):
    before: str
    expected: str
    found: str


class _Oracle(msgspec.Struct):
    texts: _Texts | None = None


class _Cell(msgspec.Struct):
    id: str
    verdict: Literal["pass", "corrupt", "inconclusive", "error"]
    reason: str | None
    adapter: str
    effective: _Effective
    hits: _Hits
    ttft: _Ttft
    findings: list[_Finding]
    reproduce: str
    settings: dict[str, str | int] = {}
    oracle: _Oracle | None = None


class _Attempt(msgspec.Struct):
    ended: bool


class _Machine(msgspec.Struct):
    processor: Plain = None
    cores: Plain = None


class _Run(msgspec.Struct):
    machine: _Machine | None = None
    attempts: list[_Attempt] = []


class _Engine(msgspec.Struct):
    versions: dict[str, Plain] | None


class _Summary(msgspec.Struct):
    cells: int
    passed: int = msgspec.field(name="pass")


class _NotTried(msgspec.Struct):
    scenario: str


class _Report(msgspec.Struct):
    run: _Run
    cells: list[_Cell]
    engines: list[_Engine]
    summary: _Summary
    not_tried: list[_NotTried] | None = None


class _Versioned(msgspec.Struct):
    schema: str


class _Answer(msgspec.Struct):
    branch: str
    concurrency: int
    length: int | None
    client: GainFigures | None


class _Gain(msgspec.Struct):
    answers: list[_Answer]


class _Earlier(msgspec.Struct):
    good: bool
    steps: list[Step]
    cells: dict[str, CellFigures]
    machine: str
    gain: dict[str, GainFigures] = {}


def read_night(folder: Path) -> tuple[Night, dict[str, dict]]:
    """A night as its steps left it, and the reports of its grids by step."""
    steps = _steps(folder)
    paths = {step.name: folder / step.name / "report.json" for step in steps if step.kind == GRID}
    cure = "judge the step's folder again"
    reports = {name: _json(path, _Report, cure) for name, path in paths.items() if path.exists()}
    cells = {f"{step}/{cell['id']}": _figures(cell) for step, report in reports.items() for cell in report["cells"]}
    gaps = {name: gap for name in paths if (gap := _gap(reports.get(name)))}
    return Night(folder.name, steps, cells, _machine(reports), gaps, _gain(folder / GAIN / "gain.json")), reports


def read_nights(folder: Path, *, before: str) -> list[tuple[Night, bool]]:
    """Nights in ``folder`` older than the one called ``before``, newest first, each with whether it was good."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} with earlier nights; give --history one that is there.")
    found = []
    for path in sorted(folder.glob("*/night.json"), reverse=True):
        if path.parent.name < before and (earlier := read_closed(path)):
            found.append(earlier)
    return found


def read_closed(path: Path) -> tuple[Night, bool] | None:
    """A night by its night.json alone, and whether it was good; None where that is of another version."""
    cure = "move that night away"
    if _json(path, _Versioned, cure)["schema"] not in READ:
        return None
    night = _as(_json(path, _Earlier, cure), _Earlier, path, cure)
    return Night(path.parent.name, tuple(night.steps), night.cells, night.machine, gain=night.gain), night.good


def read_junit(folder: Path, night: Night) -> Iterator[junitparser.JUnitXml]:
    """The JUnit files of all steps but the self-test, whose faults are meant to fail."""
    for step in night.steps:
        path = folder / step.name / "junit.xml"
        if path.exists() and step.kind != SELF_TEST:
            try:
                found = junitparser.JUnitXml.fromstring(read_bytes(path))
                found.update_statistics()
                found.tostring()
            except (OSError, ValueError, SyntaxError, RecursionError, junitparser.JUnitXmlError) as error:
                raise UsageError(f"{path} is no JUnit file ({error}); judge the step's folder again.") from error
            yield found


def _steps(folder: Path) -> tuple[Step, ...]:
    try:
        rows = read_text(folder / "steps.tsv").splitlines()
        fields = [row.split("\t") for row in rows if row.strip()]
        steps = tuple(Step(f[0], int(f[1]), float(f[2]), f[3] if len(f) > 3 else "") for f in fields)
    except (OSError, ValueError, IndexError):
        steps = ()
    names = {Path(step.name).name for step in steps if math.isfinite(step.seconds)}
    if not steps or names != {step.name for step in steps}:
        raise UsageError(f"{folder} holds no readable steps.tsv; give the folder of a night of scripts/nightly.")
    return steps


def _json(path: Path, shape: type[T], cure: str) -> Any:
    """The JSON value in ``path`` as it is, once it has been seen to have the ``shape``."""
    try:
        data = msgspec.json.decode(read_bytes(path))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no readable JSON ({error}); {cure}.") from error
    _as(data, shape, path, cure)
    return data


def _as(data: object, shape: type[T], path: Path, cure: str) -> T:
    try:
        return msgspec.convert(data, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UsageError(f"{path} is not what a step leaves ({error}); {cure}.") from error


def _gap(report: Mapping | None) -> str:
    if report is None:
        return "left no report"
    if not report["cells"]:
        return "has no cell in its report"
    return "" if all(a["ended"] for a in report["run"].get("attempts", [])[-1:]) else "did not end"


def _figures(cell: Mapping) -> CellFigures:
    ttft = cell["ttft"]
    return CellFigures(
        cell["verdict"], cell["reason"], cell["hits"]["engine"], ttft["cold_s"], ttft["external_s"],
        cell.get("settings", {}), ttft["baseline_cold_s"], ttft["speedup"], ttft["store_cost"],
    )  # fmt: skip


def _gain(path: Path) -> dict[str, GainFigures]:
    """Of what a night that measured gain found, over all lengths."""
    if not path.exists():
        return {}
    answers = msgspec.convert(_json(path, _Gain, "judge the comparison again"), _Gain).answers
    whole = [answer for answer in answers if answer.length is None and answer.client]
    return {f"{answer.branch}, {answer.concurrency} at once": answer.client for answer in whole}


def _machine(reports: Mapping[str, Mapping]) -> str:
    """Processor, cores, GPU, versions: times of nights that differ in these tell nothing of the connector."""
    parts: set[str] = set()
    for report in reports.values():
        machine = report["run"].get("machine") or {}
        parts |= {f"{name}={machine.get(name)}" for name in ("processor", "cores")}
        parts |= {f"gpu={cell['effective']['gpu']}" for cell in report["cells"] if cell["effective"].get("gpu")}
        parts |= {f"{k}={v}" for engine in report["engines"] for k, v in (engine.get("versions") or {}).items()}
    return " ".join(sorted(parts))
