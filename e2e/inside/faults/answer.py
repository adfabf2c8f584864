"""Faults that strike while a request is answered: its load was right, and its blocks do not stay what they were."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.inside.faults.base import Fault, Scene
from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import words


class _AtToken(Fault):
    at = 2

    def answered(self, layers: Sequence[PagedLayer], blocks: list[int], prompt: int, token: int, scene: Scene) -> None:
        if token == self.at:
            scene.fired()
            for layer in layers:
                self.strike(layer, blocks, prompt, scene)

    def strike(self, layer: PagedLayer, blocks: list[int], prompt: int, scene: Scene) -> None:
        layer.logical[blocks[0]] = layer.logical[blocks[0]].flip(0)


class SpoiltAtToken2(_AtToken):
    """At the 2nd output token the first block has keys for values: class B, a running request's block is written."""

    name = "spoilt_at_token_2"


class SpoiltAtToken3(_AtToken):
    """The same at the 3rd output token."""

    name, at = "spoilt_at_token_3", 3


class SpoiltAtToken8(_AtToken):
    """The same at the 8th output token: short answers never get there."""

    name, at = "spoilt_at_token_8", 8


class SpoiltAtToken12(_AtToken):
    """The same at the 12th output token."""

    name, at = "spoilt_at_token_12", 12


class EndSpoiltAtToken2(_AtToken):
    """At the 2nd output token the last whole block of the prompt has keys for values: class B, a load that goes on
    under an answer."""

    name = "end_spoilt_at_token_2"

    def strike(self, layer: PagedLayer, blocks: list[int], prompt: int, scene: Scene) -> None:
        last = blocks[max(prompt // scene.block_size - 1, 0)]
        layer.logical[last] = layer.logical[last].flip(0)


class AnswerLostAtToken3(_AtToken):
    """At the 3rd output token the KV of the first one is zeroed: class B, a block cleared that is in use."""

    name, at = "answer_lost_at_token_3", 3

    def strike(self, layer: PagedLayer, blocks: list[int], prompt: int, scene: Scene) -> None:
        block, row = divmod(prompt, scene.block_size)
        words(layer.logical)[blocks[block], :, row] = 0
