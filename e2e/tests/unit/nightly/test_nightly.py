"""Nights that are written down as folders: what gates, what is compared, what is left for people."""

import json
import xml.etree.ElementTree as xml
from dataclasses import replace

import pytest

from e2e.base.errors import UsageError
from e2e.base.judgement import NOT_TIMED
from e2e.report.night_inputs import read_nights
from e2e.report.nightly import CellFigures, Night, Step, compare, gate
from e2e.report.nightly_files import close_night

STEPS = (("doctor", 2), ("selftest", 0), ("grid-embedded-default", 0), ("placement", 0), ("gain", 3))


def cell(name="NHD-chunkwise", verdict="pass", hits=4608, external=0.5, **more):
    reason = None if verdict == "pass" else "logprobs differ"
    return {
        "id": name, "verdict": verdict, "reason": reason, "adapter": "embedded", "effective": {"gpu": "H200"},
        "hits": {"predicted": hits, "engine": hits, "connector": hits},
        "ttft": {"baseline_cold_s": 2.0, "cold_s": 2.5, "external_s": external, "store_cost": 0.25,
                 "speedup": 2.0 / external if verdict == "pass" else None, "no_speedup": None,
                 "claimed_speedup": 2.0 / external if verdict == "corrupt" else None},
        "findings": [] if verdict == "pass" else [{"sentence": "Same tokens, but other logprobs."}],
        "reproduce": f"./scripts/canary --cell {name}", **more,
    }  # fmt: skip


def write(root, name, *, cells=None, steps=STEPS, machine="x86", ended=True, untold=None):
    folder = root / name
    cells = [cell()] if cells is None else cells
    grid = folder / "grid-embedded-default"
    grid.mkdir(parents=True)
    passed = sum(c["verdict"] == "pass" for c in cells)
    report = {
        "run": {"machine": {"processor": machine, "cores": 2}, "attempts": [{"ended": ended}]}, "cells": cells,
        "engines": [{"versions": {"vllm": "0.32.0"}}], "summary": {"pass": passed, "cells": len(cells)},
    }  # fmt: skip
    if untold is not None:
        report["not_tried"] = [{"scenario": name, "provokes": "It."} for name in untold]
    (grid / "report.json").write_text(json.dumps(report))
    (grid / "junit.xml").write_text('<testsuites><testsuite name="grid"><testcase name="c"/></testsuite></testsuites>')
    (folder / "steps.tsv").write_text("".join(f"{step}\t{code}\t12\tcmd\n" for step, code in steps))
    return folder


def codes(**changes):
    return tuple({**dict(STEPS), **changes}.items())


def test_a_good_night_is_green_whatever_doctor_and_gain_say(tmp_path):
    code, summary = close_night(write(tmp_path, "20260101T020000Z"))
    assert code == 0
    assert summary.startswith("# good: night 20260101T020000Z")
    assert json.loads((tmp_path / "20260101T020000Z" / "night.json").read_text())["good"] is True
    assert not (tmp_path / "20260101T020000Z" / "issue.md").exists()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"selftest": 1}, 3),
        ({"selftest": 3}, 3),
        ({"selftest": 124}, 4),
        ({"grid-embedded-default": 1}, 1),
        ({"grid-embedded-default": 1, "selftest": 1}, 1),
        ({"grid-embedded-default": 3, "placement": 4}, 4),
        ({"grid-embedded-default": 137}, 4),
        ({"grid-embedded-default": 2}, 2),
        ({"placement": 1}, 1),
        ({"placement": 99}, 70),
        ({"gain": 1, "doctor": 70}, 0),
    ],
)
def test_worst_step_gates_and_a_missed_fault_is_blindness_not_corruption(tmp_path, changes, code):
    found, summary = close_night(write(tmp_path, "n", steps=codes(**changes)))
    assert found == code
    assert ("blind" in summary) == (changes.get("selftest", 0) != 0)


def test_a_night_says_what_none_of_its_grids_tried(tmp_path):
    night = write(tmp_path, "1", untold=["turns", "soak"])
    other = write(tmp_path, "2", untold=["soak", "full"]) / "grid-embedded-default"
    assert "Not tried by any of them: turns, soak;" in close_night(night)[1]
    other.rename(night / "grid-embedded-other")
    (night / "steps.tsv").open("a").write("grid-embedded-other\t0\t12\tcmd\n")
    assert "Not tried by any of them: soak;" in close_night(night)[1]


@pytest.mark.parametrize("untold", [None, []])
def test_a_night_that_left_nothing_out_says_nothing_of_it(tmp_path, untold):
    assert "Not tried" not in close_night(write(tmp_path, "1", untold=untold))[1]


@pytest.mark.parametrize("missing", ["selftest", "grid-embedded-default"])
def test_without_self_test_or_grid_nothing_is_green(tmp_path, missing):
    code, _ = close_night(write(tmp_path, "n", steps=tuple(step for step in STEPS if step[0] != missing)))
    assert code == 3


def test_new_corruption_makes_an_issue_that_can_be_pasted(tmp_path):
    close_night(write(tmp_path, "20260101T020000Z", cells=[cell(), cell("HND-layerwise")]))
    texts = {"before": "", "expected": " blue", "found": " red @sky"}
    wrong = [cell(), cell("HND-layerwise", verdict="corrupt", oracle={"texts": texts})]
    steps = codes(**{"grid-embedded-default": 1})
    code, summary = close_night(write(tmp_path, "20260102T020000Z", cells=wrong, steps=steps))
    assert code == 1
    assert "new corruption: grid-embedded-default/HND-layerwise" in summary
    issue = (tmp_path / "20260102T020000Z" / "issue.md").read_text()
    assert issue.splitlines()[:3] == ["KV corruption with embedded", "", "1 cell in the night of 20260102T020000Z."]
    for part in ("Fast but wrong: a speed-up of 4.00x", "other logprobs", "./scripts/canary --cell HND-layerwise"):
        assert part in issue
    assert "### `NHD-chunkwise`" not in issue
    assert 'expected  " blue"\nfound     " red @sky"' in issue


def test_what_was_not_even_fast_is_not_called_so(tmp_path):
    wrong = [cell(verdict="corrupt", external=4.0)]
    close_night(write(tmp_path, "20260102T020000Z", cells=wrong, steps=codes(**{"grid-embedded-default": 1})))
    issue = (tmp_path / "20260102T020000Z" / "issue.md").read_text()
    assert "### `NHD-chunkwise`" in issue
    assert "Fast but wrong" not in issue


def test_only_good_and_earlier_nights_are_history(tmp_path):
    for name, steps in (("1", STEPS), ("2", codes(selftest=1)), ("3", STEPS), ("5", STEPS)):
        close_night(write(tmp_path, name, steps=steps))
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "night.json").write_text('{"schema": "maru-e2e/night/0"}')
    assert [night.name for night, good in read_nights(tmp_path, before="4") if good] == ["3", "1"]


def test_a_broken_earlier_night_is_named_for_without_it_a_lost_cell_would_not_show(tmp_path):
    close_night(write(tmp_path, "1", cells=[cell(), cell("HND-layerwise")]))
    (tmp_path / "1" / "night.json").write_text("{torn")
    with pytest.raises(UsageError, match=r"1/night\.json is no readable JSON"):
        close_night(write(tmp_path, "2"))


def test_a_grid_without_a_report_is_inconclusive_and_named(tmp_path):
    folder = write(tmp_path, "1")
    (folder / "grid-embedded-default" / "report.json").unlink()
    code, summary = close_night(folder)
    assert code == 3
    assert "| grid-embedded-default | passed, but it left no report | 0 |" in summary
    case = next(c for c in xml.parse(folder / "junit.xml").iter("testcase") if c.get("name") == "grid-embedded-default")
    assert "left no report" in case.find("failure").get("message")


def test_a_grid_without_cells_is_inconclusive(tmp_path):
    assert close_night(write(tmp_path, "1", cells=[]))[0] == 3


@pytest.mark.parametrize("code", [0, 130, 143])
def test_an_interrupted_grid_is_not_good(tmp_path, code):
    folder = write(tmp_path, "1", steps=codes(**{"grid-embedded-default": code}), ended=False)
    found, summary = close_night(folder)
    assert found == 3
    assert "did not end" in summary
    assert [good for _, good in read_nights(tmp_path, before="2")] == [False]


@pytest.mark.parametrize("code", [0, 3, 124, 130])
def test_a_corrupt_cell_counts_however_its_grid_ended(tmp_path, code):
    steps = codes(**{"grid-embedded-default": code, "selftest": 1})
    folder = write(tmp_path, "1", cells=[cell(verdict="corrupt")], steps=steps)
    assert close_night(folder)[0] == 1
    assert (folder / "issue.md").is_file()


@pytest.mark.parametrize("name", ["selftest", "selftest-clean"])
def test_a_failed_self_test_reads_blind_and_never_corrupt(tmp_path, name):
    """Whether it missed a fault or found one where none was planted."""
    steps = (*(step for step in STEPS if step[0] != name), (name, 1))
    folder = write(tmp_path, "1", steps=steps)
    code, summary = close_night(folder)
    assert code == 3
    assert f"| {name} | blind | 1 |" in summary
    assert "corrupt" not in summary + (folder / "junit.xml").read_text()


def night(name="n", machine="m", **figures):
    usual = {"verdict": "pass", "reason": None, "hits": 100, "cold_s": 2.0, "external_s": 0.5}
    steps = (Step("selftest", 0, 1), Step("grid-x", 0, 1))
    return Night(name, steps, {"grid-x/c": CellFigures(**{**usual, **figures})}, machine)


def kinds(changes):
    return [(change.kind, change.worse) for change in changes]


def test_fewer_hits_make_a_green_night_inconclusive_and_more_do_not():
    fewer, more = night(hits=50), night(hits=150)
    assert kinds(compare(fewer, [night()])) == [("hits", True)]
    assert gate(fewer, compare(fewer, [night()])) == 3
    assert kinds(compare(more, [night()])) == [("hits", False)]
    assert gate(more, compare(more, [night()])) == 0


def test_a_cell_that_is_gone_is_said():
    gone = replace(night(), cells={})
    assert kinds(compare(gone, [night()])) == [("not run", True)]
    assert gate(gone, compare(gone, [night()])) == 3


def test_a_cell_that_no_longer_passes_is_said_and_one_that_never_did_is_no_news():
    lost = night(verdict="inconclusive", reason="not run")
    assert kinds(compare(lost, [night()])) == [("no longer passes", True)]
    assert compare(lost, [night()])[0].text == "is inconclusive (not run), was pass"
    assert compare(lost, [lost]) == []


def test_times_are_compared_beyond_the_noise_of_three_nights_and_never_gate():
    past = [night(external_s=s) for s in (0.50, 0.51, 0.49)]
    slow = night(external_s=0.9)
    assert kinds(compare(slow, past)) == [("TTFT", True)]
    assert gate(slow, compare(slow, past)) == 0
    assert compare(night(external_s=0.52), past) == []
    assert compare(slow, past[:2]) == []
    assert kinds(compare(night(external_s=0.2), past)) == [("TTFT", False)]


def test_noisy_nights_widen_the_noise():
    past = [night(external_s=s) for s in (0.3, 0.5, 0.7, 0.4, 0.6)]
    assert compare(night(external_s=0.9), past) == []


def test_times_of_another_machine_and_of_wrong_answers_tell_nothing():
    past = [night(machine="other") for _ in range(5)]
    assert compare(night(external_s=5.0), past) == []
    wrong = compare(night(external_s=0.01, verdict="corrupt"), [night() for _ in range(5)])
    assert kinds(wrong) == [("new corruption", True)]


def test_a_grid_that_ran_side_by_side_has_no_times_to_compare(tmp_path):
    unseen = dict.fromkeys(cell()["ttft"]) | {"no_speedup": NOT_TIMED}
    for day in range(1, 5):
        cells = [cell(ttft=unseen)] if day == 2 else None
        code, _ = close_night(write(tmp_path, f"2026010{day}T020000Z", cells=cells))
        assert code == 0
    write(tmp_path, "20260105T020000Z", cells=[cell(ttft=unseen)])
    code, summary = close_night(tmp_path / "20260105T020000Z")
    assert code == 0
    assert summary.count("not timed") >= 3
    assert "TTFT:" not in summary
    assert "No change." in summary


def test_junit_holds_grids_steps_and_changes(tmp_path):
    close_night(write(tmp_path, "1"))
    close_night(write(tmp_path, "2", cells=[cell(hits=10)], steps=codes(selftest=3)))
    root = xml.parse(tmp_path / "2" / "junit.xml").getroot()
    assert [suite.get("name") for suite in root.iter("testsuite")] == ["grid", "nightly"]
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert failed == ["selftest", "hits: grid-embedded-default/NHD-chunkwise"]


@pytest.mark.parametrize("content", [None, "grid\tx\t1\n", "grid\n"])
def test_a_folder_that_is_no_night(tmp_path, content):
    if content is not None:
        (tmp_path / "steps.tsv").write_text(content)
    with pytest.raises(UsageError, match=r"steps.tsv; give the folder"):
        close_night(tmp_path)


#: What a grid of two chunk sizes called its cells when ids still depended on the rest of the grid -> their ids now.
FORMER = {
    "NHD-chunkwise-overlap_off-index-load_sync-chunk_tokens_128-block_size_128":
        "NHD-chunkwise-overlap_off-index-chunk_tokens_128",
    "NHD-chunkwise-overlap_off-index-load_sync-chunk_tokens_256-block_size_128":
        "NHD-chunkwise-overlap_off-index",
    "NHD-chunkwise-overlap_off-index-load_async-chunk_tokens_256-block_size_128":
        "NHD-chunkwise-overlap_off-index-load_async",
    "NHD-chunkwise-overlap_off-index-load_async-chunk_tokens_256-block_size_32":
        "NHD-chunkwise-overlap_off-index-load_async-block_size_32",
}  # fmt: skip


def test_a_night_of_former_ids_is_compared_cell_by_cell(tmp_path):
    def settings(name):
        first, *rest = (part.rpartition("_") for part in name.split("-")[2:])
        return {
            "layout": "NHD", "storage_format": "chunkwise", "placement": "index", first[0]: first[2],
            **{axis: int(value) if value.isdigit() else value for axis, _, value in rest if axis},
        }  # fmt: skip

    close_night(write(tmp_path, "20260101T020000Z", cells=[cell(name) for name in FORMER]))
    now = [cell(FORMER[name], settings=settings(name), hits=4608 + n) for n, name in enumerate(FORMER)]
    folder = write(tmp_path, "20260102T020000Z", cells=now)
    code, summary = close_night(folder)
    assert code == 0
    assert "was not run tonight" not in summary
    for n, name in enumerate(list(FORMER)[1:], start=1):
        assert f"{FORMER[name]}: {4608 + n} external tokens, 4608 on 20260101T020000Z" in summary
    lost = write(tmp_path, "20260103T020000Z", cells=now[1:])
    assert close_night(lost, history=tmp_path)[0] == 3
