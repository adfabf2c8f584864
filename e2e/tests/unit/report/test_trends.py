"""What many nights say together, and the pages that say it."""

from __future__ import annotations

import json

import pytest
from read_html import assert_self_contained
from test_nightly import cell, codes, write

from e2e import cli
from e2e.report.document import Paragraph
from e2e.report.index import write_index
from e2e.report.night_page import over_nights
from e2e.report.nightly import CellFigures, GainFigures, Night
from e2e.report.nightly_files import close_night
from e2e.report.trends import BROKEN, FLAKY, MENDED, NEW, STEADY, standing, standings, trends

OK, BAD = "pass", "corrupt"


@pytest.mark.parametrize(
    ("seen", "word", "since"),
    [
        ([OK], STEADY, 0),
        ([OK, OK, OK], STEADY, 0),
        ([BAD], BROKEN, 0),
        ([OK, OK, BAD], NEW, 2),
        ([OK, BAD, BAD], BROKEN, 1),
        ([OK, OK, "inconclusive", "error"], BROKEN, 2),
        ([BAD, BAD, OK], MENDED, 2),
        ([OK, BAD, OK], MENDED, 2),
        ([OK, BAD, OK, BAD], FLAKY, 3),
        ([OK, BAD, OK, BAD, OK], FLAKY, 4),
        ([OK, BAD, OK, BAD, BAD, BAD], BROKEN, 3),
        ([BAD, *[OK] * 20], STEADY, 7),
    ],
)
def test_what_comes_and_goes_is_not_called_broken_nor_steady(seen, word, since):
    found = standing("c", [(f"{night:02}", verdict) for night, verdict in enumerate(seen)])
    assert (found.word, found.since, found.verdict) == (word, f"{since:02}", seen[-1])
    assert found.failed == sum(verdict != OK for verdict in seen[-14:])


def night(name: str, external: float = 0.5, verdict: str = OK, machine: str = "x", gain: float | None = None) -> Night:
    cells = {
        "grid/a": CellFigures(verdict, None, 1, 2.0, external, {}, 2.0, 2.0 / external, 0.1),
        "grid/b": CellFigures(OK, None, 1, 4.0, external * 2, {}, 4.0, 2.0 / external, 0.1),
    }
    found = {} if gain is None else {"branch, 1 at once": GainFigures(gain, gain - 0.02, gain + 0.02)}
    return Night(name, (), cells, machine, gain=found)


def test_a_time_beyond_the_noise_of_earlier_nights_shows_and_one_within_does_not():
    before = [night(str(n), 0.5 + 0.01 * (n % 3)) for n in range(6)]
    usual = {trend.name: trend for trend in trends([*before, night("6", 0.515)])}
    late = {trend.name: trend for trend in trends([*before, night("6", 0.7)])}
    assert not usual["TTFT external"].outside
    assert late["TTFT external"].outside
    assert late["speed-up"].outside
    assert not late["TTFT without connector"].outside
    assert late["TTFT external"].values[-1] == pytest.approx(0.7 / 0.51)


def test_cells_that_did_not_pass_and_other_machines_tell_no_times():
    nights = [night("1"), night("2", machine="other"), night("3", external=9.0, verdict=BAD), night("4")]
    (external,) = [trend for trend in trends(nights) if trend.name == "TTFT external"]
    assert external.nights == ("1", "3", "4")
    assert external.values[1] == pytest.approx(18.0)  # of b alone
    assert external.low is None  # two earlier nights make no noise


def test_gain_has_its_trend_and_its_intervals():
    nights = [night(str(n), gain=-0.1 if n < 4 else 0.2) for n in range(5)]
    (found,) = [trend for trend in trends(nights) if trend.name.startswith("gain")]
    assert found.outside
    assert found.spans[0] == (-0.1 - 0.02, -0.1 + 0.02)


def test_cells_that_need_a_look_come_first():
    nights = [night("1"), night("2"), night("3", verdict=BAD)]
    assert [(each.cell, each.word) for each in standings(nights)] == [("grid/a", NEW), ("grid/b", STEADY)]


@pytest.fixture
def nights(tmp_path):
    for number in range(5):
        wrong = number in (1, 3)
        cells = [cell(external=0.5 + number / 100), cell("HND-layerwise", verdict=BAD if wrong else OK)]
        folder = write(tmp_path, f"2026010{number}T020000Z", cells=cells,
                       steps=codes(**{"grid-embedded-default": 1 if wrong else 0}))  # fmt: skip
        answer = {"branch": "NHD", "concurrency": 1, "length": None,
                  "client": {"median": -0.1, "low": -0.2, "high": 0.0, "pairs": 20}}  # fmt: skip
        (folder / "gain").mkdir()
        (folder / "gain" / "gain.json").write_text(json.dumps({"answers": [answer, answer | {"length": 513}]}))
        close_night(folder)
    return tmp_path


def test_the_page_of_a_night_shows_the_nights_before(nights):
    page = (nights / "20260104T020000Z" / "summary.html").read_text()
    others = tuple(f"../2026010{number}T020000Z/summary.html" for number in range(4))
    found = assert_self_contained(page, others=(*others, "../20260104T020000Z/summary.html"))
    for said in ("Over 5 nights", "flaky", "2 of 5", "TTFT external over 5 nights", "gain: NHD, 1 at once"):
        assert said in found.text()
    kept = json.loads((nights / "20260104T020000Z" / "night.json").read_text())
    assert kept["gain"] == {"NHD, 1 at once": {"median": -0.1, "low": -0.2, "high": 0.0}}
    first = assert_self_contained((nights / "20260100T020000Z" / "summary.html").read_text())
    assert "Over" not in first.text()


@pytest.mark.parametrize(("bad", "race"), [(BAD, True), ("inconclusive", False)])
def test_only_wrong_answers_that_come_and_go_are_called_a_race(bad, race):
    nights = [night(str(number), verdict=bad if number % 2 else OK) for number in range(4)]
    said = [block.text for block in over_nights(nights) if isinstance(block, Paragraph)]
    assert any("likely a race" in text for text in said) == race


def whole_report(**more):
    run = {"command": ["maru-e2e", "run"], "began": "2026-01-01T00:00:00+00:00", "seconds": 3.0,
           "settings": {"connector": "embedded", "model": "smollm2"}}  # fmt: skip
    return json.dumps({"run": run, "summary": {"verdict": "pass", "cells": 2, "pass": 2}} | more)


def test_an_index_over_runs_and_nights(nights, capsys):
    for name in ("runs/a b#1", "runs/faults", "runs/broken"):
        (nights / name).mkdir(parents=True)
        (nights / name / "report.html").write_text("x")
        (nights / name / "report.json").write_text(whole_report() if name != "runs/broken" else "{torn")
    rows = [{"outcome": "caught"}, {"outcome": "missed"}]
    (nights / "runs/faults" / "scoreboard.json").write_text(json.dumps({"rows": rows}))
    assert cli.execute(["index", str(nights)]) == 0
    assert capsys.readouterr().out.endswith("index.html: 2 runs, 5 nights\n")
    others = ["runs/a%20b%231/report.html", "runs/faults/report.html"]
    others += [f"2026010{number}T020000Z/summary.html" for number in range(5)]
    text = assert_self_contained((nights / "index.html").read_text(), others=tuple(others)).text()
    for said in ("missed: 1 of 2 faults", "runs/broken", "runs/a b#1 (run)", "Over 5 nights", "corrupt", "good"):
        assert said in text
    before = (nights / "index.html").read_bytes()
    assert write_index(nights) == (2, 5)
    assert (nights / "index.html").read_bytes() == before
