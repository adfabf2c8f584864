"""junit.xml: a cell is a test case. Corrupt and inconclusive cells fail (CI is never green for want of evidence)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from junitparser import Error, Failure, JUnitXml, Properties, Property, TestCase, TestSuite

from e2e.base.judgement import CellJudgement, Judgement
from e2e.base.verdict import Verdict
from e2e.report.causes import engine_logs, last_lines
from e2e.report.escape import visible
from e2e.report.facts import CellTime, RunFacts
from e2e.report.identity import identity
from e2e.report.reproduce import reproduce
from e2e.report.rows import title, untimed
from e2e.report.sentences import headline, sentence, verdict_text

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'


def render(facts: RunFacts, judgement: Judgement) -> str:
    """One suite per engine key. A run without any cell, and one that did not end, have a failing case that says so."""
    document = JUnitXml(name="maru-e2e")
    by_key: dict[str, list[CellJudgement]] = defaultdict(list)
    for cell in judgement.cells:
        by_key[cell.engine_key].append(cell)
    for key, cells in by_key.items():
        document.add_testsuite(_suite(key, cells, facts, judgement))
    missing = [] if judgement.cells else ["The recording has no cell"]
    for what in missing if facts.ended else [title(facts, judgement)]:
        suite, case = TestSuite("the run"), TestCase("the run as a whole", classname="maru-e2e")
        case.result = [Failure(xml(what), Verdict.INCONCLUSIVE.value)]
        suite.add_testcase(case)
        document.add_testsuite(suite)
    document.update_statistics()
    return text(document)


def text(document: JUnitXml) -> str:
    return f"{_DECLARATION}\n{document.tostring().decode('utf-8')}\n"


def _suite(key: str, cells: Sequence[CellJudgement], facts: RunFacts, judgement: Judgement) -> TestSuite:
    suite = TestSuite(xml(key) or "not planned")
    for name, value in [*identity(facts, Judgement(tuple(cells))), *_settings(facts)]:
        suite.add_property(xml(name), xml(value))
    began = [time.began for cell in cells if (time := _time(cell, facts)).began]
    if began:
        suite.timestamp = min(began)
    suite.add_testcases([_case(cell, facts) for cell in cells])
    return suite


def _settings(facts: RunFacts) -> Iterable[tuple[str, str]]:
    return [(f"setting.{name}", str(value)) for name, value in facts.settings.items() if name != "argv"]


def _time(cell: CellJudgement, facts: RunFacts) -> CellTime:
    return facts.times.get((cell.id, cell.attempt), CellTime(None, 0.0))


def _case(cell: CellJudgement, facts: RunFacts) -> TestCase:
    seconds = _time(cell, facts).seconds
    case = TestCase(xml(cell.id), classname=xml(f"maru-e2e.{cell.adapter}.{cell.engine_key}"), time=seconds)
    properties = Properties()
    for axis, value in cell.settings.items():
        properties.add_property(Property(xml(axis), xml(value)))
    if untimed(cell):
        properties.add_property(Property("ttft", "not timed"))
    case.append(properties)
    if cell.verdict is not Verdict.PASS:
        kind = Error if cell.verdict is Verdict.ERROR else Failure
        result = kind(xml(headline(cell)), verdict_text(cell) if kind is Error else cell.verdict.value)
        lines = [*(sentence(finding) for finding in cell.findings), f"Again: {reproduce(cell.settings, facts.run)}"]
        result.text = xml("\n".join(lines))
        case.result = [result]
    logs = engine_logs(cell, facts)
    if logs:
        parts = [f"log of {name}: {log.path or 'not known'}\n{last_lines(log)}" for name, log in logs.items()]
        case.system_out = xml("\n\n".join(parts))
    return case


def xml(text: object) -> str:
    """What XML can hold and no terminal obeys; markup is escaped where the file is written."""
    return visible(text)
