"""Faults of identity: whole, intact objects of the wrong tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from e2e.inside.faults.base import Fault, Scene


class OneChunkOff(Fault):
    """Chunk i gets what belongs to chunk i - 1, the first one the last one's: class A, offset counted in chunks."""

    name = "one_chunk_off"

    def keys(self, keys: list[str], others: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        if len(keys) < 2:
            return keys
        scene.fired()
        return [keys[-1], *keys[:-1]]


class StaleObject(Fault):
    """The first chunk is another prompt's, the last one stored: class B, a preempted request's store lands under the
    key of the next and stays for ever; class D, a short hash collides."""

    name = "stale_object"

    def keys(self, keys: list[str], others: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        other = next((table[0] for table in reversed(others) if 0 in table), None)
        if other is None or not keys:
            return keys
        scene.fired()
        return [other, *keys[1:]]


class EqualLengthPrompt(Fault):
    """Keys made of length instead of tokens: every chunk is that of the last prompt that had as many tokens up to
    there: class D, KV of another request served."""

    name = "equal_length_prompt"

    def keys(self, keys: list[str], others: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        found = [next((t[i] for t in reversed(others) if i in t), key) for i, key in enumerate(keys)]
        if found != keys:
            scene.fired()
        return found
