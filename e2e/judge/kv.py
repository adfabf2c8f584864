"""Digests of a recording as arrays; values are uint64 [L, 2, H, B]: layer, K or V, head, block of the request."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Pattern:
    """What was done to wrong KV. ``share``: of the wrong pages (or rows, or elements) that it explains. ``details``:
    JSON values."""

    name: str
    share: float = 0.0
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One wrong layer. ``rows_*``: uint64 [2, H, T], one value per token row, of the tokens from ``first_token`` on.
    ``rows_blank``: [2, H, N], what an unwritten page holds. ``expected``, ``found``: bytes of page (kv, head, block).
    ``strays``: int64 [n, 6], rows that were expected as (kv, head, slot) and lie at another (kv, head, slot)."""

    layer: int
    kv: int
    head: int
    block: int
    first_token: int
    block_size: int
    rows_expected: Array
    rows_found: Array
    rows_blank: Array | None
    zero_row: int
    expected: Array
    found: Array
    dtype: str
    strays: Array

    @classmethod
    def of(cls, data: Mapping[str, object]) -> Sample:
        heads, size = int(data["heads"]), int(data["block_size"])
        shape = (2, heads, -1)
        blank, strays = data.get("rows_blank"), data.get("strays")
        return cls(
            layer=int(data["layer"]),
            kv=int(data["kv"]),
            head=int(data["head"]),
            block=int(data["block"]),
            first_token=int(data["first_token"]),
            block_size=size,
            rows_expected=unpack(data["rows_expected"], "<u8").reshape(shape),
            rows_found=unpack(data["rows_found"], "<u8").reshape(shape),
            rows_blank=None if blank is None else unpack(blank, "<u8").reshape(shape),
            zero_row=int(str(data["zero_row"]), 16),
            expected=unpack(data["expected"], "u1"),
            found=unpack(data["found"], "u1"),
            dtype=str(data["dtype"]),
            strays=np.empty((0, 6), "<i8") if strays is None else unpack(strays, "<i8").reshape(-1, 6),
        )


@dataclass(frozen=True)
class Digest:
    """One request's digests on one rank. ``nth``: which read of the request, of ``of_reads``. ``failed``: the connector
    itself said that this load failed. ``tokens``: how many were there; ``zero``: value of a page of zeros; ``blank``:
    [L, 2, H], what every block was overwritten with before, or None. ``tail``: [L, 2, H, 1], of the tokens behind the
    whole blocks up to ``tail_end``; None where there are none. ``step``: of its engine, by the rank; ``batch``:
    requests of which that step computed some; None in old recordings."""

    request: str
    prompt: int
    when: str
    rank: int
    tokens: int
    block_size: int
    values: Array
    zero: int
    blank: Array | None
    missing_layers: tuple[int, ...]
    sample: Sample | None
    nth: int = 1
    of_reads: int = 1
    failed: bool = False
    tail: Array | None = None
    step: int | None = None
    batch: int | None = None

    @classmethod
    def of(cls, data: Mapping[str, object]) -> Digest:
        """ValueError or KeyError for values that make no sense."""
        layers, heads, blocks = (int(data[key]) for key in ("layers", "heads", "blocks"))
        blank, sample, tail = data.get("blank"), data.get("sample"), data.get("tail")
        return cls(
            request=str(data["request"]),
            prompt=int(data["prompt"]),
            when=str(data["when"]),
            rank=int(data.get("rank") or 0),
            tokens=int(data["tokens"]),
            block_size=int(data["block_size"]),
            values=unpack(data["values"], "<u8").reshape(layers, 2, heads, blocks),
            zero=int(str(data["zero"]), 16),
            blank=None if blank is None else unpack(blank, "<u8").reshape(layers, 2, heads),
            missing_layers=tuple(int(layer) for layer in data.get("missing_layers") or ()),
            sample=None if sample is None else Sample.of(sample),
            nth=int(data.get("nth") or 1),
            of_reads=int(data.get("reads") or 1),
            failed=bool(data.get("failed")),
            tail=None if tail is None else unpack(tail, "<u8").reshape(layers, 2, heads, 1),
            step=None if (step := data.get("step")) is None else int(step),
            batch=None if (batch := data.get("batch")) is None else int(batch),
        )

    @property
    def tail_end(self) -> int:
        """Tokens up to the end of ``tail``: all that were read, or all but the last that was computed."""
        return self.tokens if self.when == "read" else self.tokens - 1


def unpack(text: object, dtype: str) -> Array:
    """The inverse of ``inside/probe/wire.packed``. ValueError when it is no such text."""
    try:
        return np.frombuffer(zlib.decompress(base64.b64decode(str(text), validate=True)), dtype)
    except zlib.error as error:
        raise ValueError(f"digest values can't be unpacked: {error}") from None
