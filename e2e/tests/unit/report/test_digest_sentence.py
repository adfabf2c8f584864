import pytest

from e2e.base.verdict import Finding, Reason
from e2e.judge.classify import PATTERNS
from e2e.report.sentences import _PATTERNS, sentence

SEEN = {
    "arm": "external", "prompt": 1, "layer": 3, "kv": "K", "head": 2, "block": 7, "token": 112, "token_end": 128,
    "wrong_pages": 90, "pages": 360, "wrong_share": 0.25, "wrong_layers": 5, "layers": 30,
}  # fmt: skip


@pytest.mark.parametrize("reason", [Reason.DIGEST_DIFFERS, Reason.FIRST_ANSWER_DIFFERS])
def test_where_how_much_and_what(reason):
    text = sentence(Finding("digests", reason, {**SEEN, "pattern": "shifted_by_n_slots", "slots": -1}))
    assert "arm external, prompt 1: first wrong at L 3, C K, H 2, B 7 (N 112 to 127)" in text
    assert "90 of 360 pages (25.00%) in 5 of 30 layers" in text
    assert text.endswith("it is shifted by -1 slots.")


def test_every_pattern_has_words():
    assert set(_PATTERNS) == set(PATTERNS)


def test_a_pattern_without_its_details_is_named():
    assert sentence(Finding("digests", Reason.DIGEST_DIFFERS, {**SEEN, "pattern": "stale"})).endswith("stale.")


def test_vllm_is_spelt_as_it_is():
    assert sentence(Finding("preparation", Reason.RESET_REFUSED, {"arm": "external"})).startswith("vLLM did not reset")
