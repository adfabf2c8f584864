"""report.html of real recordings: whole, self-contained, small, and true to what was recorded."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from read_html import assert_self_contained
from synthetic_recording import CELL, Recording

from e2e.base.event import Event
from e2e.base.exhibit import RIGHT, UNREAD, WRONG, Exhibit
from e2e.base.judgement import Judgement
from e2e.base.verdict import Reason, Verdict
from e2e.judge import judge
from e2e.judge.exhibits import exhibits
from e2e.recording.journal import read
from e2e.report import html, plots, run_page
from e2e.report.document import Fold, Heading, KvPicture, Paragraph, Table
from e2e.report.facts import facts
from e2e.report.html import LEFT_OUT, LIMIT

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"
REAL = ("golden/grid", "golden/faults-kernel", "golden/crash", "golden/decode-bench", "golden/gain", "h200/defect",
        "scenarios/crowd-loads_exchanged", "scenarios/identity")  # fmt: skip


@cache
def recorded(name: str) -> tuple[list[Event], Judgement, dict[tuple[str, int], Exhibit]]:
    events = read(RECORDINGS / f"{name}.jsonl.gz")
    judgement = judge(events)
    return events, judgement, dict(exhibits(events, judgement))


def page(name: str) -> str:
    events, judgement, shown = recorded(name)
    return html.render(run_page.page(facts(events, shown), judgement))


@pytest.mark.parametrize("name", REAL)
def test_a_page_is_whole_and_self_contained(name):
    text = page(name)
    assert text == page(name)
    found = assert_self_contained(text)
    _, judgement, shown = recorded(name)
    words = found.text()
    for cell in judgement.cells:
        assert words.count(cell.id) >= 2  # among the figures, and by itself
    assert [tag for tag, _ in found.tags].count("details") >= len(judgement.cells)
    assert sum(cell.verdict.value in words for cell in judgement.cells) == len(judgement.cells)
    assert shown.keys() <= {(cell.id, cell.attempt) for cell in judgement.cells}


@pytest.mark.parametrize("name", REAL)
def test_what_is_shown_is_what_was_judged(name):
    _, judgement, shown = recorded(name)
    for cell in judgement.cells:
        exhibit = shown.get((cell.id, cell.attempt), Exhibit())
        external = [step for step in exhibit.steps if step.source == "external"]
        if cell.hits.engine is not None:
            assert sum(step.seen_external for step in external) == cell.hits.engine
            assert sum(step.external.most for step in external) == cell.hits.predicted
        wrong = [each for each in exhibit.maps if each.wrong]
        differs = [f for f in cell.findings if f.reason is Reason.DIGEST_DIFFERS]
        assert bool(wrong) >= bool(differs)
        assert not (wrong and cell.verdict is Verdict.PASS)
        for finding in differs:
            seen = finding.evidence
            (first, *_) = [
                m for m in wrong if (m.site, m.send, m.prompt) == (seen["engine"], seen["arm"], seen["prompt"])
            ]
            assert first.layers[seen["layer"]][seen["block"]] == WRONG
            assert all(WRONG not in layer for layer in first.layers[: seen["layer"]])
        if (difference := cell.oracle.first_difference) and exhibit.parting:
            (row,) = [row for row in exhibit.parting.rows if row[0] == difference["position"]]
            assert [side and side.token for side in row[1:]] == [difference["expected"], difference["found"]]


def test_all_is_right_in_what_passed_and_what_was_not_read_is_no_right():
    for cell in recorded("golden/grid")[2].values():
        assert cell.maps
        assert {sign for each in cell.maps for layer in each.layers for sign in layer} <= {RIGHT, UNREAD}
    picture = KvPicture([RIGHT * 2 + WRONG, UNREAD * 3], "said")
    text = html.render([Heading("t", level=1), picture])
    for path in ('class="right" d="M0 0h2v1h-2z"', 'class="wrong" d="M2 0h1v1h-1z"', 'class="unread" d="M0 1h3v1h-3z"'):
        assert path in text


def test_tokens_are_told_in_words_where_a_tokenizer_is_at_hand():
    events, judgement, _ = recorded("golden/decode-bench")
    (exhibit,) = exhibits(events, judgement, lambda token: f"word{token}").values()
    position, expected, _ = next(row for row in exhibit.parting.rows)
    assert position == 0
    assert [choice.text for choice in expected.top] == [f"word{choice.token}" for choice in expected.top]


def test_noise_is_drawn_where_it_is_known():
    assert "Grey is the noise of external ones." in page("golden/grid")
    assert "Grey is" not in page("golden/crash")  # one cell tells no interval


def test_a_long_list_of_figures_may_be_broken_and_a_figure_may_not():
    text = html.render(
        [Heading("t", level=1), Table(("a", "b"), [("x", "8.85x (8.01x..9.30x)"), ("y", "0.123, " * 8)])]
    )
    assert '<td class="figure">8.85x (8.01x..9.30x)</td>' in text
    assert '<td class="figure many">0.123, ' in text


def test_a_page_without_plots_says_so_and_is_whole(monkeypatch):
    assert "data:image/svg+xml" in page("golden/grid")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = page("golden/grid")
    assert "<img" not in text
    assert plots.MISSING.partition(";")[0] in assert_self_contained(text).text()


def test_a_page_while_the_run_goes_on_says_where_the_rest_is():
    events = Recording().build()
    text = html.render(run_page.page(facts(events), judge(events)))
    assert "once the run has ended" in assert_self_contained(text).text()
    assert CELL in text


def test_a_page_that_would_grow_too_large_leaves_out_what_passed_first():
    long = "word " * 3000
    folds = [Fold(f"cell {n}", [Paragraph(long + str(i)) for i in range(8)], spare=n % 2) for n in range(24)]
    text = html.render([Heading("t", level=1), *folds])
    assert LIMIT - 200_000 < len(text.encode()) < LIMIT + 20_000
    kept = [f"cell {n}" in part and LEFT_OUT.text not in part for n, part in enumerate(text.split("<details>")[1:])]
    assert all(kept[n] for n in range(0, 24, 2))
    assert not any(kept[9::2])
    assert kept.count(False) < 12


def test_a_run_of_thousands_of_cells_still_makes_a_small_page():
    events, judgement, shown = recorded("golden/faults-kernel")
    many, exhibited = [], {}
    for number in range(2000):
        cell = judgement.cells[number % len(judgement.cells)]
        many.append(replace(cell, id=f"{cell.id}-{number}", settings={**cell.settings, "round": number}))
        exhibited[many[-1].id, cell.attempt] = shown[cell.id, cell.attempt]
    text = html.render(run_page.page(facts(events, exhibited), Judgement(tuple(many))))
    assert "1000 cells have no section of their own" in assert_self_contained(text).text()
