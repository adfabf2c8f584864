"""Whatever ends a run, the cells that ended before are judged and reported."""

import json
import signal

import pytest
from junitparser import JUnitXml
from synthetic_recording import CELL, Recording

from e2e import cli, gain, standing
from e2e.base.errors import RigError, Stopped
from e2e.base.verdict import Verdict
from e2e.judge.cells import judge, judge_cell
from e2e.recording.journal import Journal, read
from e2e.run import report
from e2e.standing import Standing, judged_on_the_way_out


def wrong_logprob(data):
    data["logprobs"][1] -= 0.25


def recording(corrupt=False):
    """One cell that ended, as far as ``run.end``, which is not there."""
    made = Recording()
    if corrupt:
        made.change("request.done", wrong_logprob, arm="external")
    return [event for event in made.events if event[0] != "run.end"]


def stopped_run(folder, events, error, *, made=report):
    with (
        Journal(folder / "recording.jsonl") as journal,
        judged_on_the_way_out(journal.record, lambda: made(folder, strict=False)),
    ):
        for kind, data in events:
            journal.record(kind, **data)
        raise error


@pytest.mark.parametrize(
    ("corrupt", "number", "code"),
    [(False, signal.SIGINT, 130), (False, signal.SIGTERM, 143), (True, signal.SIGINT, 1), (True, signal.SIGTERM, 1)],
)
def test_a_stopped_run_is_judged_and_says_that_it_did_not_end(tmp_path, capsys, corrupt, number, code):
    with pytest.raises(Stopped) as stopped:
        stopped_run(tmp_path, recording(corrupt), Stopped(number))
    assert stopped.value.exit_code == code
    found = json.loads((tmp_path / "report.json").read_text())
    assert [cell["verdict"] for cell in found["cells"]] == ["corrupt" if corrupt else "pass"]
    assert found["run"]["attempts"][-1]["ended"] is False
    assert f"The run did not end: {signal.Signals(number).name} stopped it." in found["notes"]
    (case,) = [case for suite in JUnitXml.fromfile(str(tmp_path / "junit.xml")) for case in suite if case.name == CELL]
    assert bool(case.result) is corrupt
    assert CELL in capsys.readouterr().out


def test_an_error_of_the_rig_loses_no_verdict_and_stays_the_error(tmp_path):
    with pytest.raises(RigError, match="disk"):
        stopped_run(tmp_path, recording(corrupt=True), RigError("the disk is full"))
    assert json.loads((tmp_path / "report.json").read_text())["summary"]["corrupt"] == 1


def test_the_first_error_is_the_one_that_is_told(tmp_path):
    def no_report(folder, *, strict):
        raise ZeroDivisionError

    with pytest.raises(RigError, match="disk"):
        stopped_run(tmp_path, recording(), RigError("the disk is full"), made=no_report)


def test_a_stop_stays_a_stop_where_no_report_can_be_written(tmp_path):
    with pytest.raises(Stopped) as stopped:
        stopped_run(tmp_path, [], Stopped(signal.SIGTERM), made=lambda folder, strict: gain.report(folder))
    assert stopped.value.exit_code == 143


def corrupt_run(folder):
    """A run that ended, one cell of it corrupt, whose report.json can't be written."""
    made = Recording()
    made.change("request.done", wrong_logprob, arm="external")
    with Journal(folder / "recording.jsonl") as journal:
        for kind, data in made.events:
            journal.record(kind, **data)
    (folder / "report.json" / "x").mkdir(parents=True)


def test_what_is_corrupt_stays_so_where_no_report_can_be_written(tmp_path, capfd):
    corrupt_run(tmp_path)
    assert cli.execute(["judge", str(tmp_path)]) == 1
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith("maru-e2e: it was judged with exit code 1, but can't write ")
    assert said.endswith("choose another folder by --out.")


def test_what_is_corrupt_decides_a_stopped_run_where_no_report_can_be_written(tmp_path):
    events = recording(corrupt=True)
    (tmp_path / "report.json" / "x").mkdir(parents=True)
    with pytest.raises(Stopped) as stopped:
        stopped_run(tmp_path, events, Stopped(signal.SIGTERM))
    assert stopped.value.exit_code == 1


def test_a_stopped_comparison_reports_the_cells_that_it_proved(tmp_path):
    plan = {
        "mode": "axis", "axis": "placement", "names": {"a": "index", "b": "kernel"}, "concurrency": [1],
        "pairs": [{"branch": "HND", "a": CELL, "b": CELL}], "lengths": [], "repeats": 10, "rounds": 1, "double": True,
        "device": "cpu", "attempt": 1,
    }  # fmt: skip
    events = recording(corrupt=True)
    events.insert(1, ["gain.plan", plan])
    with pytest.raises(Stopped) as stopped:
        stopped_run(tmp_path, events, Stopped(signal.SIGTERM), made=lambda folder, strict: gain.report(folder))
    assert stopped.value.exit_code == 1
    assert json.loads((tmp_path / "gain.json").read_text())["cells"][0]["verdict"] == "corrupt"
    assert "<failure" in (tmp_path / "junit.xml").read_text()


@pytest.mark.parametrize(("seen", "code"), [(True, 143), (False, 1)])
def test_a_stopped_self_test_shows_its_scoreboard_and_a_miss_decides(tmp_path, capsys, seen, code):
    faulty, made = f"{CELL}-fault_bit_flip", Recording()
    made.add("plan.cell", **{**made.plan, "cell": faulty, "fault": "bit_flip"})
    made.cell(faulty)
    for arm in ("external", "external_again"):
        made.add("fault.fired", engine=made.connector, cell=faulty, arm=arm, fault="bit_flip", count=1)
    if seen:
        made.change("request.done", wrong_logprob, cell=faulty, arm="external")
    with pytest.raises(Stopped) as stopped:
        stopped_run(tmp_path, [event for event in made.events if event[0] != "run.end"], Stopped(signal.SIGTERM))
    assert stopped.value.exit_code == code
    assert (tmp_path / "scoreboard.md").is_file()
    assert ("1 of 1 planted faults caught" in capsys.readouterr().out) is seen


def test_a_cell_is_judged_as_it_ends_and_its_report_is_there_at_once(tmp_path):
    with Journal(tmp_path / "recording.jsonl") as journal:
        now = Standing(journal.record, directory=tmp_path)
        for kind, data in recording(corrupt=True):
            now.record(kind, **data)
        assert not now.knows(CELL)
        assert now.judged(CELL).verdict is Verdict.CORRUPT
        assert now.knows(CELL)
        assert json.loads((tmp_path / "report.json").read_text())["summary"]["corrupt"] == 1


def test_reports_in_between_may_cost_but_a_small_share_of_a_run(tmp_path, monkeypatch):
    written = []
    clock = iter(range(0, 10**6, 100))
    monkeypatch.setattr(standing.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(standing, "write_reports", lambda *args, **kwargs: written.append(args))
    with Journal(tmp_path / "recording.jsonl") as journal:
        now = Standing(journal.record, directory=tmp_path)
        for kind, data in recording():
            now.record(kind, **data)
        for _ in range(60):  # by this clock writing takes 100 s, and so does everything in between
            now.judged(CELL)
    assert 1 <= len(written) <= 3


def test_verdicts_that_are_known_are_taken_over_and_the_whole_is_the_same(tmp_path):
    events = Recording().build()
    (first,) = judge(events).cells
    assert judge(events, known={CELL: first}).cells[0] is first
    assert judge_cell(events, CELL) == first
    with Journal(tmp_path / "recording.jsonl") as journal:
        for event in events:
            journal.record(event.kind, **event.data)
    assert judge(read(tmp_path / "recording.jsonl")).cells[0] == first
