"""Prompts of exact length in tokens, each with a nonce in front, a secret inside and a question about it at the end.

What is longer than all texts together goes on with passages of them, shuffled anew in every round, each behind a
numbered line of its own: no stretch of it comes twice at a distance that would hide a wrong offset.

Nothing here depends on how token lists decode: an engine is given the token ids themselves, so pieces are joined as
tokens and a length is exact by construction. No special token is added: what an engine would put in front of a text is
no part of a token list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from textwrap import wrap

from e2e.base.errors import SettingsError
from e2e.base.program import Text
from e2e.regular import read_text

#: Text -> token ids without special tokens. ``folder_tokenizer`` makes one; ``EngineClient.tokenize`` is one.
Encode = Callable[[str], list[int]]

#: Tokens of the nonce. Drawn from at least 256 different tokens, so 64 bits and more; less than any block size in use,
#: so the first block of every prompt is its own.
NONCE_TOKENS = 8
_LEAST_POOL = 256
SHIPPED = Path(__file__).resolve().parents[1] / "prompts"
#: Characters of a passage, at most.
_PASSAGE = 400
_SECRETS = 900_000

_TELL = "\n\nA note to the reader: the secret number of this text is {secret}. Remember it.\n\n"
_ASK = "\n\nQuestion: What is the secret number of this text?\nAnswer: The secret number of this text is"


@dataclass(frozen=True)
class Prompt:
    """``index``: place in the attempt's list for its engine key. ``secret``: six digits that stand in the middle."""

    token_ids: tuple[int, ...]
    secret: str
    index: int

    @property
    def digest(self) -> str:
        """SHA-256 of the token ids, written in decimal with commas."""
        return hashlib.sha256(",".join(map(str, self.token_ids)).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.token_ids)


def documents(folder: Path | None = None) -> list[str]:
    """The texts of a folder, by default those of the package."""
    return read_documents((folder or SHIPPED).glob("*.txt"))


def read_documents(paths: Iterable[Path]) -> list[str]:
    """The texts of the given files, in order of name. SettingsError for a file that is missing, empty or not UTF-8."""
    documents = []
    for path in sorted(paths):
        try:
            text = read_text(path).strip()
        except UnicodeDecodeError as error:
            raise SettingsError(f"The prompt file {path} is not UTF-8 (byte {error.start}); convert it.") from error
        except OSError as error:
            raise SettingsError(f"The prompt file {path} can't be read: {error.strerror}; check the path.") from error
        if not text:
            raise SettingsError(f"The prompt file {path} is empty; fill it or remove it.")
        documents.append(text)
    if not documents:
        raise SettingsError("There are no prompt files; give a folder with at least one .txt file.")
    return documents


def folder_tokenizer(model: Path) -> Encode:
    """The tokenizer of a model folder, read from its tokenizer.json. SettingsError when that can't be done."""
    from tokenizers import Tokenizer  # here, since attach needs none

    path = model / "tokenizer.json"
    if not path.is_file():
        raise SettingsError(f"The model folder {model} has no tokenizer.json; give a complete model folder.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise SettingsError(f"The tokenizer {path} can't be read: {error}; give a complete model folder.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    return encode


def decoder(model: Path) -> Callable[[int], str] | None:
    """One token id -> its text, by the tokenizer of a model folder; None where that is not there."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    except Exception:  # the library raises nothing narrower
        return None
    return lambda token: tokenizer.decode([token], skip_special_tokens=False)


def build_prompts(documents: Sequence[str], encode: Encode, *, texts: Sequence[Text], nonce: str) -> list[Prompt]:
    """One prompt per text, of its exact length in tokens. Equal arguments give equal prompts.

    ``nonce`` must be new for every run, attempt and engine key; then no prompt was ever seen by any store, and already
    the first token differs between the prompts of one list, but where one shares the first tokens of another. What
    follows these begins with a nonce too, unless it is another one's body. Prompt i starts with document i, counted in
    rotation, runs on into the following ones and then into shuffled passages of all. SettingsError for a length that
    can't hold nonce, secret and question, and for documents that have too few different tokens.
    """
    encoded = [encode(text + "\n\n") for text in documents]
    pool = sorted({token for tokens in encoded for token in tokens})
    if len(pool) < max(_LEAST_POOL, len(texts)):
        raise SettingsError(
            f"The prompt files hold {len(pool)} different tokens, but {max(_LEAST_POOL, len(texts))} are needed;"
            " give more or longer files."
        )
    seed = _number(nonce)
    question = encode(_ASK)
    prompts: list[Prompt] = []
    for index, text in enumerate(texts):
        secret = str(100_000 + (seed + index * 7919) % _SECRETS)  # 7919 is prime to 900,000: no secret twice
        front = prompts[text.like].token_ids[: text.shared] if text.like is not None else ()
        own, room = _nonce_tokens(pool, seed, index), text.tokens - len(front)
        if front and prompts[text.like].token_ids[len(front) :][:1] == (own[0],):
            own[0] = pool[(seed + index + 1) % len(pool)]  # no token more is shared than was asked for
        tell = encode(_TELL.format(secret=secret))
        if text.body is not None:
            token_ids = (*front, *prompts[text.body].token_ids[len(front) : text.tokens])
        elif front and room < len(own) + len(tell) + len(question):  # a short end holds a nonce at most
            token_ids = (*front, *own[:room], *_drawn(pool, seed, index, room - len(own)))
        else:
            body = _body(encoded, start=index, tokens=room)
            body += _passages(documents, encode, name=f"{seed}/{index}", tokens=room - len(body))
            token_ids = (*front, *_join(own, body, tell, question, room))
        prompts.append(Prompt(token_ids=token_ids, secret=secret, index=index))
    return prompts


def going_on(first: Prompt, then: Prompt, *, shared: int, answer: Sequence[int]) -> Prompt:
    """``first`` up to ``shared`` tokens, the answer to it, and the end of ``then``, which is as long as the whole and
    begins in the same way. ValueError when nothing of it is left."""
    at = shared + len(answer)
    if at >= len(then):
        raise ValueError(
            f"a prompt of {len(then)} tokens can't hold {shared} tokens, an answer of {len(answer)} and more"
        )
    return replace(then, token_ids=(*first.token_ids[:shared], *answer, *then.token_ids[at:]))


def least_length(encode: Encode) -> int:
    """The shortest prompt, in tokens, that holds nonce, secret and question."""
    return NONCE_TOKENS + len(encode(_TELL.format(secret="100000"))) + len(encode(_ASK)) + 2


def _join(front: list[int], body: list[int], tell: list[int], question: list[int], length: int) -> tuple[int, ...]:
    room = length - len(front) - len(tell) - len(question)
    if room < 0:
        raise SettingsError(
            f"A prompt of {length} tokens can't hold nonce, secret and question; use at least {length - room} tokens."
        )
    half = room // 2
    return tuple(front + body[:half] + tell + body[half:room] + question)


def _body(texts: Sequence[list[int]], *, start: int, tokens: int) -> list[int]:
    body: list[int] = []
    for offset in range(len(texts)):
        if len(body) >= tokens:
            break
        body += texts[(start + offset) % len(texts)]
    return body


def _passages(documents: Sequence[str], encode: Encode, *, name: str, tokens: int) -> list[int]:
    """At least so many tokens; other ones for every ``name``."""
    body: list[int] = []
    if tokens > 0:
        passages = [passage for text in documents for passage in wrap(text, _PASSAGE)]
        shuffle = Random(name).shuffle
        for turn in count(1):
            if len(body) >= tokens:
                break
            shuffle(passages)
            marks = (f"[{turn}.{number}.{_number(f'{name}/{turn}/{number}') % 10**9:09}]" for number in count(1))
            body += encode("".join(f"{mark} {passage}\n" for mark, passage in zip(marks, passages, strict=False)))
    return body


def _nonce_tokens(pool: Sequence[int], seed: int, index: int) -> list[int]:
    """The first token walks through the pool, so that no two prompts of a list share it; the others are drawn."""
    return [pool[(seed + index) % len(pool)], *_drawn(pool, seed, index, NONCE_TOKENS - 1)]


def _drawn(pool: Sequence[int], seed: int, index: int, tokens: int) -> list[int]:
    return [pool[_number(f"{seed}/{index}/{place}") % len(pool)] for place in range(1, tokens + 1)]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")
