"""From a recording to its failure, what a search remembers of earlier attempts, and what is told of its end."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import msgspec
import pytest
from fake import ONE, PLAIN, TEXTS, again, send

sys.path.insert(0, str(Path(__file__).parent.parent / "judge"))
from synthetic_recording import CELL, Recording

from e2e import cli
from e2e.base.errors import UsageError
from e2e.base.event import Event
from e2e.base.program import Program, plainly
from e2e.base.verdict import Finding, Reason, Verdict
from e2e.judge.cells import judge
from e2e.recording.journal import Journal
from e2e.report import shrunk
from e2e.report.reproduce import reproduce
from e2e.report.schemas import schema
from e2e.settings import program_file
from e2e.shrink.failed import Case, failed_cell
from e2e.shrink.trials import spent_s, starts


@pytest.fixture
def run(tmp_path):
    """A run whose external answer to prompt 1 is wrong."""
    recording = Recording()
    recording.change("request.done", lambda data: data["token_ids"].__setitem__(0, 7), arm="external", prompt=1)
    with Journal(tmp_path / "recording.jsonl") as journal:
        for event in recording.build():
            journal.record(event.kind, **event.data)
    return tmp_path


def judged(cell, *reasons: Reason):
    """``cell`` with these findings instead of its own."""
    worst = max(reasons, key=lambda reason: reason.verdict.weight)
    findings = tuple(Finding("rule", reason) for reason in reasons)
    return replace(cell, verdict=worst.verdict, reason=worst, findings=findings)


def test_the_only_corrupt_cell_is_taken_with_what_it_did(run):
    failed = failed_cell(run, None)
    assert failed.judged.id == CELL
    assert failed.judged.verdict is Verdict.CORRUPT
    assert [each.where for each in failed.case.program.sends if each.external]
    assert failed.settings.program == plainly(failed.case.program)
    assert failed_cell(run, CELL).case == failed.case


def test_one_of_several_must_be_named(run, monkeypatch):
    several = [replace(cell, id=f"{cell.id}{n}") for n in range(3) for cell in judge(_events(run)).cells]
    monkeypatch.setattr("e2e.shrink.failed.judge", lambda events: replace(judge(events), cells=tuple(several)))
    with pytest.raises(UsageError, match=f"3 cells of .* are corrupt; name one by --cell, such as --cell {CELL}0"):
        failed_cell(run, None)


def _events(folder: Path) -> list[Event]:
    from e2e.recording.journal import read

    return read(folder / "recording.jsonl")


TOKENS, DIGEST, LOGPROBS = Reason.TOKENS_DIFFER, Reason.DIGEST_DIFFERS, Reason.LOGPROBS_DIFFER


@pytest.mark.parametrize(
    ("was", "now", "same"),
    [
        ([TOKENS], [TOKENS], True),
        ([TOKENS, DIGEST], [DIGEST], True),
        ([TOKENS], [DIGEST], False),
        ([TOKENS], [LOGPROBS], False),
        ([TOKENS], [TOKENS, DIGEST], False),
        ([TOKENS], [TOKENS, Reason.SCENARIO_DID_NOT_HAPPEN], False),
        ([TOKENS], [TOKENS, Reason.PARTIAL_HIT], False),
        ([TOKENS, Reason.PARTIAL_HIT], [TOKENS, Reason.PARTIAL_HIT], True),
        ([TOKENS, Reason.PARTIAL_HIT], [Reason.PARTIAL_HIT], False),
        ([TOKENS], [Reason.ENGINE_CRASHED], False),
        ([TOKENS], [Reason.FAULT_NOT_FIRED], False),
    ],
)
def test_it_fails_so_again_by_the_same_kind_and_by_nothing_new(run, was, now, same):
    failed = failed_cell(run, None)
    failed = replace(failed, judged=judged(failed.judged, *was))
    assert failed.again(judged(failed.judged, *now)) is same


def test_a_pass_is_no_failure(run):
    failed = failed_cell(run, None)
    assert not failed.again(replace(failed.judged, verdict=Verdict.PASS, reason=None, findings=()))


def event(kind: str, t_s: float, **data: object) -> Event:
    return Event(kind, data, int(t_s * 1e9))


def test_the_budget_counts_real_starts_and_the_time_of_all_attempts():
    start = {"engine": "e", "engine_key": "K", "role": "one", "attempt": 1, "argv": [], "log": ""}
    begin = dict.fromkeys(("run_id", "schema", "command", "versions", "machine", "settings", "wall_time"), "")
    events = [
        event("run.begin", 100, attempt=1, **begin), event("engine.start", 101, launcher="process", **start),
        event("engine.start", 102, launcher="shared: e", **start), event("note", 160, text=""),
        event("run.begin", 5, attempt=2, **begin), event("engine.start", 6, launcher="process", **start),
        event("note", 15, text=""),
    ]  # fmt: skip
    assert starts(events) == 2
    assert spent_s(events) == 70
    assert (starts([]), spent_s([])) == (0, 0)


# what is told


def program() -> Program:
    cold = send("cold", ONE)
    return Program((PLAIN, ONE), TEXTS, (send("alone", PLAIN), cold, *again(ONE, cold)), "mine")


def told(run, *, after: bool = True, untried: int = 0) -> shrunk.Shrunk:
    failed = failed_cell(run, None)
    cold = send("cold", ONE)
    small = Program((ONE,), TEXTS, (cold, *again(ONE, cold)), "mine")
    return shrunk.Shrunk(
        cell=failed.judged, before=({"layout": "HND", "overlap": "on"}, program()),
        after=({"layout": "HND", "overlap": "off"}, small) if after else None,
        trials=[shrunk.Tried("as it was", True, failed.judged, after)], untried=untried, starts=3, seconds=61.4,
        command="maru-e2e run --program /x/program.json" if after else None,
    )  # fmt: skip


def test_the_report_says_what_is_left_and_prints_the_command(run, capsys):
    shrunk.write(told(run, untried=2), run)
    screen, page = capsys.readouterr().out, (run / shrunk.AS_TEXT).read_text()
    table = json.loads((run / shrunk.AS_JSON).read_text())
    jsonschema.validate(table, schema("shrunk"))
    for text in (screen, page):
        assert "maru-e2e run --program /x/program.json" in text
        assert "2 candidates left untried" in text
        assert "1 candidate on 3 engine starts in 61 s" in text
    assert table["command"] == "maru-e2e run --program /x/program.json"
    assert (table["before"]["engines"], table["after"]["engines"]) == (2, 1)
    assert table["after"]["settings"] == {"layout": "HND", "overlap": "off"}
    assert table["trials"][0]["failed"] is True
    assert "overlap" in page


def test_what_did_not_fail_again_is_told_so_and_has_no_command(run, capsys):
    shrunk.write(told(run, after=False), run)
    assert "It did not fail so again" in capsys.readouterr().out
    table = json.loads((run / shrunk.AS_JSON).read_text())
    jsonschema.validate(table, schema("shrunk"))
    assert (table["after"], table["command"], table["program"]) == (None, None, None)


def test_the_file_is_read_back_by_its_flag(tmp_path):
    shrunk.write_program(program(), tmp_path)
    jsonschema.validate(json.loads((tmp_path / shrunk.PROGRAM).read_text()), schema("program"))
    table = program_file.read(str(tmp_path / shrunk.PROGRAM))
    assert msgspec.convert(table, Program) == program()


def test_the_command_replays_the_file_in_its_cell_with_its_fault():
    run = {"settings": {"argv": ["faults", "--scenario", "crowd", "--prompts", "1", "--program", "old.json"]},
           "program": ["maru-e2e"]}  # fmt: skip
    cell = {"layout": "HND", "scenario": "crowd", "fault": "bit_flip", "round": 3}
    assert reproduce(cell, run, program="/x/p.json") == (
        "maru-e2e faults --cell layout=HND --program /x/p.json --fault bit_flip --prompts 1"
    )
    assert "--program old.json" in reproduce(cell, run)
    assert "--scenario" not in reproduce(cell, run)


def test_a_candidate_of_a_search_is_played_again_by_the_search():
    run = {"settings": {"argv": ["shrink", "results/x", "--starts", "6"]}, "program": ["maru-e2e"]}
    assert reproduce({"layout": "HND"}, run) == "maru-e2e shrink results/x --starts 6"


def test_cases_are_equal_by_what_is_played():
    assert Case({"layout": "HND"}, program(), "a") == Case({"layout": "HND"}, program(), "b")
    assert Case({"layout": "HND"}, program()) != Case({"layout": "NHD"}, program())


@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_who_stops_a_search_is_told_how_to_go_on(more, capsys):
    assert cli._say_stopped(143, cli.Call(("shrink", "my run", "--starts", "6", *more))) == 143
    again = "maru-e2e shrink 'my run' --starts 6 --resume"
    assert capsys.readouterr().err == f"maru-e2e: stopped by a signal; {again} continues it.\n"
