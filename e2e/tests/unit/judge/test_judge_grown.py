"""What the rerun adds to its four arms, spoilt: which is corrupt, and which only not isolated."""

from __future__ import annotations

import pytest
from stories import GROWN
from synthetic_digests import BLOCK, HEADS, LAYERS, add_digests, of_text, packed
from synthetic_recording import CELL, CONNECTOR, Recording, answer

from e2e.base.judgement import CellJudgement
from e2e.base.verdict import Reason, Verdict
from e2e.judge import judge

(FOREIGN,) = GROWN.send(("connector", "other_salt")).texts


def grown(**edit) -> Recording:
    return add_digests(Recording(program=GROWN, digests=True), **edit)


def verdict(recording: Recording) -> CellJudgement:
    (cell,) = judge(recording.build()).cells
    return cell


def reasons(cell: CellJudgement) -> set[Reason]:
    return {finding.reason for finding in cell.findings}


def served(recording: Recording, tokens: int = 256, *, wrong: bool = False) -> Recording:
    """The other salt's prompt gets so many tokens of what was stored, told of by everybody."""

    def counted(data):
        data["counters"].update(
            external_kv_transfer=tokens, external_hits=tokens, local_compute=data["counters"]["local_compute"] - tokens
        )

    def given(data):
        said = {name: part[:2] for name, part in answer(FOREIGN, tokens).items()}
        data.update(said, cached_tokens=tokens)

    place = {"engine": CONNECTOR, "cell": CELL, "arm": "other_salt", "prompt": FOREIGN}
    values = of_text(GROWN, FOREIGN, tokens // BLOCK)
    values[1, 0, 0, 0] += wrong
    recording.change("metrics.delta", counted, arm="other_salt").change("request.done", given, arm="other_salt")
    recording.change("connector.evidence", lambda d: d["counters"].update(hit_tokens=tokens), arm="other_salt")
    (sent,) = recording.find("request.sent", arm="other_salt")
    recording.add(
        "digest.taken", **place, request=sent["request"], when="read", rank=0, blocks=tokens // BLOCK, tokens=tokens,
        block_size=BLOCK, layers=LAYERS, heads=HEADS, missing_layers=[], values=packed(values), zero=f"{7:016x}",
        blank=None,
    )  # fmt: skip
    return recording


def other_token(data) -> None:
    data["token_ids"][1] += 5


def test_a_hit_under_another_salt_is_not_isolated_and_no_corruption_by_itself():
    cell = verdict(served(grown()))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.NOT_ISOLATED)
    assert reasons(cell) == {Reason.NOT_ISOLATED}


def test_it_is_corrupt_where_the_bytes_are_not_what_this_prompt_computes():
    cell = verdict(served(grown(), wrong=True))
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.DIGEST_DIFFERS)
    assert Reason.NOT_ISOLATED in reasons(cell)


def test_it_is_corrupt_where_the_answer_is_not_what_this_prompt_computes():
    cell = verdict(served(grown()).change("request.done", other_token, arm="other_salt"))
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.TOKENS_DIFFER)


@pytest.mark.parametrize("arm", ["beginning", "external_third", "afterwards"])
def test_a_wrong_token_in_what_was_added_is_corrupt(arm):
    cell = verdict(grown().change("request.done", other_token, arm=arm))
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.TOKENS_DIFFER)
    assert {finding.evidence["arm"] for finding in cell.findings} == {arm}


@pytest.mark.parametrize(("arm", "prompt"), [("external_third", 2), ("afterwards", 0), ("afterwards", 4)])
def test_a_wrong_page_in_what_was_added_is_corrupt(arm, prompt):
    def spoilt(values):
        values[1, 0, 1, 3] += 1

    cell = verdict(grown(edit={(arm, prompt): spoilt}))
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.DIGEST_DIFFERS)


def test_a_short_answer_is_held_against_as_much_of_a_long_one():
    def cut(data):
        data.update({name: data[name][:1] for name in ("token_ids", "logprobs", "top")})

    assert len(grown().find("request.done", arm="external_third")[0]["token_ids"]) == 2
    assert len(grown().find("request.done", arm="external")[0]["token_ids"]) == 4
    assert verdict(grown()).verdict is Verdict.PASS
    cell = verdict(grown().change("request.done", cut, arm="external_third"))
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.TOKENS_DIFFER)


def test_a_body_that_is_found_without_what_stands_before_it_is_corrupt_by_its_answer():
    """As much as a plain engine serves of it from its own cache, by a connector that knows only the body."""
    (*_, mixed) = GROWN.send(("connector", "afterwards")).texts

    def spoilt(data):
        data.update(cached_tokens=512)
        other_token(data)

    cell = verdict(grown().change("request.done", spoilt, arm="afterwards", prompt=mixed))
    assert cell.verdict is Verdict.CORRUPT
    assert Reason.TOKENS_DIFFER in reasons(cell)


def test_figures_count_all_external_sends_and_times_are_of_the_arms_alone():
    cell = verdict(grown())
    sent = [(send, hit) for send in GROWN.sends if send.external for hit in GROWN.hits(send)]
    assert cell.replays == len(sent) == 10
    assert cell.hits.predicted == cell.hits.engine == sum(hit.external.most for _, hit in sent)
    assert [each.tokens for each in cell.ttft.by_length] == [text.tokens for text in GROWN.texts[:3]]
    assert cell.ttft.speedup == pytest.approx(4.0)
    assert cell.first_generation == "identical"
    assert cell.oracle.kind == "aligned"
