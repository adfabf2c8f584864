"""Digests for synthetic recordings: a value for each page that depends on prompt, layer, K/V, head and block."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable

import numpy as np
from synthetic_recording import BASELINE, BLOCK, CELL, CONNECTOR, Recording

LAYERS, HEADS = 4, 3
Edit = Callable[[np.ndarray], object]


def packed(values: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(values.tobytes())).decode()


def pages(prompt: int, blocks: int) -> np.ndarray:
    grid = np.indices((LAYERS, 2, HEADS, blocks), dtype=np.uint64)
    value = np.full(grid.shape[1:], prompt + 1, dtype=np.uint64)
    for axis in grid:
        value = value * np.uint64(0x9E3779B97F4A7C15) + (axis + np.uint64(1)) * np.uint64(0xD1B54A32D192ED03)
    return value


def add_digests(
    recording: Recording, *, edit: dict[tuple[str, int], Edit] | None = None, sent: bool = True
) -> Recording:
    """Digests of the baseline's and the connector's cold arms and of the external arms. ``edit``: (arm, prompt) ->
    changes the values in place; arm "baseline" is the baseline's cold one."""
    for name, engine, cell, arm in (
        ("baseline", BASELINE, None, "cold"),
        *((arm, CONNECTOR, CELL, arm) for arm in ("cold", "external", "external_again")),
    ):
        for expect in recording.find("expect.hit", engine=engine, cell=cell, arm=arm):
            prompt, cold = expect["prompt"], arm == "cold"
            tokens = expect["tokens"] if cold else expect["external"]
            values = pages(prompt, tokens // BLOCK)
            if (name, prompt) in (edit or {}):
                edit[name, prompt](values)
            (request,) = recording.find("request.sent", engine=engine, cell=cell, arm=arm, prompt=prompt)
            recording.add(
                "digest.taken", engine=engine, cell=cell, arm=arm, prompt=prompt,
                request=request["request"] if sent else "another", when="computed" if cold else "read", rank=0,
                blocks=tokens // BLOCK, tokens=tokens, block_size=BLOCK, layers=LAYERS, heads=HEADS, missing_layers=[],
                values=packed(values), zero=f"{7:016x}", blank=None,
            )  # fmt: skip
    return recording
