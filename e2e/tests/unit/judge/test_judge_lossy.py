"""Lossy by declaration: measured in place of judged, and only what loss can do."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_digests import HEADS, add_digests, packed
from synthetic_recording import Recording

from e2e.base.judgement import CellJudgement
from e2e.base.verdict import Reason, Verdict
from e2e.judge import judge
from e2e.report.sentences import sentence

EXTERNAL = ("external", "external_again")


def verdict(recording: Recording) -> CellJudgement:
    (cell,) = judge(recording.build()).cells
    return cell


def other_token(data) -> None:
    data["token_ids"][2] += 5
    data["logprobs"][2] -= 1.5


def nudged(data) -> None:
    data["logprobs"][2] += 2**-10


def rounded(values) -> None:
    values ^= 1


def lossy(*, declared: bool = True, edit=nudged, digests=None) -> Recording:
    """``edit``: what is done to the external answers, ``digests`` to what was read for them."""
    recording = Recording(digests=True, **({"lossy": True} if declared else {}))
    add_digests(recording, edit={(arm, prompt): digests for arm in EXTERNAL for prompt in range(3)} if digests else {})
    for arm in EXTERNAL:
        recording.change("request.done", edit, arm=arm)
    return recording


@pytest.mark.parametrize(
    ("edit", "tokens", "difference"), [(nudged, "the same tokens", 2**-10), (other_token, "other tokens", 1.5)]
)
def test_declared_loss_is_measured(edit, tokens, difference):
    cell = verdict(lossy(edit=edit, digests=rounded))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.LOSSY_BY_DECLARATION)
    assert cell.first_generation == "not reproduced"
    assert cell.oracle.max_logprob_diff == pytest.approx(difference)
    assert cell.ttft.speedup is None
    (finding,) = cell.findings
    assert finding.evidence["wrong_share"] == 1
    assert tokens in sentence(finding)
    assert "100.00%" in sentence(finding)


def test_declared_loss_without_any_does_not_pass():
    cell = verdict(lossy(edit=lambda data: None))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.LOSSY_BY_DECLARATION)
    assert cell.findings[0].evidence["wrong_share"] == 0


@pytest.mark.parametrize("edit", [nudged, other_token])
def test_undeclared_loss_is_corrupt(edit):
    assert verdict(lossy(declared=False, edit=edit, digests=rounded)).verdict is Verdict.CORRUPT


def test_loss_is_no_licence_to_load_something_else():
    """Pages that belong elsewhere, or that nobody wrote, are not a little off."""
    cell = verdict(lossy(edit=other_token, digests=lambda values: values.__setitem__(..., values[..., ::-1].copy())))
    assert cell.verdict is Verdict.CORRUPT
    assert Reason.LOSSY_BY_DECLARATION not in {finding.reason for finding in cell.findings}


@pytest.mark.parametrize(("factor", "declared"), [(1.01, True), (0.8, True), (-1.0, False), (np.nan, False)])
def test_a_page_that_is_far_off_is_no_loss(factor, declared):
    recording = lossy(digests=rounded)
    page = np.linspace(-1, 1, 64, dtype="<f4")
    (read,) = recording.find("digest.taken", arm="external", prompt=0)
    rows = packed(np.zeros(2 * HEADS, "<u8"))
    recording.add(
        "digest.sample", **{key: read[key] for key in ("engine", "cell", "arm", "prompt", "request")}, layer=0, kv=0,
        head=0, block=0, heads=HEADS, block_size=1, first_token=0, rows_expected=rows, rows_found=rows, zero_row="0",
        expected=packed(page.view("u1")), found=packed((page * np.float32(factor)).view("u1")), dtype="float32",
    )  # fmt: skip
    cell = verdict(recording)
    assert (cell.reason is Reason.LOSSY_BY_DECLARATION) is declared
    if declared:
        assert cell.findings[0].evidence["page_off"] == pytest.approx(abs(factor - 1), rel=1e-3)
    else:
        assert cell.verdict is Verdict.CORRUPT


def test_the_first_answer_is_held_to_the_bit():
    cell = verdict(lossy(digests=rounded).change("request.done", nudged, arm="cold", cell=Recording().plan["cell"]))
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.FIRST_ANSWER_DIFFERS)


def test_what_was_not_served_comes_first():
    recording = lossy(digests=rounded)
    recording.change("metrics.delta", lambda data: data["counters"].update(external_kv_transfer=0, external_hits=0))
    assert verdict(recording).reason is Reason.NO_HIT
