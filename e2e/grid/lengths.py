"""Prompt lengths at which the exact oracle holds (docs/oracle.md#aligned-lengths), solved per connector.

In tokens throughout: n = prompt length, S = prefill step. vLLM's own prefix cache serves whole blocks and always
computes the last token: (n - 1) // block * block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from math import gcd

from e2e.base.connector import HitRule
from e2e.base.errors import SettingsError

#: Without aligned steps, default lengths lie about this far apart.
_SPACING = 512


@dataclass(frozen=True)
class Solution:
    """``aligned``, ``matched``: per length, does that form of the exact oracle hold. ``oracle``: "aligned" when every
    length is, else "split_matched". ``step``: S to start the engine with, None when steps are left alone.
    ``why``: one sentence each for what could not be had."""

    lengths: tuple[int, ...]
    aligned: tuple[bool, ...]
    matched: tuple[bool, ...]
    step: int | None
    why: tuple[str, ...] = ()

    @property
    def oracle(self) -> str:
        return "aligned" if all(self.aligned) else "split_matched"


def local_hit(tokens: int, block_size: int) -> int:
    """Tokens that vLLM's prefix cache serves of a prompt that it has just computed."""
    return max(tokens - 1, 0) // block_size * block_size


def solve(
    hit_rule: HitRule,
    step: int | None,
    block_size: int,
    wished: Sequence[int] = (),
    *,
    longest: int | None = None,
    number: int = 3,
) -> Solution:
    """Lengths for one engine key.

    ``wished`` lengths are used as given, each with the oracle that fits it. Otherwise ``number`` lengths are solved,
    each served more than one unit of the connector, with the suffix spread over a block. ``longest``: the most tokens
    that a prompt may have. Raises SettingsError when a wished length can't be a prompt or the solved ones don't fit.
    """
    why: list[str] = []
    lengths = tuple(_checked(wished, longest))
    if not lengths and step is not None:
        lengths = _aligned_lengths(hit_rule, step, block_size, number)
        if not lengths:
            why.append(
                f"no length ends one prefill step of {step} tokens and lets the connector serve all of it "
                f"(whole units of {hit_rule.granularity}, never the last {hit_rule.hold_back}, blocks of {block_size})"
            )
    if not lengths:
        lengths, found = _matched_lengths(hit_rule, block_size, number)
        if not found:
            why.append(
                f"at no length do vLLM and the connector serve equally many tokens (whole units of "
                f"{hit_rule.granularity}, never the last {hit_rule.hold_back}; blocks of {block_size})"
            )
    if longest is not None and max(lengths) > longest:
        raise SettingsError(
            f"the prompts need {max(lengths)} tokens, the model takes {longest} beside an answer; "
            "choose a smaller chunk_tokens, another model or --lengths."
        )
    aligned = tuple(step is not None and _is_aligned(hit_rule, n, step, block_size) for n in lengths)
    matched = tuple(_is_matched(hit_rule, n, block_size) for n in lengths)
    why += [
        f"a prompt of {n} tokens has no exact reference: vLLM serves {local_hit(n, block_size)} of them, "
        f"the connector {hit_rule.external(n)}"
        for n, ok in zip(lengths, matched, strict=True)
        if wished and not ok
    ]
    return Solution(lengths, aligned, matched, step, tuple(dict.fromkeys(why)))


def _checked(wished: Sequence[int], longest: int | None) -> Iterator[int]:
    for n in wished:
        if n < 2:
            raise SettingsError(f"--lengths: {n} is too short; a prompt that can be served has 2 tokens or more.")
        if longest is not None and n > longest:
            raise SettingsError(f"--lengths: {n} is too long; the model takes {longest} tokens beside an answer.")
        yield n


def _is_matched(rule: HitRule, n: int, block_size: int) -> bool:
    return 0 < rule.external(n) == local_hit(n, block_size)


def _is_aligned(rule: HitRule, n: int, step: int, block_size: int) -> bool:
    """Cold run and rerun compute the very same last step: both hits end where the last full step ended."""
    return _is_matched(rule, n, block_size) and rule.external(n) % step == 0 and 1 <= n - rule.external(n) <= step


def _aligned_lengths(rule: HitRule, step: int, block_size: int, number: int) -> tuple[int, ...]:
    first = rule.granularity // step + 1
    rests = [r for r in range(1, block_size + 1) if _is_aligned(rule, first * step + r, step, block_size)]
    if not rests:
        return ()
    return tuple((first + i) * step + r for i, r in enumerate(_spread(rests, number)))


def _matched_lengths(rule: HitRule, block_size: int, number: int) -> tuple[tuple[int, ...], bool]:
    """Spaced lengths where both caches serve the same; or, when none does, spaced lengths and False."""
    unit = rule.granularity * block_size // gcd(rule.granularity, block_size)
    spacing = -(-_SPACING // unit) * unit
    starts = [i * spacing for i in range(rule.granularity // spacing + 1, rule.granularity // spacing + 1 + number)]
    rests = [r for r in range(1, unit + rule.hold_back + 1) if _is_matched(rule, starts[0] + r, block_size)]
    if rests:
        return tuple(start + r for start, r in zip(starts, _spread(rests, number), strict=True)), True
    return tuple(start + rule.hold_back for start in starts), False


def _spread(values: Sequence[int], number: int) -> list[int]:
    """``number`` of the values from the first to the last, evenly; repeated when there are fewer."""
    last = len(values) - 1
    return list(islice((values[round(i * last / max(number - 1, 1))] for i in count()), number))
