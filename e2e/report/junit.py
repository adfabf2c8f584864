"""junit.xml: a cell is a test case. Corrupt and inconclusive cells fail (CI is never green for want of evidence)."""

from __future__ import annotations

import re
from collections import defaultdict

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from e2e.base.judgement import CellJudgement, Judgement
from e2e.base.verdict import Verdict
from e2e.report.facts import RunFacts
from e2e.report.reproduce import reproduce
from e2e.report.sentences import headline, sentence, verdict_text

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'
#: Characters that XML 1.0 can't hold; a log line may have them.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(facts: RunFacts, judgement: Judgement) -> str:
    """One suite per engine key. A run without any cell has one failing case that says so."""
    document = JUnitXml(name="maru-e2e")
    by_key: dict[str, list[CellJudgement]] = defaultdict(list)
    for cell in judgement.cells:
        by_key[cell.engine_key].append(cell)
    for key, cells in by_key.items():
        suite = TestSuite(_xml(key) or "not planned")
        suite.add_testcases([_case(cell, facts) for cell in cells])
        document.add_testsuite(suite)
    if not judgement.cells:
        suite, case = TestSuite("not planned"), TestCase("no cell", classname="maru-e2e")
        case.result = [Failure("The recording has no cell", Verdict.INCONCLUSIVE.value)]
        suite.add_testcase(case)
        document.add_testsuite(suite)
    document.update_statistics()
    return f"{_DECLARATION}\n{document.tostring().decode('utf-8')}\n"


def _case(cell: CellJudgement, facts: RunFacts) -> TestCase:
    seconds = sum(value for value in (cell.ttft.cold_s, cell.ttft.local_s, cell.ttft.external_s) if value)
    case = TestCase(_xml(cell.id), classname=_xml(f"maru-e2e.{cell.adapter}.{cell.engine_key}"), time=round(seconds, 3))
    if cell.verdict is not Verdict.PASS:
        kind = Error if cell.verdict is Verdict.ERROR else Failure
        result = kind(_xml(headline(cell)), verdict_text(cell) if kind is Error else cell.verdict.value)
        lines = [
            *(sentence(finding) for finding in cell.findings),
            f"Again: {reproduce(cell.settings, facts.settings)}",
        ]
        result.text = _xml("\n".join(lines))
        case.result = [result]
    return case


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", text)
