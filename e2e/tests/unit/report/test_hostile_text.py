"""Whoever chooses a text (an engine's log, a version, a model's answer, the owner of a step's folder) can put nothing
but text before a reader: every report, with hostile text in every field, read by a real Markdown renderer, by an XML
and a JSON parser, and by a terminal."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import unicodedata
import xml.etree.ElementTree as xml
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from read_html import assert_self_contained
from synthetic_recording import CONNECTOR, Recording
from test_nightly import cell as night_cell
from test_nightly import codes, write

from e2e.base.event import Event
from e2e.base.gain import NOTHING, WITHIN, Answer, Change, GainJudgement, Hidden, Launches, Overlap, Timeline
from e2e.judge import judge
from e2e.judge.exhibits import exhibits
from e2e.report import console, gain, scoreboard, terminal
from e2e.report.escape import cell, code, fence, inline
from e2e.report.facts import facts
from e2e.report.files import RENDERERS, write_reports
from e2e.report.index import write_index
from e2e.report.nightly import SCHEMA
from e2e.report.nightly_files import close_night
from e2e.report.report_json import plain

HOSTILE = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!-- x", "</td></table>",
    "![x](http://a.example/y.png)", "[click](javascript:alert(1))", "[a]: http://a.example", "http://a.example/x",
    "www.a.example", "me@a.example", "<http://a.example>", "@maintainer", "x @org/team y", "#12", "org/repo#12",
    "GH-12", ":tada:", "a:tada:b", "| a | b |", "\\|", "a\\", "`", "``` js", "~~~", "\n```\n# x\n", "# x", "x\n===",
    "---", "- x", "1. x", "> x", "*x*", "_x_", "**", "~~x~~", "$x$", "&lt;b&gt;", "&#64;maintainer",
    "\x1b[31mred\x1b[0m", "\x1b]8;;http://a.example\x07x", "\x9b31m", "\r\x08\x7f", "\u202egnp.exe", "\u2066x\u2069",
    "\u200b", "\ufeff", "\ud800", "\u2028x", "[bold red]x[/]", "[link=http://a.example]x[/link]", "[/nothing]", "]]>",
    "<?x?>", "\x00", "\ufffe", "{{ 7 * 7 }}", "{% raw %}", "=HYPERLINK(1)", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)",
    "\t=1", "\r=1", "\uff1d1+1", "a\";=1", "'=1", "\" onload=\"x", "' style='x", "</style><script>",
    "--><svg/onload=x>", "&#x3c;script>", "javascript:x", "%s {0} {arm.__class__}", "한국어", "",
)  # fmt: skip
texts = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=6), min_size=1, max_size=4).map(" ".join) | st.lists(
    st.sampled_from(HOSTILE), min_size=1, max_size=3
).map("".join)

MARKDOWN = MarkdownIt("gfm-like", {"html": True, "linkify": True})
#: What stands in our reports, and nothing else.
TOKENS = {
    "heading_open", "heading_close", "paragraph_open", "paragraph_close", "bullet_list_open", "bullet_list_close",
    "list_item_open", "list_item_close", "table_open", "table_close", "thead_open", "thead_close", "tbody_open",
    "tbody_close", "tr_open", "tr_close", "th_open", "th_close", "td_open", "td_close", "fence", "inline",
}  # fmt: skip
INLINE = {"text", "code_inline", "strong_open", "strong_close"}
#: GitHub makes links of these out of plain text, after the Markdown was read.
LINKED = re.compile(r"@\w|#\d|\bGH-\d|https?://|www\.\w|:[\w+-]+:|\$\S", re.IGNORECASE)


def assert_harmless(text: str) -> None:
    assert_shows(text)
    for token in MARKDOWN.parse(text):
        assert token.type in TOKENS, token
        for inner in token.children or ():
            assert inner.type in INLINE, inner
            if inner.type == "text":
                assert not LINKED.search(inner.content), inner.content


def assert_shows(text: str) -> None:
    """No character that a terminal obeys or that can't be seen."""
    bad = {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert not bad, bad


def assert_no_formula(text: str) -> None:
    """As a spreadsheet reads it: no cell but a number begins like a formula, and every row is whole."""
    assert_shows(text)
    rows = list(csv.reader(io.StringIO(text)))
    assert {len(row) for row in rows} == {len(rows[0])}
    for value in (value for row in rows for value in row):
        number = re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", value)
        assert number or not value.strip().startswith(("=", "+", "-", "@", "|", "%", "\uff1d", "\uff0b", "\uff20")), (
            value
        )


def rows_are_whole(text: str) -> bool:
    tables = [token for token in MARKDOWN.parse(text) if token.type in ("tr_open", "th_open", "td_open", "table_open")]
    widths: list[list[int]] = []
    for token in tables:
        if token.type == "table_open":
            widths.append([])
        elif token.type == "tr_open":
            widths[-1].append(0)
        else:
            widths[-1][-1] += 1
    return all(len(set(each)) == 1 for each in widths)


def poisoned(value: Any, draw: Callable[[], str], *, keep: tuple[str, ...] = ()) -> Any:
    """Every text in ``value`` replaced but those under the keys ``keep``."""
    if isinstance(value, str):
        return draw()
    if isinstance(value, Mapping):
        return {key: item if key in keep else poisoned(item, draw, keep=keep) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [poisoned(item, draw, keep=keep) for item in value]
    return value


#: By these the judge finds what belongs together; a recording with others in them tells of nothing.
STRUCTURE = (
    "engine", "cell", "arm", "request", "role", "engine_key", "schema", "oracle", "digest", "counters", "ttft", "top",
    "error", "kind", "expect", "layout", "placement", "overlap", "load", "storage_format", "stage", "loads",
    "wall_time", "scenario", "program", "program_digest",
)  # fmt: skip


def hostile_run(draw: Callable[[], str], fault: str | None = None) -> list[Event]:
    """A corrupt cell, failed engines, every note, version, setting, cause, log line and answer hostile; so are the
    names of the cell, the engine key and the engines, which are the same wherever they stand."""

    def spoil(data: dict[str, Any]) -> None:
        data["token_ids"][1], data["text"] = 7, [draw(), draw(), draw(), draw()]

    recording = Recording(digests=False, fault=fault, blind=[{"fault_class": "x", "why": "y"}])
    recording.change("request.done", lambda data: data.update(text=[draw() for _ in range(4)]))
    recording.change("request.done", spoil, arm="external")
    recording.add("engine.failed", engine=CONNECTOR, stage="run", error="EngineCrashed", cause="c", log_tail="t\nu")
    recording.add("plan.invalid", settings={"overlap": "on"}, why="w")
    recording.add("note", text="n")
    events = recording.build()
    names = {name: f"{number}{draw()}" for number, name in enumerate({
        str(event.data[key]) for event in events for key in ("cell", "engine", "engine_key") if event.data.get(key)
    })}  # fmt: skip
    found = []
    for event in events:
        data = poisoned(event.data, draw, keep=(*STRUCTURE, "text") if event.kind == "request.done" else STRUCTURE)
        for key in ("cell", "engine", "engine_key"):
            if data.get(key):
                data[key] = names[data[key]]
        if fault and event.kind == "plan.cell":
            data["fault"] = fault
        found.append(Event(event.kind, data, event.t_ns))
    return found


@st.composite
def words(draw: Callable[[Any], Any]) -> Callable[[], str]:
    """Gives one hostile text after another, out of a few."""
    few, order = draw(st.lists(texts, min_size=4, max_size=12)), random.Random(draw(st.integers()))
    return lambda: order.choice(few)


def shown(show: Callable[[Any], object], width: int = 80) -> str:
    stream = io.StringIO()
    on = terminal.console(stream)
    on.width = width
    show(on)
    return stream.getvalue()


FEW = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


@FEW
@given(words())
def test_a_run(draw):
    events = hostile_run(draw)
    judgement = judge(events)
    of_run = facts(events, exhibits(events, judgement, lambda _: draw()))
    assert [cell.verdict.value for cell in judgement.cells] == ["corrupt"]
    text = RENDERERS["report.md"](of_run, judgement)
    assert_harmless(text)
    assert rows_are_whole(text)
    json.loads(RENDERERS["report.json"](of_run, judgement)).keys()
    assert RENDERERS["report.json"](of_run, judgement).isascii()
    assert_self_contained(RENDERERS["report.html"](of_run, judgement))
    assert_no_formula(RENDERERS["report.csv"](of_run, judgement))
    junit = RENDERERS["junit.xml"](of_run, judgement)
    assert_shows(junit)
    (case,) = xml.fromstring(junit.encode()).iter("testcase")
    assert case.find("failure") is not None
    assert_shows(shown(lambda on: console.show(of_run, judgement, on=on, directory=Path("/r"))))


@settings(FEW, max_examples=40)
@given(words())
def test_a_scoreboard(tmp_path_factory, draw):
    tmp_path = tmp_path_factory.mktemp("board")
    events = hostile_run(draw, fault="bit_flip")
    judgement = judge(events)
    assert_shows(shown(lambda on: scoreboard.show(scoreboard.scoreboard(judgement), on=on, directory=tmp_path)))
    text = (tmp_path / "scoreboard.md").read_text()
    assert_harmless(text)
    assert rows_are_whole(text)
    assert json.loads((tmp_path / "scoreboard.json").read_text())["rows"]
    assert_self_contained((tmp_path / "scoreboard.html").read_text())
    assert_no_formula((tmp_path / "scoreboard.csv").read_text())


@settings(FEW, max_examples=20)
@given(words())
def test_a_gain(tmp_path_factory, capsys, draw):
    change = Change(-0.1, -0.2, 0.0, 30)
    plan = {"names": {"a": draw(), "b": draw()}, "axis": draw(), "double": False, "device": draw()}
    answers = [
        Answer(draw(), 1, None, NOTHING, draw()),
        Answer(draw(), 1, None, WITHIN, "", change, change, a_s=1, b_s=1),
    ]
    launches = (Launches(draw(), "a", 513, draw(), 3.0, None, 2.0),)
    rows = {"to_device": [(0, 9)], "placement": [(9, 10)], "attention": [], "forward": [(5, 20)], "from_device": []}
    drawn = Timeline(draw(), "a", 513, 10.0, 0.5, 20.0, (Hidden(0, 10.0, 0.5),), rows)
    events = hostile_run(draw)
    found = GainJudgement(
        plan, judge(events), tuple(answers), launches, (Overlap(draw(), draw(), 1, 1, 1),), timelines=(drawn,)
    )
    folder = tmp_path_factory.mktemp("gain")
    gain.write(found, events, folder)
    assert_shows(capsys.readouterr().out)
    text = (folder / "gain.md").read_text()
    assert_harmless(text)
    assert rows_are_whole(text)
    assert_self_contained((folder / "gain.html").read_text())
    assert_no_formula((folder / "gain.csv").read_text())
    assert json.loads((folder / "gain.json").read_text())["answers"]


@FEW
@given(words())
def test_a_night(tmp_path_factory, draw):
    wrong = poisoned(night_cell(verdict="corrupt"), draw, keep=("verdict",))
    wrong["effective"]["connector_build"] = {draw(): draw()}
    wrong["oracle"] = {"texts": {"before": draw(), "expected": draw(), "found": draw()}}
    folder = write(tmp_path_factory.mktemp("nights"), "n", cells=[wrong], steps=codes(gain=1), machine=draw())
    report = folder / "grid-embedded-default" / "report.json"
    document = json.loads(report.read_text())
    document["engines"] = [{"versions": {draw(): draw()}}]
    report.write_text(json.dumps(plain(document)))
    _, summary = close_night(folder)
    for text in (summary, (folder / "summary.md").read_text(), (folder / "issue.md").read_text()):
        assert_harmless(text)
        assert rows_are_whole(text)
    assert_self_contained((folder / "summary.html").read_text())
    assert_no_formula((folder / "summary.csv").read_text())
    assert_shows((folder / "junit.xml").read_text())
    assert list(xml.parse(folder / "junit.xml").iter("testcase"))
    json.loads((folder / "night.json").read_text())


@settings(FEW, max_examples=10)
@given(words())
def test_an_index(tmp_path_factory, draw):
    folder, figures = tmp_path_factory.mktemp("index"), {}
    for cell_id in (draw(), draw()):
        figures[cell_id] = {"verdict": "pass", "reason": draw(), "hits": 1, "cold_s": 1.0, "external_s": 0.5}
    for number in range(3):
        (folder / f"{number}").mkdir()
        figures[cell_id] |= {"verdict": ("pass", "corrupt")[number % 2]}
        closed = {"schema": SCHEMA, "good": True, "steps": [], "machine": "m", "cells": figures}
        closed["gain"] = {draw(): {"median": 0.1, "low": 0.0, "high": 0.2}}
        (folder / f"{number}" / "night.json").write_text(json.dumps(plain(closed)))
    run = {"command": [draw(), draw()], "began": draw(), "settings": {"connector": draw(), "model": draw()}}
    report = {"run": run, "summary": {"verdict": draw(), "cells": 1, "pass": 1}}
    (folder / "2" / "report.json").write_text(json.dumps(plain(report)))
    assert write_index(folder) == (1, 3)
    assert_self_contained((folder / "index.html").read_text())


@settings(max_examples=400)
@given(texts)
def test_text_is_text(text):
    assert_harmless(f"- {inline(text)}\n- {code(text)}\n\n{inline(text)}\n\n# {inline(text, begins_line=False)}\n")
    assert_harmless(f"**{inline('x ' + text)}**\n\n{fence(text)}\n\nend\n")
    table = f"| a | b |\n|---|---|\n| {cell(inline(text, begins_line=False))} | {cell(code(text))} |\n"
    assert_harmless(table)
    assert rows_are_whole(table)
    tokens = [token.type for token in MARKDOWN.parse(f"- {inline(text)}\n")]
    assert tokens.count("bullet_list_open") == 1


@settings(max_examples=400)
@given(texts)
def test_nothing_is_lost(text):
    """What can be seen is still there: code shows it as it is."""
    (token,) = [token for token in MARKDOWN.parse(inline("x " + text)) if token.type == "inline"]
    read = "".join(inner.content for inner in token.children)
    visible = "".join(c if c.isprintable() else "?" for c in " ".join(("x " + text).split()))
    assert read == visible


@pytest.mark.parametrize("text", HOSTILE)
def test_markup_of_the_console_is_text(text):
    blocks = [terminal.Paragraph(text), terminal.Heading(text), terminal.Items([text]), terminal.Lines(text)]
    blocks.append(terminal.Table(("a", "b"), [(text, text)]))
    out = shown(lambda on: terminal.show(blocks, on=on))
    assert_shows(out)
    if "[" in text and text.isprintable():
        assert out.count(text) == 6


def test_ids_and_paths_never_fold(tmp_path):
    long = "HND-layerwise-overlap_on-kernel-load_async-release_after_layers_2-chunk_tokens_512-concurrency_8"
    recording = Recording(cell=long)
    recording.change("request.done", lambda data: data["token_ids"].reverse(), arm="external")
    events = recording.build()
    write_reports(events, judge(events), directory=tmp_path)
    out = shown(lambda on: console.show(facts(events), judge(events), on=on, directory=tmp_path / ("x" * 90)))
    assert out.count(long) >= 2
    assert f"{'x' * 90}/report.md" in out
