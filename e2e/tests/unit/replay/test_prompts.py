import hashlib
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.base.errors import SettingsError
from e2e.base.program import Text
from e2e.replay.prompts import NONCE_TOKENS, build_prompts, going_on, least_length, read_documents


def texts(lengths):
    return [*map(Text, lengths)]


def encode(text: str) -> list[int]:
    """Words to numbers, by hash: a tokenizer with one token a word."""
    return [int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") for word in text.split()]


DOCUMENTS = [" ".join(f"{name}{number}" for number in range(400)) for name in ("sea", "bread", "canal")]


@given(st.lists(st.integers(min_value=40, max_value=1200), min_size=1, max_size=12), st.text(max_size=20))
@settings(max_examples=60, deadline=None)
def test_lengths_are_exact_and_every_prompt_is_its_own(lengths, nonce):
    prompts = build_prompts(DOCUMENTS, encode, texts=texts(lengths), nonce=nonce)
    assert [len(prompt) for prompt in prompts] == lengths
    assert [prompt.index for prompt in prompts] == list(range(len(lengths)))
    for unique in ([p.token_ids[0] for p in prompts], [p.secret for p in prompts], [p.digest for p in prompts]):
        assert len(set(unique)) == len(prompts)


def test_a_prompt_holds_its_own_secret_and_ends_with_the_question():
    for prompt in build_prompts(DOCUMENTS, encode, texts=texts([50, 300, 1200]), nonce="n"):
        secret = encode(f"{prompt.secret}.")[0]
        assert prompt.token_ids.count(secret) == 1
        assert NONCE_TOKENS < prompt.token_ids.index(secret) < len(prompt) - 10
        question = encode("Answer: The secret number of this text is")
        assert list(prompt.token_ids[-len(question) :]) == question


def test_equal_arguments_give_equal_prompts_and_another_nonce_changes_the_first_block():
    first, again, other = (
        build_prompts(DOCUMENTS, encode, texts=texts([200, 300]), nonce=nonce) for nonce in ("run1", "run1", "run2")
    )
    assert first == again
    for left, right in zip(first, other, strict=True):
        assert left.token_ids[0] != right.token_ids[0]
        assert left.token_ids[:NONCE_TOKENS] != right.token_ids[:NONCE_TOKENS]
        assert left.secret != right.secret


def test_documents_rotate():
    starts = [p.token_ids[NONCE_TOKENS] for p in build_prompts(DOCUMENTS, encode, texts=texts([200] * 4), nonce="n")]
    assert starts == [encode(DOCUMENTS[index % 3])[0] for index in range(4)]


def windows(token_ids, size):
    return [tuple(token_ids[i : i + size]) for i in range(len(token_ids) - size + 1)]


@pytest.mark.parametrize("documents", [DOCUMENTS, [DOCUMENTS[0]], [DOCUMENTS[0].replace(" ", "\n\n")]])
def test_what_is_longer_than_all_texts_repeats_nothing(documents):
    long, other = build_prompts(documents, encode, texts=texts([16_393, 16_393]), nonce="n")
    assert len(long) == 16_393
    seen = windows(long.token_ids, 80)  # more than a passage, whose text alone comes again
    assert len(set(seen)) == len(seen)
    total = sum(len(encode(text)) for text in documents)
    assert not set(windows(long.token_ids[total + 100 :], 80)) & set(windows(other.token_ids[total + 100 :], 80))
    assert build_prompts(documents, encode, texts=texts([16_393]), nonce="n")[0] == long


def test_passages_of_a_round_lie_at_other_places_than_in_the_one_before():
    (prompt,) = build_prompts(DOCUMENTS, encode, texts=texts([9000]), nonce="n")
    body = prompt.token_ids
    places = {}
    for place, token in enumerate(body):
        places.setdefault(token, []).append(place)
    distances = Counter(b - a for found in places.values() for a, b in pairwise(found))
    assert max(distances.values()) < len(body) / 20, "an offset that many tokens share would hide behind the repetition"


def test_least_length_is_the_shortest_that_works():
    least = least_length(encode)
    assert len(build_prompts(DOCUMENTS, encode, texts=texts([least]), nonce="n")[0]) == least
    with pytest.raises(SettingsError, match=f"can't hold nonce, secret and question; use at least {least - 2} tokens"):
        build_prompts(DOCUMENTS, encode, texts=texts([least - 3]), nonce="n")


@pytest.mark.parametrize(
    ("documents", "lengths", "message"),
    [
        (["word " * 5000], [100], "hold 1 different tokens, but 256"),
        ([DOCUMENTS[0]], [50] * 401, "hold 400 different tokens, but 401"),
    ],
)
def test_too_little_text_is_refused(documents, lengths, message):
    with pytest.raises(SettingsError, match=message):
        build_prompts(documents, encode, texts=texts(lengths), nonce="n")


def test_bad_files_are_refused_in_one_sentence(tmp_path):
    empty, latin, good = (tmp_path / name for name in ("empty.txt", "latin.txt", "good.txt"))
    empty.write_text(" \n")
    latin.write_bytes("Müller".encode("latin-1"))
    good.write_text("text\n")
    assert read_documents([good]) == ["text"]
    for paths, message in (
        ([good, empty], "empty.txt is empty"),
        ([latin], r"latin.txt is not UTF-8 \(byte 1\)"),
        ([tmp_path / "none.txt"], "none.txt can't be read: No such file"),
        ([], "There are no prompt files"),
    ):
        with pytest.raises(SettingsError, match=message):
            read_documents(paths)


def built(*texts):
    return build_prompts(DOCUMENTS, encode, texts=texts, nonce="n")


@pytest.mark.parametrize("more", [1, 8, 30, 300])
def test_a_shared_prefix_ends_where_it_should(more):
    first, second = built(Text(200), Text(150 + more, like=0, shared=150))
    assert len(second) == 150 + more
    assert second.token_ids[:150] == first.token_ids[:150]
    assert second.token_ids[150] != first.token_ids[150]


def test_a_text_may_be_nothing_but_the_beginning_of_another_or_all_of_it_and_more():
    first, part, more = built(Text(200), Text(120, like=0, shared=120), Text(217, like=0, shared=200))
    assert part.token_ids == first.token_ids[:120]
    assert more.token_ids[:200] == first.token_ids
    assert len(more) == 217
    assert len({prompt.digest for prompt in (first, part, more)}) == 3


def test_the_next_turn_holds_the_answer_and_keeps_its_length():
    first, then = built(Text(200), Text(400, like=0, shared=200))
    turn = going_on(first, then, shared=200, answer=(7, 8, 9, 10))
    assert turn.token_ids[:204] == (*first.token_ids, 7, 8, 9, 10)
    assert len(turn) == 400
    assert turn.token_ids[204:] == then.token_ids[204:]
    with pytest.raises(ValueError, match="can't hold"):
        going_on(first, then, shared=200, answer=range(200))
