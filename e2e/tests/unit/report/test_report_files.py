"""The files of a report: valid, the same bytes every time, and true to the judgement."""

from __future__ import annotations

import io
import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml
from synthetic_recording import CELL, CONNECTOR, Recording

from e2e.base.errors import UsageError
from e2e.base.event import Event
from e2e.base.judgement import CellJudgement, Judgement, Oracle
from e2e.base.verdict import Finding, Reason, Verdict
from e2e.judge import judge
from e2e.report import console, junit, report_json
from e2e.report.causes import causes
from e2e.report.escape import visible
from e2e.report.facts import facts
from e2e.report.files import RENDERERS, put, write_reports
from e2e.report.reproduce import reproduce
from e2e.report.rows import HEADINGS, claim, row, verdict_line
from e2e.report.schemas import schema
from e2e.report.sentences import headline, sentence
from e2e.scenarios.packs import provokes


def report_md(events: list[Event]) -> str:
    return RENDERERS["report.md"](facts(events), judge(events))


def wrong() -> Recording:
    def edit(data):
        data["logprobs"][2] += 2**-20

    return Recording().change("request.done", edit, arm="external", prompt=1)


def crashed() -> Recording:
    recording = Recording().drop("cell.end")
    recording.add(
        "engine.failed", engine=CONNECTOR, stage="run", error="EngineCrashed", cause="boom\x1b[0m", log_tail=""
    )
    return recording


def unserved() -> Recording:
    def nothing(data):
        data["counters"].update(external_kv_transfer=0, external_hits=0)

    return Recording().change("metrics.delta", nothing, arm="external")


ALL = {"pass": Recording, "corrupt": wrong, "error": crashed, "inconclusive": unserved}


@pytest.mark.parametrize("verdict", ALL)
def test_written_files_agree_with_the_judgement_and_repeat(verdict, tmp_path: Path):
    events = ALL[verdict]().build()
    judgement = judge(events)
    write_reports(events, judgement, directory=tmp_path / "a")
    write_reports(events, judge(events), directory=tmp_path / "b")
    for name in RENDERERS:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(RENDERERS)

    document = json.loads((tmp_path / "a" / "report.json").read_text())
    jsonschema.validate(document, schema("report"))
    (cell,) = document["cells"]
    assert (cell["id"], cell["verdict"], document["summary"]["verdict"]) == (CELL, verdict, verdict)
    assert document["summary"]["exit_code"] == judgement.exit_code
    assert (cell["ttft"]["speedup"] is not None) == (verdict == "pass")
    assert [(e["role"], e["starts"], e["start_s"]) for e in document["engines"]] == [
        ("baseline", 1, 20.0),
        ("connector", 1, 20.0),
    ]

    case, *_ = [case for suite in JUnitXml.fromfile(str(tmp_path / "a" / "junit.xml")) for case in suite]
    kinds = {"pass": None, "corrupt": Failure, "inconclusive": Failure, "error": Error}
    assert case.name == CELL
    if kinds[verdict] is None:
        assert case.result == []
    else:
        assert type(case.result[0]) is kinds[verdict]
        assert case.result[0].type.startswith(verdict)


def test_no_cells_is_no_green_file():
    of_run = facts([])
    (suite,) = JUnitXml.fromstring(junit.render(of_run, Judgement(())).encode())
    assert suite.failures == 1
    assert report_json.report(of_run, Judgement(()))["summary"]["exit_code"] == 3
    assert report_md([]).startswith("# inconclusive")


def test_every_report_says_what_was_not_tried(tmp_path: Path, monkeypatch):
    names = ["partial", "gremlin"]
    recording = Recording(untold=names).build()
    said = report_md(recording).partition("## Not tried")[2]
    assert f"- partial: {provokes('partial')}" in said
    assert "- gremlin\n" in said
    document = json.loads(RENDERERS["report.json"](facts(recording), judge(recording)))
    jsonschema.validate(document, schema("report"))
    assert [entry["scenario"] for entry in document["not_tried"]] == names
    assert [entry["provokes"] for entry in document["not_tried"]] == [provokes("partial"), ""]
    out = io.StringIO()
    console.show(facts(recording), judge(recording), on=console.console(out), directory=tmp_path)
    assert "not tried: partial, gremlin; play them by --scenario" in out.getvalue()
    (cell,) = judge(recording, strict=True).cells
    assert headline(cell) == "The run left scenarios out (--strict): partial, gremlin."


@pytest.mark.parametrize("plan", [{}, {"untold": None}, {"untold": []}])
def test_what_knows_of_no_scenario_or_left_none_out_says_nothing_of_it(plan, tmp_path: Path):
    recording = Recording(**plan).build()
    assert "Not tried" not in report_md(recording)
    document = json.loads(RENDERERS["report.json"](facts(recording), judge(recording)))
    assert document.get("not_tried") == plan.get("untold")


def test_numbers_that_json_lacks_become_null():
    finding = Finding("exact", Reason.NO_HIT, {"found": float("inf"), "odd": {1: object}})
    cell = CellJudgement("x", 1, "k", "a", {}, {}, Verdict.INCONCLUSIVE, Reason.NO_HIT, (finding,))
    (found,) = report_json.report(facts([]), Judgement((cell,)))["cells"]
    assert found["findings"][0]["evidence"] == {"found": None, "odd": {"1": "<class 'object'>"}}


def test_a_folder_that_can_not_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another folder"):
        put(tmp_path / "file" / "report.json", "")


def test_report_md_tells_fast_but_wrong_and_how_to_run_it_again():
    text = report_md(wrong().build())
    assert text.startswith("# corrupt: 1 corrupt, 0 of 1 pass")
    assert "**Fast but wrong: a speed-up of 4.00x would have been claimed.**" in text
    assert "Again:\n\n```\nmaru-e2e run --cell layout=HND,storage_format=layerwise,overlap=on" in text
    assert "| corrupt: logprobs differ | not reproduced | 6144 |" in text


def test_report_md_stands_alone():
    def of_run(data):
        data["versions"] |= {"commit": "abc123", "python": "3.11.7"}
        data["machine"] = {"processor": "x86_64", "cores": 2, "memory_gib": 8.0}
        data["settings"] = {"model": "smollm2", "device": "cpu", "max_tokens": 4}

    def of_engine(data):
        data["effective"] |= {"connector": "e2e.inside.Embedded", "connector_version": "maru-e2e 0.1.0"}

    recording = Recording().change("run.begin", of_run).change("engine.config", of_engine)
    lines = report_md(recording.build()).splitlines()
    assert lines[0] == "# pass: 1 of 1 pass, first generation identical in 1"
    told = dict(line.strip("| ").split(" | ", 1) for line in lines[4 : lines.index("", 3)])
    assert told == {
        "model": "smollm2", "connector": "embedded (maru-e2e 0.1.0, `e2e.inside.Embedded`)", "device": "cpu",
        "dtype": "bfloat16", "engine": "vllm 0.32.0, STRIDED", "machine": "x86_64, 2 cores, 8.0 GiB",
        "prompts": "513, 1033, 1546 tokens, 4 to generate", "rig": "0.1.0, commit abc123, Python 3.11.7",
        "command": "`maru-e2e run`", "began": "`2025-01-01T00:00:00Z`", "took": "0.1 s in 1 attempt",
    }  # fmt: skip
    assert "| 513 | 0.200 s | 0.200 s | 0.050 s | 0.050 s | 4.00x | +0% | +0% | 1 |" in lines


def test_a_run_that_did_not_end_says_so_first(tmp_path: Path):
    events = Recording().drop("run.end").build()
    text = report_md(events)
    assert text.startswith("# did not end: pass: 1 of 1 pass")
    assert "up to the last that was recorded: it did not end |" in text
    stream = io.StringIO()
    console.show(facts(events), judge(events), on=console.console(stream), directory=tmp_path)
    assert "did not end: pass: 1 of 1 pass" in stream.getvalue()
    suites = JUnitXml.fromstring(junit.render(facts(events), judge(events)).encode())
    assert suites.failures == 1, "what did not end is not green"


def test_texts_at_the_first_divergence_are_shown_where_they_were_recorded():
    def text(data):
        data["text"] = ["The", " red", "\x1b[31m", "."]

    def other(data):
        data["token_ids"][1], data["text"] = 7, ["The", " blue", " @sky", "!"]

    recording = Recording().change("request.done", text)
    recording.change("request.done", other, arm="external", prompt=1)
    found = report_md(recording.build())
    assert "prompt 1 in arm external beside that of baseline cold, from output position 1 on:" in found
    assert 'both began  "The"\nexpected    " red\\u001b[31m."\nfound       " blue @sky!"\n' in found
    assert "both began" not in report_md(wrong().build())


def test_connectors_that_count_nothing_are_not_said_to_count():
    assert "counted by vLLM, counted by the connector;" in report_md(Recording().build())

    def nothing(data):
        data["counters"] = {}

    events = Recording(counters=False).change("connector.evidence", nothing).build()
    assert "counted by vLLM (the connector has no counters);" in report_md(events)


def test_overlap_is_told_in_the_words_of_the_axis():
    (cell,) = report_json.report(facts(events := Recording().build()), judge(events))["cells"]
    assert cell["effective"]["overlap"] == cell["settings"]["overlap"] == "on"


def test_report_md_lists_what_was_left_out_and_noted():
    recording = Recording(blind=[{"fault_class": "axes swapped", "why": "page size equals heads"}])
    recording.add("plan.invalid", settings={"overlap": "on", "load": "sync"}, why="overlap needs load=async.")
    recording.add("note", text="a | b")
    text = report_md(recording.build())
    assert "- overlap=on load=sync: overlap needs load=async." in text
    assert "axes swapped: page size equals heads" in text
    assert "- a `|` b" in text


@pytest.mark.parametrize("verdict", ALL)
def test_console(verdict, tmp_path: Path):
    events = ALL[verdict]().build()
    stream = io.StringIO()
    judgement = judge(events)
    console.show(facts(events), judgement, on=console.console(stream), directory=tmp_path)
    lines = stream.getvalue().splitlines()
    assert lines[0].split()[:2] == ["cell", "verdict"]
    assert lines[1].startswith(CELL)
    assert ("4.00x" in lines[1]) == (verdict == "pass")
    shown = visible(headline(judgement.cells[0])).split(": ")[0] or "nothing wrong"
    assert (shown in stream.getvalue()) == (verdict != "pass")
    assert ("fast but wrong" in stream.getvalue()) == (verdict == "corrupt")
    assert lines[-3].startswith(f"{verdict}: ")
    assert lines[-2].startswith("took ")
    assert lines[-1] == f"report: {tmp_path / 'report.md'}"


def test_attempts_are_counted_and_timed():
    recording = Recording().drop("run.end")
    recording.attempt = 2
    recording.run({})
    run = facts(recording.build()).run
    assert [(a["attempt"], a["ended"]) for a in run["attempts"]] == [(1, False), (2, True)]
    assert run["seconds"] == pytest.approx(sum(a["seconds"] for a in run["attempts"]))


def test_time_of_a_rebooted_machine_starts_again():
    begin = Recording().find("run.begin")[0]
    events = [
        Event("run.begin", begin, 9_000_000_000),
        Event("run.end", {"attempt": 1}, 11_000_000_000),
        Event("run.begin", begin, 1_000_000_000),
        Event("run.end", {"attempt": 2}, 4_000_000_000),
    ]
    assert facts(events).run["seconds"] == 5.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ""),
        ({"argv": ["run", "--grid", "full", "--cell=layout=NHD", "--out", "x", "--resume"]}, ""),
        ({"argv": ["run", "--lengths", "600,700", "--strict"]}, " --lengths 600,700 --strict"),
        ({"argv": ["run", "--model", "a b"], "model": "a b"}, " --model 'a b'"),
        ({"argv": ["run"], "model": "/m", "connector": "x.toml"}, " --connector x.toml --model /m"),
        ({"argv": ["gain", "--axis", "placement", "index", "kernel", "--strict", "--repeats=3"]}, " --strict"),
    ],
)
def test_reproduce(settings, words):
    assert reproduce({"layout": "HND", "chunk_tokens": 256}, {"settings": settings}) == (
        f"maru-e2e run --cell layout=HND,chunk_tokens=256{words}"
    )


def test_reproduce_from_any_folder():
    run = {
        "program": ["/v/bin/maru-e2e"],
        "folder": "/srv/a b",
        "settings": {"argv": ["run", "--connector", "my.toml"]},
    }
    assert reproduce({"layout": "HND"}, run) == (
        "cd '/srv/a b' && /v/bin/maru-e2e run --cell layout=HND --connector my.toml"
    )


def test_reproduce_of_a_planted_fault_and_of_its_clean_twin():
    run = {"settings": {"argv": ["faults", "--fault", "bit_flip", "--fault", "zero_layer", "--rounds", "3"]}}
    assert (
        reproduce({"layout": "HND", "fault": "bit_flip"}, run) == "maru-e2e faults --cell layout=HND --fault bit_flip"
    )
    assert reproduce({"layout": "HND", "round": 2}, run) == "maru-e2e run --cell layout=HND"
    told = reproduce({"layout": "HND", "scenario": "crowd"}, run)
    assert told == "maru-e2e run --cell layout=HND --scenario crowd"


def test_a_difference_that_rounds_to_zero_is_not_shown_as_zero():
    cell = CellJudgement("x", 1, "k", "a", {}, {}, Verdict.PASS, None, (), oracle=Oracle(max_logprob_diff=1e-7))
    assert row(cell)[HEADINGS.index("max logprob diff")] == "1.0e-07"


def test_verdict_line():
    assert verdict_line(judge(Recording().build())) == "1 of 1 pass, first generation identical in 1"
    assert verdict_line(judge(crashed().build())).startswith("1 error, 0 of 1 pass")
    assert claim(judge(unserved().build()).cells[0]) == ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEYS = ["arm", "prompt", "prompts", "engine", "expected", "found", "source", "what", "axis", "cause", "stage",
        "position", "kind", "logprobs", "reference", "lead", "noise", "baseline", "idle_loads",
        "layer", "kv", "token_end", "wrong_share", "pattern"]  # fmt: skip


@given(st.sampled_from(list(Reason)), st.dictionaries(st.sampled_from(KEYS), json_values, max_size=6))
def test_every_finding_becomes_one_sentence(reason, evidence):
    text = sentence(Finding("rule", reason, evidence))
    assert text[0].isupper() or text.startswith("vLLM")
    assert text.endswith(".")
    assert reason.sentence[1:] in text


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (
            Finding("hits", Reason.NO_HIT, {"arm": "external", "source": "vLLM", "expected": 1024, "found": 0}),
            "arm external: 1024 tokens were to be served, vLLM counts 0.",
        ),
        (
            Finding("failed", Reason.ENGINE_CRASHED, {"engine": "HND.c.1", "stage": "run", "cause": "Out of memory."}),
            "The engine crashed: Out of memory (HND.c.1, run).",
        ),
        (
            Finding("effective", Reason.EFFECTIVE_DIFFERS, {"axis": "layout", "expected": "HND", "found": "NHD"}),
            "layout is NHD, HND was asked for.",
        ),
        (
            Finding("complete", Reason.NOT_RUN, {"what": "request indeterminate", "arm": "local", "prompts": [0, 2]}),
            "arm local, prompts 0, 2: request indeterminate.",
        ),
    ],
)  # fmt: skip
def test_sentences(finding, text):
    assert sentence(finding).endswith(text)


def test_junit_survives_control_characters():
    events = crashed().build()
    text = junit.render(facts(events), judge(events))
    assert "boom?[0m" in text
    assert JUnitXml.fromstring(text.encode()).errors == 1


def test_junit_has_wall_times_a_timestamp_and_what_was_run():
    def of_run(data):
        data["settings"], data["versions"] = (
            {"model": "smollm2", "strict": True},
            {"maru-e2e": "0.1.0", "commit": "abc"},
        )

    events = Recording().change("run.begin", of_run).build()
    spans = {event.kind: event.t_ns for event in events if event.kind.startswith("cell.")}
    (suite,) = JUnitXml.fromstring(junit.render(facts(events), judge(events)).encode())
    (case,) = suite
    assert case.time == pytest.approx((spans["cell.end"] - spans["cell.begin"]) / 1e9)
    assert suite.timestamp == "2025-01-01T00:00:00+00:00"
    told = {each.name: each.value for each in suite.properties()}
    assert (told["model"], told["setting.strict"]) == ("smollm2", "True")
    assert told["rig"] == "0.1.0, commit abc"
    assert told["engine"] == "vllm 0.32.0, STRIDED"
    of_case = {each.get("name"): each.get("value") for each in case._elem.iter("property")}
    assert of_case["placement"] == "kernel"


def failed_engine(cells: int = 3) -> list[Event]:
    """A connector engine that crashed in the first of several cells, and took the others with it."""
    recording = Recording().drop("cell.end").drop("run.end")
    recording.change("engine.start", lambda data: data.update(log="/r/logs/HND.log"), role="connector")
    for number in range(1, cells):
        recording.add("plan.cell", **{**recording.plan, "cell": f"{CELL}-{number}"})
    log = "\n".join(f"line {number}" for number in range(40))
    recording.add(
        "engine.failed", engine=CONNECTOR, stage="run", error="EngineCrashed", cause="CUDA out of memory", log_tail=log
    )
    recording.add("run.end", attempt=1)
    return recording.build()


def test_cells_are_grouped_by_cause_with_the_engines_last_lines(tmp_path: Path):
    events = failed_engine()
    text = report_md(events)
    findings = sum(len(cell.findings) for cell in judge(events).cells)
    assert f"## What did not pass: 1 cause, 3 cells, {findings} findings" in text
    assert text.count("### The engine crashed: CUDA out of memory (3 cells)") == 1
    assert "The log of `HND.connector.1` is `/r/logs/HND.log`. Its last lines:\n\n```\nline 25\n" in text
    assert text.count("line 39") == 1
    for name in (CELL, f"{CELL}-1", f"{CELL}-2"):
        assert f"#### `{name}`" in text
    of_server = [
        Event(e.kind, {**e.data, "log": "/r/logs/HND.maru-server.log"}, e.t_ns) if e.kind == "engine.failed" else e
        for e in events
    ]
    assert "is `/r/logs/HND.maru-server.log`. Its last lines:\n\n```\nline 25\n" in report_md(of_server)

    stream = io.StringIO()
    console.show(facts(events), judge(events), on=console.console(stream), directory=tmp_path)
    assert stream.getvalue().count("The engine crashed: CUDA out of memory") == 1
    assert stream.getvalue().count("line 39") == 1

    case, *_ = [
        case for suite in JUnitXml.fromstring(junit.render(facts(events), judge(events)).encode()) for case in suite
    ]
    assert case.system_out.startswith("log of HND.connector.1: /r/logs/HND.log\nline 25")
    assert case.system_out.endswith("line 39")


def test_causes_stand_worst_first_and_patterns_tell_them_apart():
    def cell(name, verdict, *findings):
        return CellJudgement(name, 1, "k", "a", {}, {}, verdict, findings[0].reason, findings)

    place = dict.fromkeys(("layer", "head", "block", "token", "token_end", "wrong_pages", "pages"), 1)
    place |= {"wrong_share": 1.0, "wrong_layers": 1, "layers": 1, "kv": "K"}
    digest = [Finding("digests", Reason.DIGEST_DIFFERS, {**place, "pattern": p}) for p in ("zeros", "kv_swapped")]
    hit = Finding("hits", Reason.NO_HIT, {"source": "vLLM", "expected": 4, "found": 0})
    found = causes(
        Judgement((
            cell("a", Verdict.INCONCLUSIVE, hit), cell("b", Verdict.CORRUPT, digest[0]),
            cell("c", Verdict.CORRUPT, digest[1]), cell("d", Verdict.CORRUPT, digest[0]),
        )), facts([]),
    )  # fmt: skip
    assert [[each.id for each in cause.cells] for cause in found] == [["b", "d"], ["c"], ["a"]]
    assert [cause.title.rpartition(": ")[2] for cause in found[:2]] == ["it is all zeros", "K and V are swapped"]
    assert found[0].shared
    assert not found[0].own["b"]


def test_one_cause_however_it_names_requests_and_engines():
    def cell(name, number):
        cause = f"The engine did not finish answering request HND.{name}.{number}f within 120 s; see its log."
        seen = {"engine": f"HND.connector.1.{number}", "stage": "run", "error": "EngineTimeout", "cause": cause}
        finding = Finding("failed", Reason.ENGINE_HUNG, seen)
        return CellJudgement(name, 1, "k", "a", {}, {}, Verdict.ERROR, Reason.ENGINE_HUNG, (finding,))

    (cause,) = causes(Judgement((cell("a", 1), cell("b", 2))), facts([]))
    assert cause.title.endswith(": The engine did not finish answering request ... within ... s; see its log")
    assert [len(texts) for texts in cause.own.values()] == [1, 1]


def test_a_folder_that_can_only_be_read_is_one_sentence_with_a_cure(tmp_path: Path):
    (tmp_path / "report.json").mkdir()
    (tmp_path / "report.json" / "x").write_text("")
    with pytest.raises(UsageError, match=r"can't write .*report.json .*choose another folder"):
        write_reports(Recording().build(), judge(Recording().build()), directory=tmp_path)
