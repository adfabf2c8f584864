"""Nights that are no nights, or whose files are not what a step leaves."""

import json
from collections.abc import Callable
from pathlib import Path

from row import Row

NIGHT, GRID, EARLIER = "nights/20260102T020000Z", "grid-embedded-default", "nights/20260101T020000Z"
STEPS = f"selftest\t0\t1\tcmd\n{GRID}\t0\t1\tcmd\n"
CELL = {
    "id": "NHD", "verdict": "pass", "reason": None, "adapter": "embedded", "effective": {}, "hits": {"engine": 1},
    "ttft": {"baseline_cold_s": 2.0, "cold_s": 2.5, "external_s": 0.5, "speedup": 4.0, "store_cost": 0.25,
             "no_speedup": None, "claimed_speedup": None}, "findings": [],
    "reproduce": "maru-e2e run",
}  # fmt: skip
REPORT = {"run": {}, "cells": [CELL], "engines": [], "summary": {"pass": 1, "cells": 1}}
AGAIN = "judge the step's folder again"


def night(**files: str | bytes) -> Callable[[Path], None]:
    """A good night, but for the ``files``: "report.json" and "junit.xml" of its grid, "steps.tsv", and "earlier", the
    night.json of the night before. Names are written with ``_`` for the dot."""

    def make(folder: Path) -> None:
        usual = {"steps_tsv": STEPS, "report_json": json.dumps(REPORT)}
        for name, content in {**usual, **files}.items():
            path = folder / NIGHT / ("" if name == "steps_tsv" else GRID) / name.replace("_", ".")
            if name == "earlier":
                path = folder / EARLIER / "night.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return make


def report(**changes: object) -> str:
    return json.dumps({**REPORT, **changes})


def cell(**changes: object) -> str:
    return report(cells=[{**CELL, **changes}])


def row(name: str, says: tuple[str, ...], *words: str, **files: str | bytes) -> Row:
    return Row(f"night: {name}", ("night", NIGHT, *words), 2, says, given=night(**files))


ROWS = (
    Row("index: a folder that is not there", ("index", "nowhere"), 2, ("no folder nowhere", "holds runs or nights")),
    Row("index: a file", ("index", "f"), 2, ("no folder f",), given=lambda here: (here / "f").write_text("")),
    Row("index: nothing in it", ("index", "."), 2, ("holds no report.json and no night.json",)),
    Row(
        "index: a night that is none", ("index", "nights"), 2, ("night.json", "move that night away"),
        given=night(earlier="{torn"),
    ),
    Row("night: a folder that is not there", ("night", "nowhere"), 2, ("steps.tsv", "give the folder of a night")),
    row("history that does not exist", ("there is no folder /nonexistent",), "--history", "/nonexistent"),
    row("history that is a file", ("there is no folder", "--history"), "--history", f"{NIGHT}/steps.tsv"),
    row("steps.tsv without a step", ("steps.tsv", "give the folder"), steps_tsv="\n"),
    row("steps.tsv whose exit code is text", ("steps.tsv",), steps_tsv="selftest\tzero\t1\tcmd\n"),
    row("steps.tsv whose time is no number", ("steps.tsv",), steps_tsv="selftest\t0\tnan\tcmd\n"),
    row("steps.tsv that is not UTF-8", ("steps.tsv",), steps_tsv=b"self\xfftest\t0\t1\tcmd\n"),
    row("steps.tsv that leads out of the night", ("steps.tsv",), steps_tsv=f"{STEPS}../../x\t0\t1\tcmd\n"),
    row("report.json {}", (f"{GRID}/report.json", "run", AGAIN), report_json="{}"),
    row("report.json []", (f"{GRID}/report.json", "Expected `object`, got `array`", AGAIN), report_json="[]"),
    row("report.json null", (f"{GRID}/report.json", AGAIN), report_json="null"),
    row("report.json empty", (f"{GRID}/report.json", "no readable JSON", AGAIN), report_json=""),
    row("report.json torn", (f"{GRID}/report.json", "no readable JSON"), report_json=report()[:-9]),
    row("report.json that is HTML", (f"{GRID}/report.json", "no readable JSON"), report_json="<html></html>"),
    row("report.json that is not UTF-8", (f"{GRID}/report.json",), report_json=report().encode("utf-16")),
    row("report.json nested without end", (f"{GRID}/report.json", "recursion"), report_json="[" * 9000 + "]" * 9000),
    row("report.json with a NaN", (f"{GRID}/report.json",), report_json=cell(ttft={"cold_s": float("nan")})),
    row("a cell that is a number", (f"{GRID}/report.json", "$.cells[0]"), report_json=report(cells=[5])),
    row("a cell's verdict of no kind", ("$.cells[0].verdict", "'green'"), report_json=cell(verdict="green")),
    row("a cell's hits as a list", ("$.cells[0].hits",), report_json=cell(hits=[])),
    row("a cell without times", ("$.cells[0]", "ttft"), report_json=cell().replace("ttft", "tfft")),
    row("machine as a list", ("$.run.machine",), report_json=report(run={"machine": ["x86"]})),
    row("versions as a number", ("$.engines[0].versions",), report_json=report(engines=[{"versions": 5}])),
    row("junit.xml that is HTML", (f"{GRID}/junit.xml", "no JUnit file"), junit_xml="<html><br></html>"),
    row("junit.xml that is other XML", (f"{GRID}/junit.xml", "no JUnit file"), junit_xml="<html/>"),
    row("junit.xml empty", (f"{GRID}/junit.xml", "no JUnit file"), junit_xml=""),
    row("an earlier night that is torn", (f"{EARLIER}/night.json", "move that night away"), earlier='{"schema": "maru'),
    row("an earlier night {}", (f"{EARLIER}/night.json", "schema"), earlier="{}"),
    row("an earlier night of text", ("night.json", "$.cells"), earlier=json.dumps(
        {"schema": "maru-e2e/night/1", "good": True, "steps": [], "cells": "all", "machine": ""})),
)  # fmt: skip
