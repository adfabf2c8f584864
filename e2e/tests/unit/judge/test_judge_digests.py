"""The digests rule on synthetic recordings: equal, wrong in one place, missing, foreign, first answer."""

from __future__ import annotations

import pytest
from synthetic_digests import add_digests, packed, pages
from synthetic_recording import CELL, CONNECTOR, Recording

from e2e.base.judgement import CellJudgement
from e2e.base.verdict import Finding, Reason, Verdict
from e2e.judge import judge
from e2e.report.sentences import sentence


def verdict(recording: Recording) -> CellJudgement:
    (cell,) = judge(recording.build()).cells
    return cell


def found(cell: CellJudgement, reason: Reason) -> list[Finding]:
    return [finding for finding in cell.findings if finding.reason is reason]


def flip(*place: int):
    def edit(values) -> None:
        values[place] ^= 1

    return edit


def test_equal_digests_pass():
    assert verdict(add_digests(Recording(digests=True))).verdict is Verdict.PASS


def test_one_wrong_page_is_corrupt_and_located():
    recording = add_digests(Recording(digests=True), edit={("external", 1): flip(2, 1, 0, 5)})
    cell = verdict(recording)
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.DIGEST_DIFFERS)
    (finding,) = found(cell, Reason.DIGEST_DIFFERS)
    seen = finding.evidence
    assert (seen["arm"], seen["prompt"]) == ("external", 1)
    assert (seen["layer"], seen["kv"], seen["head"], seen["block"], seen["token"]) == (2, "V", 0, 5, 80)
    assert (seen["wrong_pages"], seen["pattern"]) == (1, "unknown")


def test_what_vllm_s_own_cache_served_may_not_have_been_written_into():
    recording = add_digests(Recording(digests=True), edit={("local", 1): flip(2, 1, 0, 5)})
    cell = verdict(recording)
    (finding,) = found(cell, Reason.DIGEST_DIFFERS)
    assert cell.verdict is Verdict.CORRUPT
    assert (finding.evidence["arm"], finding.evidence["layer"], finding.evidence["block"]) == ("local", 2, 5)


def test_a_stale_chunk_names_the_other_prompt():
    recording = Recording(digests=True)
    add_digests(recording, edit={("external", 2): lambda v: v.__setitem__(..., pages(1, 96)[..., : v.shape[3]])})
    (finding,) = found(verdict(recording), Reason.DIGEST_DIFFERS)
    assert (finding.evidence["pattern"], finding.evidence["of_prompt"]) == ("stale", 1)


def test_the_first_answer_is_compared_with_the_baseline():
    recording = Recording(digests=True)
    add_digests(recording, edit={(arm, 0): flip(1, 0, 1, 3) for arm in ("cold", "local", "external", "external_again")})
    cell = verdict(recording)
    (finding,) = found(cell, Reason.FIRST_ANSWER_DIFFERS)
    assert cell.verdict is Verdict.CORRUPT
    assert not found(cell, Reason.DIGEST_DIFFERS)
    assert (finding.evidence["layer"], finding.evidence["kv"], finding.evidence["block"]) == (1, "K", 3)


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ({"engine": CONNECTOR, "arm": "cold", "prompt": 1}, "computed KV"),
        ({"engine": CONNECTOR, "arm": "external_again", "prompt": 0}, "read KV"),
        ({"engine": CONNECTOR, "arm": "local", "prompt": 0}, "read KV"),
        ({"cell": None, "prompt": 2}, "computed KV"),
    ],
)
def test_a_missing_digest_is_inconclusive(where, what):
    cell = verdict(add_digests(Recording(digests=True)).drop("digest.taken", **where))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.DIGEST_MISSING)
    assert [finding.evidence["what"] for finding in cell.findings] == [what]


def test_layers_that_were_not_seen_are_missing():
    recording = add_digests(Recording(digests=True))
    recording.change("digest.taken", lambda d: d.update(missing_layers=[3]), cell=CELL, arm="external", prompt=0)
    assert verdict(recording).reason is Reason.DIGEST_MISSING


def test_digests_of_another_request_prove_nothing():
    cell = verdict(add_digests(Recording(digests=True), sent=False))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.DIGEST_MISSING)
    assert "digests of another request" in {finding.evidence["what"] for finding in cell.findings}


@pytest.mark.parametrize("values", [[], "", "no base64!", packed(pages(0, 3)), None])
def test_digests_that_can_not_be_read_are_missing(values):
    recording = add_digests(Recording(digests=True))
    recording.change("digest.taken", lambda d: d.update(values=values), cell=CELL, arm="external", prompt=1)
    cell = verdict(recording)
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.DIGEST_MISSING)


def test_values_that_were_written_once_count_everywhere():
    recording = add_digests(Recording(digests=True))
    kept = recording.find("digest.taken", arm="cold", cell=CELL, prompt=0)[0]
    kept["content"] = "c0"
    for data in recording.find("digest.taken", cell=None, prompt=0):
        data.update(content="c0", values=None)
    assert verdict(recording).verdict is Verdict.PASS


def test_a_planted_fault_is_still_corrupt_when_only_digests_see_it():
    recording = add_digests(Recording(digests=True, fault="bit_flip"), edit={("external", 0): flip(0, 0, 0, 0)})
    recording.add("fault.fired", engine=CONNECTOR, cell=CELL, arm="external", fault="bit_flip", count=1)
    assert verdict(recording).reason is Reason.DIGEST_DIFFERS


def two_ranks(recording: Recording, *, edit=None) -> Recording:
    """The same digests from another rank, of which engines and plan now have two."""
    for data in recording.find("digest.taken"):
        recording.add("digest.taken", **{**data, "rank": 1})
    for data in recording.find("engine.config"):
        data["effective"]["ranks"] = 2
    if edit is not None:
        recording.change("digest.taken", edit, cell=CELL, arm="external", prompt=1, rank=1)
    return recording


def reads(recording: Recording, *values) -> Recording:
    """A request that read as often as there are ``values``."""
    (first,) = recording.find("digest.taken", cell=CELL, arm="external", prompt=1)
    for nth, wrong in enumerate(values[1:], start=2):
        recording.add("digest.taken", **{**first, "nth": nth, "reads": len(values), "values": wrong or first["values"]})
    first.update(values=values[0] or first["values"], nth=1, reads=len(values))
    return recording


def wrong_like(row) -> str:
    """Values of a row with one wrong page."""
    values = pages(1, row["blocks"])
    values[2, 0, 1, 3] ^= 1
    return packed(values)


def test_two_ranks_that_tell_alike_pass():
    assert verdict(two_ranks(add_digests(Recording(digests=True)))).verdict is Verdict.PASS


def test_a_wrong_rank_is_named():
    recording = two_ranks(add_digests(Recording(digests=True)), edit=lambda d: d.update(values=wrong_like(d)))
    cell = verdict(recording)
    (finding,) = found(cell, Reason.DIGEST_DIFFERS)
    assert cell.verdict is Verdict.CORRUPT
    assert (finding.evidence["rank"], finding.evidence["wrong_ranks"], finding.evidence["ranks"]) == (1, [1], 2)
    assert "rank 1 of 2" in sentence(finding)


@pytest.mark.parametrize(
    "where", [{"arm": "external"}, {"arm": "local", "cell": CELL}, {"arm": "cold", "cell": CELL}, {"cell": None}]
)
def test_every_rank_must_have_told(where):
    recording = two_ranks(add_digests(Recording(digests=True))).drop("digest.taken", prompt=0, rank=1, **where)
    cell = verdict(recording)
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.DIGEST_MISSING)
    assert all("rank 1" in finding.evidence["what"] for finding in cell.findings)


def test_a_rank_that_never_told_is_missing_by_the_plan_alone():
    recording = add_digests(Recording(digests=True))
    recording.change("plan.cell", lambda d: d["settings"].update(tensor_parallel=2))
    cell = verdict(recording)
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.DIGEST_MISSING)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_wrong_read_beside_right_ones_is_wrong(place):
    values = [None, None, None]
    recording = add_digests(Recording(digests=True))
    (first,) = recording.find("digest.taken", cell=CELL, arm="external", prompt=1)
    values[place] = wrong_like(first)
    cell = verdict(reads(recording, *values))
    (finding,) = found(cell, Reason.DIGEST_DIFFERS)
    assert cell.verdict is Verdict.CORRUPT
    assert (finding.evidence["read"], finding.evidence["reads"]) == (place + 1, 3)
    assert f"read {place + 1} of 3" in sentence(finding)


def test_right_reads_pass_and_a_lost_one_is_missing():
    assert verdict(reads(add_digests(Recording(digests=True)), None, None)).verdict is Verdict.PASS
    for nth in (1, 2):
        recording = reads(add_digests(Recording(digests=True)), None, None).drop("digest.taken", prompt=1, nth=nth)
        cell = verdict(recording)
        assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.DIGEST_MISSING)
        assert cell.findings[0].evidence["what"] == f"read KV of rank 0 of read {nth}"


def test_a_read_that_the_connector_took_back_decides_nothing():
    recording = add_digests(Recording(digests=True))
    (first,) = recording.find("digest.taken", cell=CELL, arm="external", prompt=1)
    wrong = wrong_like(first)
    reads(recording, wrong, None)
    first["failed"] = True
    cell = verdict(recording)
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.LOAD_FAILED)
    assert not found(cell, Reason.DIGEST_DIFFERS)


def tailed(**spoilt: int) -> Recording:
    """A connector that serves all but the last token of prompts that are no whole blocks. ``spoilt``: arm -> prompt."""
    recording = add_digests(Recording(digests=True, lengths=(523, 781, 1031), chunk=1, oracle="split_matched"))
    for data in recording.find("digest.taken"):
        tail = pages(data["prompt"], 99)[..., -1:].copy()
        if spoilt.get(data["arm"]) == data["prompt"]:
            tail[1, 0, 2] ^= 1
        data["tail"] = packed(tail)
    return recording


def test_what_stands_behind_the_whole_blocks_vouches_for_a_load_without_an_exact_reference():
    assert verdict(tailed()).verdict is Verdict.PASS
    without = tailed()
    for data in without.find("digest.taken", arm="external", prompt=1):
        del data["tail"]
    assert found(verdict(without), Reason.NO_EXACT_REFERENCE)


def test_a_wrong_token_behind_the_whole_blocks_is_corrupt_and_located():
    cell = verdict(tailed(external_again=1))
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.DIGEST_DIFFERS)
    (finding,) = found(cell, Reason.DIGEST_DIFFERS)
    seen = finding.evidence
    assert (seen["arm"], seen["prompt"], seen["layer"], seen["kv"], seen["head"]) == ("external_again", 1, 1, "K", 2)
    assert seen["block"] == 780 // 16
