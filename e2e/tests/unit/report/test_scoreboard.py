"""The scoreboard counts what was caught, by which check, and false alarms; nothing undecided is called caught."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

from e2e import cli
from e2e.base.judgement import CellJudgement, Judgement, Ttft
from e2e.base.verdict import Finding, Reason, Verdict
from e2e.faults.catalogue import FAULTS
from e2e.report import console, scoreboard
from e2e.report.clean import Clean, false_alarms

RECORDED = Path(__file__).resolve().parents[2] / "recordings" / "scenarios"
SETTINGS = {"layout": "NHD", "placement": "kernel"}
PLACE = {"layer": 3, "kv": "K", "head": 1, "block": 7}


def cell(verdict: Verdict, *findings: Finding, fault: str | None = None, settings=SETTINGS) -> CellJudgement:
    name = "NHD-kernel" + (f"-fault_{fault}" if fault else "")
    reason = findings[0].reason if findings else None
    return CellJudgement(
        name, 1, "NHD", "embedded", {**settings, **({"fault": fault} if fault else {})}, {}, verdict, reason, findings,
        fault=fault, replays=6, ttft=Ttft(claimed_speedup=5.0 if fault else None),
    )  # fmt: skip


TOKENS = Finding("exact", Reason.TOKENS_DIFFER, {})
DIGEST = Finding("digests", Reason.DIGEST_DIFFERS, {**PLACE, "pattern": "bit_flips"})
CLEAN = cell(Verdict.PASS)


def board(*cells: CellJudgement) -> scoreboard.Scoreboard:
    return scoreboard.scoreboard(Judgement(cells))


def test_caught_by_which_check_and_located():
    found = board(CLEAN, cell(Verdict.CORRUPT, TOKENS, DIGEST, fault="bit_flip"))
    (row,) = found.rows
    assert (row.outcome, row.checks, row.located) == ("caught", ("tokens", "digests"), True)
    assert row.where == "layer 3 K head 1 block 7"
    assert (found.alone.replays, found.alone.alarms, found.exit_code) == (6, 0, 0)
    assert scoreboard.summary(found) == [("bit_flip", "1 of 1", *"1001000", "1 of 1", "5.0x")]


def test_a_wrong_name_is_not_located():
    (row,) = board(CLEAN, cell(Verdict.CORRUPT, DIGEST, fault="kv_swapped")).rows
    assert (row.outcome, row.located) == ("caught", False)


def test_what_is_explained_best_names_the_fault():
    """What a later prompt computes behind wrong KV is wrong as well, and looks like nothing."""
    follows, cause = (
        Finding("digests", Reason.DIGEST_DIFFERS, {**PLACE, "block": block, "pattern": pattern, "explained": share})
        for block, pattern, share in ((1, "unknown", 0.0), (7, "stale", 1.0))
    )
    (row,) = board(CLEAN, cell(Verdict.CORRUPT, follows, cause, fault="slot_reused")).rows
    assert (row.pattern, row.located, row.where) == ("stale", True, "layer 3 K head 1 block 7")


def test_what_was_not_planted_is_said():
    def said(faults) -> str:
        _, line = scoreboard.score_lines(board(CLEAN, *(cell(Verdict.PASS, fault=fault) for fault in faults)))
        return line

    known = len(FAULTS)
    assert said(["bit_flip"]) == f"not planted: {known - 1} of the {known} faults of the catalogue"
    assert said([*FAULTS][1:]) == f"not planted: 1 of the {known} faults of the catalogue: {next(iter(FAULTS))}"
    assert len(scoreboard.score_lines(board(CLEAN, *(cell(Verdict.PASS, fault=fault) for fault in FAULTS)))) == 1


def test_a_fault_of_one_rank_is_located_on_that_rank_alone():
    def located(*wrong: int) -> tuple[bool | None, str | None]:
        seen = {**PLACE, "pattern": "bit_flips", "rank": wrong[0], "wrong_ranks": list(wrong), "ranks": 2}
        finding = Finding("digests", Reason.DIGEST_DIFFERS, seen)
        (row,) = board(CLEAN, cell(Verdict.CORRUPT, finding, fault="bit_flip_on_rank_1")).rows
        return row.located, row.where

    assert located(1) == (True, "layer 3 K head 1 block 7 rank 1")
    assert located(0)[0] is located(0, 1)[0] is False


def test_missed_fails_and_undecided_is_inconclusive():
    missed = board(CLEAN, cell(Verdict.PASS, fault="bit_flip"))
    assert (missed.rows[0].outcome, missed.exit_code) == ("missed", 1)
    silent = board(CLEAN, cell(Verdict.INCONCLUSIVE, Finding("fault", Reason.FAULT_NOT_FIRED), fault="bit_flip"))
    assert (silent.rows[0].outcome, silent.exit_code) == ("undecided", 3)
    crashed = board(CLEAN, cell(Verdict.ERROR, Finding("failed", Reason.ENGINE_CRASHED), fault="bit_flip"))
    assert (crashed.rows[0].outcome, crashed.exit_code) == ("undecided", 4)


def test_a_kill_counts_only_by_a_named_check():
    """A verdict that no check of the scoreboard stands for, or one that speaks of no wrong answer, is none."""
    nameless = cell(Verdict.CORRUPT, Finding("new", Reason.COUNTERS_MISSING), fault="bit_flip")
    assert board(CLEAN, nameless).rows[0].outcome == "undecided"
    fewer = cell(Verdict.INCONCLUSIVE, Finding("hits", Reason.PARTIAL_HIT), fault="bit_flip")
    assert board(CLEAN, fewer).rows[0].outcome == "missed"
    crashed = cell(Verdict.ERROR, Finding("hits", Reason.NO_HIT), fault="bit_flip")
    assert board(CLEAN, crashed).rows[0].outcome == "undecided"


def test_what_was_stopped_before_its_end_is_not_missed():
    found = board(CLEAN, cell(Verdict.INCONCLUSIVE, Finding("complete", Reason.NOT_RUN), fault="bit_flip"))
    assert (found.rows[0].outcome, found.exit_code) == ("undecided", 3)
    silent = (Finding("complete", Reason.NOT_RUN), Finding("fault", Reason.FAULT_NOT_FIRED))
    assert "not run to its end" in board(CLEAN, cell(Verdict.INCONCLUSIVE, *silent, fault="bit_flip")).rows[0].why


def test_survivors_and_what_did_not_fire_stand_in_the_denominator():
    caught = cell(Verdict.CORRUPT, TOKENS, fault="kv_swapped")
    silent = cell(Verdict.INCONCLUSIVE, Finding("fault", Reason.FAULT_NOT_FIRED), fault="zero_layer")
    survivor = cell(Verdict.PASS, fault="bit_flip_on_rank_1")
    found = board(CLEAN, caught, silent, survivor)
    assert [(s.kind, s.full, s.faults) for s in found.scores] == [
        ("addressing", 1, 1), ("failed load", 0, 1), ("rank", 0, 1)
    ]  # fmt: skip
    assert "1 of 3 (33%" in scoreboard.score_lines(found)[0]


def test_the_gate_and_the_other_stories_are_scored_apart():
    told = {**SETTINGS, "scenario": "crowd"}
    rows = (cell(Verdict.PASS, fault="bit_flip"), cell(Verdict.CORRUPT, TOKENS, fault="bit_flip", settings=told))
    found = board(CLEAN, cell(Verdict.PASS, settings=told), *rows)
    assert [(s.gate, s.full, s.faults) for s in found.scores] == [(0, 1, 1)]
    assert found.exit_code == 1, "a story that misses what fired in it fails, whatever another one sees"


def test_clean_cells_alone():
    found = board(CLEAN, cell(Verdict.PASS, settings={**SETTINGS, "round": 2}))
    assert (found.exit_code, scoreboard.score_lines(found)) == (0, [])
    assert false_alarms(found.alone) == (
        "false alarms: 0 of 2 clean programs (below about 100.00%), 0 of 12 clean answers (below about 25.00%)"
    )
    assert board(CLEAN, cell(Verdict.INCONCLUSIVE)).exit_code == 3, "what could not be judged was not seen clean"
    assert board().exit_code == 3


def test_an_alarm_without_an_answer_is_one():
    broken = replace(cell(Verdict.CORRUPT, TOKENS), replays=0)
    assert board(broken).exit_code == 1
    assert "1 of 1 clean program," in false_alarms(board(broken).alone)


def test_a_fault_whose_twin_is_sick_is_not_caught():
    found = board(cell(Verdict.CORRUPT, TOKENS), cell(Verdict.CORRUPT, TOKENS, fault="bit_flip"))
    assert found.rows[0].outcome == "undecided"
    assert (found.alone.alarms, found.exit_code) == (6, 1)


def test_a_twin_of_another_cell_does_not_count():
    other = cell(Verdict.PASS, settings={"layout": "HND", "placement": "kernel"})
    assert board(other, cell(Verdict.CORRUPT, TOKENS, fault="bit_flip")).rows[0].outcome == "undecided"


def test_show_writes_and_says(tmp_path):
    stream = io.StringIO()
    found = board(CLEAN, cell(Verdict.CORRUPT, TOKENS, fault="bit_flip"))
    code = scoreboard.show(found, on=console.console(stream), directory=tmp_path)
    assert code == 0
    assert "1 of 1 planted faults caught" in stream.getvalue()
    assert "0 of 1 clean program (below about 100.00%), 0 of 6 clean answers (below about 50.00%)" in stream.getvalue()
    assert "1 of 1 (100%, at least 0%) by replay; no other story was told" in stream.getvalue()
    assert "| bit_flip | NHD-kernel | caught |" in (tmp_path / "scoreboard.md").read_text()


def test_clean_programs_are_counted_by_story():
    told = {**SETTINGS, "scenario": "turns"}
    again = {**told, "round": 2}
    found = board(CLEAN, cell(Verdict.PASS, settings=told), cell(Verdict.INCONCLUSIVE, settings=again))
    assert found.clean == (Clean("replay", 1, 0, 6), Clean("turns", 2, 1, 6))
    page = io.StringIO()
    scoreboard.show(found, on=console.console(page), directory=None)
    assert ["turns", "1", "6", "0", "1", "0"] in [line.split() for line in page.getvalue().splitlines()]


def test_what_was_not_run_is_told_from_what_could_not_be_judged():
    undone = cell(Verdict.INCONCLUSIVE, Finding("complete", Reason.NOT_RUN))
    silent = cell(Verdict.INCONCLUSIVE, Finding("happened", Reason.SCENARIO_DID_NOT_HAPPEN))
    found = board(CLEAN, undone, undone, silent).alone
    assert (found.clean_played, found.clean_left, found.not_run) == (1, 3, 2)
    said = false_alarms(found)
    assert said.endswith("; 1 clean cell could not be judged; 2 clean cells not run to the end")


def test_recordings_add_up():
    """An alarm, a miss or a sick twin in one of them is not made good by another."""
    turns = cell(Verdict.PASS, settings={**SETTINGS, "scenario": "turns"})
    fault = cell(Verdict.CORRUPT, TOKENS, fault="bit_flip")
    whole, sick = board(CLEAN, turns, fault), board(cell(Verdict.CORRUPT, TOKENS), fault)
    found = whole + sick
    assert [row.outcome for row in found.rows] == ["caught", "undecided"]
    assert found.clean == (Clean("replay", 2, 0, 12, 6, 1), Clean("turns", 1, 0, 6))
    assert (found.exit_code, (whole + whole).exit_code, scoreboard.Scoreboard().exit_code) == (1, 0, 3)
    assert (whole + board(cell(Verdict.ERROR))).alone.clean_left == 1


def test_a_sum_names_its_recordings(tmp_path):
    page = io.StringIO()
    names = ["a: embedded", "b: embedded"]
    scoreboard.show(board(CLEAN), on=console.console(page), directory=tmp_path, recordings=names)
    assert all(name in page.getvalue() and name in (tmp_path / "scoreboard.md").read_text() for name in names)
    assert "report.md" not in page.getvalue(), "what each cell was stands with its own recording"


def test_runs_add_up_from_their_recordings(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("restart", "turns"):
        Path(name).mkdir()
        shutil.copy(RECORDED / f"{name}.jsonl.gz", Path(name, "recording.jsonl.gz"))
    assert cli.execute(["scoreboard", "restart", "turns", "--out", "sum"]) == 0
    said = capsys.readouterr().out
    assert "0 of 2 clean programs (below about 100.00%)" in said
    assert all(f"  {name}: embedded, /rig/.model/tiny-llama-0, 2026-" in said for name in ("restart", "turns"))
    summed = json.loads(Path("sum", "scoreboard.json").read_text())
    assert [story["scenario"] for story in summed["clean"]] == ["restart", "turns"]
