import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.base.connector import HitRule
from e2e.base.errors import SettingsError
from e2e.grid.lengths import local_hit, solve


def test_chunked_connector_is_aligned_at_three_lengths_over_a_block():
    plan = solve(HitRule(256, 1), 512, 16)
    assert plan.lengths == (513, 1033, 1552)
    assert plan.oracle == "aligned"
    assert plan.why == ()


def test_garbage_connector_is_aligned_where_the_last_token_starts_a_block():
    assert solve(HitRule(1, 1), 512, 16).lengths == (513, 1025, 1537)


def test_without_a_step_lengths_are_split_matched():
    plan = solve(HitRule(16, 2), None, 16)
    assert plan.oracle == "split_matched"
    assert all(plan.matched)
    assert not any(plan.aligned)
    assert all((n - 2) // 16 == (n - 1) // 16 for n in plan.lengths)


def test_wished_lengths_are_used_as_given_each_with_its_oracle():
    plan = solve(HitRule(256, 1), 512, 16, [1025, 385, 513])
    assert plan.lengths == (1025, 385, 513)
    assert plan.aligned == (True, False, True)
    assert plan.oracle == "split_matched"
    assert plan.why == ("a prompt of 385 tokens has no exact reference: vLLM serves 384 of them, the connector 256",)
    assert solve(HitRule(256, 1), 512, 16, [1025, 513]).oracle == "aligned"


def test_rule_that_no_length_fits_says_so_and_still_gives_lengths():
    plan = solve(HitRule(256, 300), 512, 16)
    assert len(plan.lengths) == 3
    assert plan.matched == (False, False, False)
    assert "no length ends one prefill step" in plan.why[0]
    assert "at no length" in plan.why[1]
    assert all(HitRule(256, 300).external(n) > 256 for n in plan.lengths)


@pytest.mark.parametrize(
    ("wished", "longest", "sentence"),
    [
        ([1], None, "1 is too short"),
        ([0], None, "0 is too short"),
        ([2041], 2040, "2041 is too long"),
        ([], 1000, "the prompts need 1552 tokens, the model takes 1000"),
    ],
)
def test_lengths_that_cannot_be_are_refused(wished, longest, sentence):
    with pytest.raises(SettingsError, match=sentence):
        solve(HitRule(256, 1), 512, 16, wished, longest=longest)


blocks = st.sampled_from([1, 8, 16, 32, 128])


@given(
    block=blocks, chunks=st.integers(1, 40), steps=st.integers(1, 4), hold=st.integers(1, 8), number=st.integers(3, 6)
)
def test_aligned_plans_hold_what_they_promise(block, chunks, steps, hold, number):
    rule = HitRule(chunks * block, hold)
    step = steps * rule.granularity
    plan = solve(rule, step, block, number=number)
    if hold <= block:
        assert plan.oracle == "aligned"
    for n, aligned, matched in zip(plan.lengths, plan.aligned, plan.matched, strict=True):
        assert matched == (0 < rule.external(n) == local_hit(n, block))
        if aligned:
            k, r = divmod(n - 1, step)
            assert 1 <= r + 1 <= block
            assert rule.external(n) == local_hit(n, block) == k * step > rule.granularity
    assert len(plan.lengths) == len(set(plan.lengths)) == number
    assert plan.why or plan.oracle == "aligned"


@given(block=blocks, granularity=st.integers(1, 3000), hold=st.integers(0, 20))
def test_split_matched_plans_hold_what_they_promise(block, granularity, hold):
    rule = HitRule(granularity, hold)
    plan = solve(rule, None, block)
    assert len(plan.lengths) == 3
    assert list(plan.lengths) == sorted(set(plan.lengths))
    assert all(rule.external(n) > granularity for n in plan.lengths if granularity > 1)
    assert all(plan.matched) or plan.why
