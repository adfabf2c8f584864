"""What was done to the bits of one page whose place is right: read as another type, scaled, bits flipped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from e2e.judge.kv import Array, Pattern

_WIDTH = {"float32": 4, "float16": 2, "bfloat16": 2}
#: Of the elements; the rest may have been clipped.
_NEARLY_ALL = 0.9
#: Bits that differ in a differing element, on average, when bits were flipped and not values replaced.
_FLIPPED = 1.5


def content(expected: Array, found: Array, dtype: str) -> Pattern | None:
    """``expected``, ``found``: uint8, the bytes of one page. None when nothing known turns one into the other."""
    if len(expected) != len(found) or not len(expected) or np.array_equal(expected, found):
        return None
    if not found.any():
        return Pattern("zeros", 1.0)
    if dtype in _WIDTH:
        for details, share in _readings(expected, found, dtype):
            if share >= _NEARLY_ALL:
                return Pattern("reinterpreted", share, details)
    width = _WIDTH.get(dtype, 1)
    bits = np.unpackbits(expected ^ found).reshape(-1, 8 * width).sum(1)
    touched = int((bits > 0).sum())
    if bits.sum() <= _FLIPPED * touched:
        return Pattern("bit_flips", 1.0, {"flips": int(bits.sum()), "elements": touched})
    return None


def _readings(expected: Array, found: Array, dtype: str) -> Iterator[tuple[dict[str, object], float]]:
    """(what was done, share of the elements that it explains) for each way to misread."""
    before, after = values(expected, dtype), values(found, dtype)
    changed = int((before != after).sum())
    if not changed:
        return
    for stored, read_as in (("bfloat16", "float16"), ("float16", "bfloat16")):
        if dtype == "float32" or dtype in (stored, read_as):
            misread = values(encode(before, stored), read_as)
            seen = values(encode(misread, dtype), dtype)
            same = np.isclose(seen, after, rtol=1e-6, atol=0) | ~np.isfinite(misread)
            yield {"stored": stored, "read_as": read_as}, float(same.mean())
    swapped = expected.reshape(-1, _WIDTH[dtype])[:, ::-1]
    yield {"byte_order": "swapped"}, float((swapped == found.reshape(swapped.shape)).all(1).mean())
    usable = np.isfinite(before) & np.isfinite(after) & (before != 0)
    if usable.sum() > 1:
        ratios = after[usable] / before[usable]
        scale = float(np.median(ratios))
        tolerance = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 2e-2}[dtype]
        if scale and np.isfinite(scale) and abs(scale - 1) > 2 * tolerance:
            yield {"scale": float(f"{scale:.6g}")}, float(np.isclose(ratios, scale, rtol=tolerance).mean())


def values(data: Array, dtype: str) -> Array:
    """float32 values of little-endian bytes."""
    if dtype == "bfloat16":
        return (data.view("<u2").astype("<u4") << 16).view("<f4")
    return data.view({"float32": "<f4", "float16": "<f2"}[dtype]).astype(np.float32)


def encode(data: Array, dtype: str) -> Array:
    """Little-endian bytes of float32 values, rounded to the nearest (even) as torch does."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bfloat16":
            bits = data.astype("<f4").view("<u4").astype(np.uint64)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            return rounded.astype("<u2").view("u1")
        return data.astype({"float32": "<f4", "float16": "<f2"}[dtype]).view("u1")
