"""A little paged KV in numpy: random tensors, their digests, and what the worker would have sampled of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from e2e.judge.kv import Sample


@dataclass
class Model:
    """``kv``: uint8 bytes [L, 2, H, T, row bytes]; tokens are a multiple of ``block_size``."""

    kv: np.ndarray
    block_size: int
    dtype: str

    @classmethod
    def random(
        cls, seed: int, *, layers: int, heads: int, blocks: int, block_size: int, size: int, dtype: str
    ) -> Model:
        generator = np.random.default_rng(seed)
        values = generator.standard_normal((layers, 2, heads, blocks * block_size, size)).astype("<f4")
        if dtype == "float32":
            data = values.view("u1")
        elif dtype == "float16":
            data = values.astype("<f2").view("u1")
        else:
            data = (values.view("<u4") >> 16).astype("<u2").view("u1")
        return cls(data.copy(), block_size, dtype)

    def like(self, kv: np.ndarray) -> Model:
        return Model(np.ascontiguousarray(kv), self.block_size, self.dtype)

    def rows(self) -> np.ndarray:
        return _digests(self.kv, 4)

    def pages(self) -> np.ndarray:
        layers, two, heads, tokens, width = self.kv.shape
        return _digests(self.kv.reshape(layers, two, heads, tokens // self.block_size, self.block_size, width), 4)


def _digests(data: np.ndarray, keep: int) -> np.ndarray:
    rows = np.ascontiguousarray(data).reshape(int(np.prod(data.shape[:keep])), -1)
    values = [int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little") for row in rows]
    return np.array(values, np.uint64).reshape(data.shape[:keep])


def zero(model: Model, *, page: bool) -> int:
    width = model.kv.shape[4] * (model.block_size if page else 1)
    return int(_digests(np.zeros((1, width), "u1"), 1)[0])


def sample(expected: Model, found: Model, blank: Model | None = None, strays: np.ndarray | None = None) -> Sample:
    """As the worker does: the first wrong layer, in it the first block, then K or V, then head."""
    wrong = expected.pages() != found.pages()
    layer = int(np.argmax(wrong.any((1, 2, 3))))
    block = int(np.argmax(wrong[layer].any((0, 1))))
    kv, head = (int(i) for i in np.argwhere(wrong[layer, :, :, block])[0])
    at = slice(block * expected.block_size, (block + 1) * expected.block_size)
    return Sample(
        layer=layer, kv=kv, head=head, block=block, first_token=0, block_size=expected.block_size,
        rows_expected=expected.rows()[layer], rows_found=found.rows()[layer],
        rows_blank=None if blank is None else blank.rows()[layer][:, :, : expected.block_size],
        zero_row=zero(expected, page=False), expected=expected.kv[layer, kv, head, at].ravel(),
        found=found.kv[layer, kv, head, at].ravel(), dtype=expected.dtype,
        strays=np.empty((0, 6), "<i8") if strays is None else strays,
    )  # fmt: skip
