"""What looks like a secret is not written down: not where it was given, and not where it turns up again.

A secret is known by the name that it stands under: in a table, in a flag and the word behind it, in NAME=value, in JSON
inside a word, before the @ of a URL. What was found once is replaced in whatever is written later, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

HIDDEN = "(redacted)"
#: Shorter ones are replaced only where they were given: elsewhere the same letters mean something else.
LEAST = 6

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SURE = re.compile(r"secret|passw(or)?d|passphrase|credential|authorization|[^_]_pwd$")
#: Where it lies or how it is used, not what it is.
_ABOUT = re.compile(r"_(dir|file|folder|helper|mode|name|path|type)$")
_LIKELY = re.compile(r"(^|_|api|access|auth|private|session)(key|token)s?(_?\d+)?$")
#: Tokens that a tokenizer knows or somebody counts.
_COUNTED = re.compile(r"(^|_)(bos|eos|pad|unk|sep|cls|mask|stop|special|image|max|min|num)_tokens?$")
_NUMBER = re.compile(r"[\d.,]*[kKmMgG]?")
_NOTHING = ("none", "null", "true", "false")
_URL = re.compile(r"(?<=://)[^\s/?#'\"]+(?=@)")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_PAIR = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)=(?P<value>.+)", re.DOTALL)
_VALUE = r"(?P<value>(?:(?:Bearer|Basic|Token)\s+)?[^\s'\",;&})\]]+)"
_SAID = re.compile(r"(?<![\w.-])(?P<name>-{0,2}[A-Za-z][\w.-]*)(?P<is>['\"]?\s*[:=]\s*['\"]?)" + _VALUE, re.IGNORECASE)
_FLAG_SAID = re.compile(r"(?<!\S)(?P<name>--[A-Za-z][\w.-]*)(?P<is>\s+)(?P<value>[^\s-]\S*)")
_BEARER = re.compile(r"(?<=\bbearer )[\w.~+/=-]{8,}", re.IGNORECASE)
#: Keys of events whose values are the rig's own words and digests; the rest may be anybody's.
_WORDS = """
adapter arm attempt blank branch cell content digest engine engine_key expected fault found kind logprobs mode oracle
request role rows_blank rows_expected rows_found run_id salt schema side stage strays token_ids top values when zero
zero_row
"""
_OURS = frozenset(_WORDS.split())


def is_secret(name: str, value: object) -> bool:
    """``api_key``, ``HF_TOKEN``, ``accessKey``, ``db-password``; not ``max_tokens``, nor a number of keys."""
    sure, likely, many = _looks(name)
    if not (sure or likely) or value is None or value in ("", HIDDEN) or isinstance(value, bool):
        return False
    words = [word for word in _strings(value) if word.lower() not in _NOTHING]
    return sure or any(not (many and _NUMBER.fullmatch(word)) for word in words)


@lru_cache(maxsize=4096)
def _looks(name: str) -> tuple[bool, bool, bool]:
    """Surely a secret's name, likely one, and that of several."""
    plain = re.sub(r"[^a-z0-9]+", "_", _CAMEL.sub("_", name).lower()).strip("_")
    likely = _LIKELY.search(plain) and not _COUNTED.search(plain)
    return bool(_SURE.search(plain) and not _ABOUT.search(plain)), bool(likely), plain.endswith("s")


def redacted(
    data: Mapping[str, object], known: frozenset[str] = frozenset()
) -> tuple[dict[str, object], frozenset[str]]:
    """An event's data without secrets, and all secrets so far: the ``known`` ones and those found here."""
    found: set[str] = set()
    given = {key: value if key in _OURS else _given(value, key, found) for key, value in data.items()}
    known |= _long(found)
    return {key: value if key in _OURS else _spoken(value, known) for key, value in given.items()}, known


def secrets(value: object) -> frozenset[str]:
    """Those in an environment, a command line, or any other JSON value."""
    found: set[str] = set()
    _given(value, "", found)
    return _long(found)


def words(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line without its secrets."""
    return tuple(_spoken(_given(list(argv), "", set()), frozenset()))


def text(words: str, known: frozenset[str] = frozenset()) -> str:
    """Without the ``known`` secrets, those in URLs, and what ``words`` itself calls one. Half a surrogate pair, which
    no file can hold, becomes a question mark."""
    words = without(words.encode("utf-8", "replace").decode(), known)
    words = _BEARER.sub(HIDDEN, _URL.sub(HIDDEN, words))
    return _FLAG_SAID.sub(_hidden, _SAID.sub(_hidden, words))


def without(words: str, known: Iterable[str]) -> str:
    """Without the ``known`` secrets, and otherwise as it is."""
    for secret in sorted(known, key=len, reverse=True):
        words = words.replace(secret, HIDDEN)
    return words


def _hidden(match: re.Match[str]) -> str:
    """A bare "key: ..." in a sentence is hardly ever one; ``?key=`` in a URL is."""
    in_url = match.start() > 0 and match.string[match.start() - 1] in "?&"
    bare = match["name"].lower() in ("key", "keys", "token", "tokens") and not in_url
    if bare or match["value"].startswith(HIDDEN[:-1]) or not is_secret(match["name"], match["value"]):
        return match[0]
    return f"{match['name']}{match['is']}{HIDDEN}"


def _given(value: object, name: str, found: set[str]) -> object:
    """``value`` without what stands under a secret's name, which goes to ``found``."""
    if is_secret(name, value):
        found.update(_strings(value))
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: _given(item, str(key), found) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        flags = ["", *value]
        return [
            _given(item, flag if _is_flag(flag) and not _is_flag(item) else "", found)
            for flag, item in zip(flags, value, strict=False)
        ]
    return _word(value, found) if isinstance(value, str) else value


def _is_flag(word: object) -> bool:
    return isinstance(word, str) and _FLAG.fullmatch(word) is not None


def _word(word: str, found: set[str]) -> str:
    for user in _URL.findall(word):
        found.update((user, user.partition(":")[2]))
    pair = _PAIR.fullmatch(word)
    if pair and is_secret(pair["name"], pair["value"]):
        found.add(pair["value"])
        return f"{pair['name']}={HIDDEN}"
    if word[:1] in ("{", "["):
        try:
            inside = json.loads(word)
        except (ValueError, RecursionError):
            return word
        clean = _given(inside, "", found)
        return word if clean == inside else json.dumps(clean)
    return word


def _spoken(value: object, known: frozenset[str]) -> object:
    if isinstance(value, str):
        return text(value, known)
    if isinstance(value, Mapping):
        return {key: _spoken(item, known) for key, item in value.items()}
    return [_spoken(item, known) for item in value] if isinstance(value, (list, tuple)) else value


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(item)


def _long(found: set[str]) -> frozenset[str]:
    return frozenset(secret for secret in found if len(secret) >= LEAST and secret != HIDDEN)
