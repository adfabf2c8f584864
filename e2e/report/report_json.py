"""report.json; schemas/run.py says what it holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict

from e2e.base.judgement import CellJudgement, Judgement
from e2e.base.speed import by_length
from e2e.base.verdict import Verdict
from e2e.report.facts import RunFacts
from e2e.report.reproduce import reproduce
from e2e.report.sentences import sentence
from e2e.scenarios.packs import provokes

SCHEMA = "maru-e2e/report/3"


def report(facts: RunFacts, judgement: Judgement) -> dict[str, object]:
    """The report as JSON values."""
    return plain(
        {
            "schema": SCHEMA,
            "run": facts.run,
            "engines": facts.engines,
            "cells": [_cell(cell, facts.run) for cell in judgement.cells],
            "ttft": [asdict(each) for each in by_length(judgement)],
            "invalid": facts.invalid,
            "notes": facts.notes,
            **({} if facts.untold is None else {"not_tried": [_untold(name) for name in facts.untold]}),
            "summary": summary(judgement),
        }
    )


def _untold(name: str) -> dict[str, str]:
    return {"scenario": name, "provokes": provokes(name)}


def summary(judgement: Judgement) -> dict[str, object]:
    counts = {verdict.value: sum(cell.verdict is verdict for cell in judgement.cells) for verdict in Verdict}
    identical = sum(cell.first_generation == "identical" for cell in judgement.cells)
    return {
        "verdict": judgement.verdict.value,
        "exit_code": judgement.exit_code,
        "cells": len(judgement.cells),
        **counts,
        "first_generation_identical": identical,
    }


def _cell(cell: CellJudgement, run: Mapping[str, object]) -> dict[str, object]:
    return {
        "id": cell.id,
        "settings": cell.settings,
        "effective": cell.effective,
        "engine_key": cell.engine_key,
        "adapter": cell.adapter,
        "attempt": cell.attempt,
        "verdict": cell.verdict.value,
        "reason": None if cell.reason is None else cell.reason.slug,
        "findings": [
            {
                "rule": finding.rule,
                "verdict": finding.verdict.value,
                "reason": finding.reason.slug,
                "sentence": sentence(finding),
                "evidence": finding.evidence,
            }
            for finding in cell.findings
        ],
        "first_generation": cell.first_generation,
        "hits": asdict(cell.hits),
        "oracle": asdict(cell.oracle),
        "ttft": asdict(cell.ttft),
        "blind": cell.blind,
        "fault": cell.fault,
        "reproduce": reproduce(cell.settings, run),
    }


def plain(value: object) -> object:
    """JSON values only: a number that JSON doesn't have becomes null, anything foreign its text. Half a character (a
    lone surrogate), which readers of JSON refuse, becomes a question mark."""
    if isinstance(value, Mapping):
        return {_text(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (int, bool, type(None))) else _text(value)


def _text(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode("utf-8")
