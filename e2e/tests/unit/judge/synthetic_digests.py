"""Digests for synthetic recordings: a value for each page that depends on prompt, layer, K/V, head and block."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable

import numpy as np
from synthetic_recording import BLOCK, Recording

from e2e.base.program import Computed, Loaded, Program

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


def of_text(program: Program, text: int, blocks: int) -> np.ndarray:
    """As ``pages``; the prefix that it shares has the same ones."""
    values, recipe = pages(text, blocks), program.texts[text]
    if recipe.like is not None:
        shared = recipe.shared // BLOCK
        values[..., :shared] = of_text(program, recipe.like, blocks)[..., :shared]
    return values


def add_digests(
    recording: Recording, *, edit: dict[tuple[str, int], Edit] | None = None, sent: bool = True
) -> Recording:
    """Digests of all Sends that claims speak of. ``edit``: (name of the Send, or of its site when that is plain,
    prompt) -> changes the values in place."""
    program = recording.program
    roles = {data["engine"]: data["role"] for data in recording.find("engine.start")}
    claims = [(send, claim) for send in program.sends for claim in send.claims if isinstance(claim, (Computed, Loaded))]
    computed = {(where, text) for send, claim in claims for where in (send.where, claim.step) for text in send.texts}
    computed |= {(claim.step, program.texts[text].like) for send, claim in claims for text in send.texts}
    for send in program.sends:
        loaded = send.claim(Loaded) is not None
        name = send.name if program.site(send.site).connector else send.site
        for request in recording.find("request.sent", arm=send.name):
            if roles[request["engine"]] != send.site or (send.where, request["prompt"]) not in computed:
                continue
            place = {key: request[key] for key in ("engine", "cell", "arm", "prompt")}
            (expect,) = recording.find("expect.hit", **place)
            tokens = expect["external"] + expect["local"] if loaded else expect["tokens"]
            if not tokens:
                continue  # nothing was served, so nothing is read
            values = of_text(program, request["prompt"], tokens // BLOCK)
            if (name, request["prompt"]) in (edit or {}):
                edit[name, request["prompt"]](values)
            recording.add(
                "digest.taken", **place, request=request["request"] if sent else "another",
                when="read" if loaded else "computed", rank=0, blocks=tokens // BLOCK, tokens=tokens, block_size=BLOCK,
                layers=LAYERS, heads=HEADS, missing_layers=[], values=packed(values), zero=f"{7:016x}", blank=None,
            )  # fmt: skip
    return recording
