"""What was done to KV, by looking up where wrong bytes belong: pages first, then token rows, then one page's bits.

Words: a page is the K or V of one head in one block of one layer; a row is one token's share of it. A wrong page whose
digest is another page's of the same prompt was moved; one that is another prompt's is stale; one that still holds what
all blocks were overwritten with was never written. Patterns are named in ``PATTERNS``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from e2e.judge.contents import content
from e2e.judge.kv import Array, Pattern, Sample

PATTERNS = (
    "axes_swapped", "shifted_by_n_slots", "neighbour_layer", "kv_swapped", "stale", "zeros", "not_written",
    "truncated_tail", "heads_permuted", "bit_flips", "reinterpreted", "unknown",
)  # fmt: skip
#: A pattern must explain this share of what is wrong.
_MOST = 0.5
#: So many moved rows, and this share of the wrong ones, make "never written" a matter of addresses.
_FEW_ROWS, _FEW_SHARE = 4, 0.02


UNKNOWN = Pattern("unknown")


def classify(
    expected: Array, found: Array, *, block_size: int, zero: int | None = None, blank: Array | None = None,
    others: Mapping[int, Array] | None = None, sample: Sample | None = None,
) -> Pattern:  # fmt: skip
    """``expected``, ``found``: uint64 [L, 2, H, B] that differ somewhere. ``others``: prompt -> its digests."""
    wrong = expected != found
    best = _by_pages(expected, found, wrong, block_size, zero, blank, others or {})
    if best.name in ("unknown", "not_written", "zeros") and sample is not None:
        rows = by_rows(sample)
        if rows.name not in ("unknown", best.name) and (best is UNKNOWN or rows.details.get("moved")):
            best = rows
        if best is UNKNOWN:
            best = content(sample.expected, sample.found, sample.dtype) or UNKNOWN
    if best.name in ("unknown", "not_written", "zeros"):
        best = _tail(wrong, block_size, best, sample) or best
    return best


def _by_pages(
    expected: Array, found: Array, wrong: Array, block_size: int, zero: int | None, blank: Array | None,
    others: Mapping[int, Array],
) -> Pattern:  # fmt: skip
    total = int(wrong.sum())
    candidates = []
    if zero is not None:
        candidates.append(Pattern("zeros", _share(wrong & (found == np.uint64(zero)), total)))
    if blank is not None:
        candidates.append(Pattern("not_written", _share(wrong & (found == blank[..., None]), total)))
    candidates += _moved(expected, found, wrong, block_size)
    for prompt, known in others.items():
        share = _share(wrong & np.isin(found, known), total)
        candidates.append(Pattern("stale", share, {"of_prompt": prompt}))
    best = max(candidates, key=lambda pattern: pattern.share, default=UNKNOWN)
    return best if best.share >= _MOST else UNKNOWN


def _share(mask: Array, total: int) -> float:
    return float(mask.sum()) / total if total else 0.0


def _origins(known: Array, wanted: Array) -> tuple[Array, Array]:
    """For each of ``wanted`` (flat): is it exactly one of ``known``, and its flat index there."""
    values, index, counts = np.unique(known.ravel(), return_index=True, return_counts=True)
    if not len(values):
        return np.zeros(len(wanted), bool), np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return (values[at] == wanted) & (counts[at] == 1), index[at]


def _moved(expected: Array, found: Array, wrong: Array, block_size: int) -> list[Pattern]:
    """Pages of the same prompt that lie in another layer, in V for K, at another head or block."""
    total = int(wrong.sum())
    here = np.argwhere(wrong)
    known, index = _origins(expected, found[wrong])
    if not known.any():
        return []
    here, there = here[known], np.stack(np.unravel_index(index[known], expected.shape), 1)
    delta = there - here
    same = delta == 0
    patterns = []
    layers = delta[same[:, 1] & same[:, 2] & same[:, 3], 0] % expected.shape[0]
    if len(layers):
        step, count = Counter(layers.tolist()).most_common(1)[0]
        step = step - expected.shape[0] if step > expected.shape[0] // 2 else step
        patterns.append(Pattern("neighbour_layer", count / total, {"delta": step}))
    patterns.append(Pattern("kv_swapped", (same[:, 0] & ~same[:, 1] & same[:, 2] & same[:, 3]).sum() / total))
    heads = same[:, 0] & same[:, 1] & ~same[:, 2] & same[:, 3]
    patterns.append(_heads(here[heads, 2], there[heads, 2], total))
    blocks = delta[same[:, 0] & same[:, 1] & same[:, 2], 3]
    if len(blocks):
        step, count = Counter(blocks.tolist()).most_common(1)[0]
        patterns.append(Pattern("shifted_by_n_slots", len(blocks) / total, {"slots": -step * block_size}))
    return patterns


def _heads(here: Array, there: Array, total: int) -> Pattern:
    """``heads``: which head's bytes each one got, as ``0<1 1<2``."""
    pairs = Counter(zip(here.tolist(), there.tolist(), strict=True))
    text = " ".join(f"{mine}<{other}" for mine, other in sorted(pairs))
    return Pattern("heads_permuted", len(here) / total if total else 0.0, {"heads": text})


def by_rows(sample: Sample) -> Pattern:
    """Where the rows of one wrong layer belong. ``details["moved"]``: rows that were found in another place."""
    tokens = min(sample.rows_expected.shape[2], sample.rows_found.shape[2])
    expected, found = sample.rows_expected, sample.rows_found[:, :, :tokens]
    wrong = expected[:, :, :tokens] != found
    total = int(wrong.sum())
    if not total:
        return UNKNOWN
    zeros = wrong & (found == np.uint64(sample.zero_row))
    unwritten = np.zeros_like(wrong)
    if sample.rows_blank is not None:
        unwritten = wrong & (found == sample.rows_blank[:, :, np.arange(tokens) % sample.block_size])
    here = np.argwhere(wrong & ~zeros)
    known, index = _origins(expected, found[wrong & ~zeros])
    here, there = here[known], np.stack(np.unravel_index(index[known], expected.shape), 1)
    left = int((zeros | unwritten).sum())  # where what was moved is missing
    if len(here) >= max(min(_FEW_ROWS, total), _FEW_SHARE * total, _MOST * total - left):
        return _moved_rows(here, there, total)
    blank = int((wrong & (expected[:, :, :tokens] == np.uint64(sample.zero_row))).sum())  # zeros lie everywhere
    if len(sample.strays) - blank >= max(_FEW_ROWS, _FEW_SHARE * total, _MOST * total - left):
        return _moved_rows(sample.strays[:, :3], sample.strays[:, 3:], total)
    for name, mask in (("not_written", unwritten), ("zeros", zeros)):
        if mask.sum() >= _MOST * total:
            return Pattern(name, float(mask.sum()) / total)
    return UNKNOWN


def _moved_rows(here: Array, there: Array, total: int) -> Pattern:
    """``here``, ``there``: [n, 3] of (kv, head, token): the row that lies at one belongs to the other."""
    delta = there - here
    kv, head, token = (delta != 0).T
    count = len(delta)
    details = {"moved": count}
    shifts = Counter(delta[~kv & ~head & token, 2].tolist()).most_common(1)
    if shifts and shifts[0][1] >= _MOST * count:
        return Pattern("shifted_by_n_slots", count / total, {**details, "slots": -shifts[0][0]})
    if (kv & ~head & ~token).sum() >= _MOST * count:
        return Pattern("kv_swapped", count / total, details)
    permuted = ~kv & head & ~token
    if permuted.sum() >= _MOST * count:
        pattern = _heads(here[permuted, 1], there[permuted, 1], total)
        return Pattern(pattern.name, count / total, {**details, **pattern.details})
    if (head & token).sum() * 4 >= count:
        return Pattern("axes_swapped", count / total, details)
    return UNKNOWN


def _tail(wrong: Array, block_size: int, best: Pattern, sample: Sample | None) -> Pattern | None:
    """Is everything wrong from one token on, in every layer and head, and right before?"""
    blocks = wrong.all((0, 1, 2))
    first = int(np.argmax(blocks)) if blocks.any() else 0
    if not first or not blocks[first:].all() or wrong[..., :first].any():
        return None
    token = first * block_size
    if sample is not None:
        tokens = sample.rows_found.shape[2]
        bad = (sample.rows_expected[:, :, :tokens] != sample.rows_found).any((0, 1))
        token = sample.first_token + int(np.argmax(bad)) if bad.any() else token
    return Pattern("truncated_tail", 1.0, {"from_token": token, "holds": best.name})
