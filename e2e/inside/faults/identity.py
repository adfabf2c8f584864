"""Faults of identity: whole, intact objects of the wrong tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from e2e.inside.faults.base import Fault, Scene


class OneChunkOff(Fault):
    """Chunk i gets what belongs to chunk i - 1, the first one the last one's: class A, offset counted in chunks."""

    name = "one_chunk_off"

    def keys(self, keys: list[str], stored: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        if len(keys) < 2:
            return keys
        scene.fired()
        return [keys[-1], *keys[:-1]]


class StaleObject(Fault):
    """The first chunk is another prompt's, the last one stored: class B, a preempted request's store lands under the
    key of the next and stays for ever; class D, a short hash collides."""

    name = "stale_object"

    def keys(self, keys: list[str], stored: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        other = next((table[0] for table in reversed(_others(keys, stored)) if 0 in table), None)
        if other is None or not keys:
            return keys
        scene.fired()
        return [other, *keys[1:]]


class EqualLengthPrompt(Fault):
    """Keys made of length instead of tokens: every chunk is that of the last prompt that had as many tokens up to
    there: class D, KV of another request served."""

    name = "equal_length_prompt"

    def keys(self, keys: list[str], stored: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        others = _others(keys, stored)
        found = [next((t[i] for t in reversed(others) if i in t), key) for i, key in enumerate(keys)]
        if found != keys:
            scene.fired()
        return found


class LongerPromptTail(Fault):
    """A prompt is found by its first chunk alone, and gets the end of the longest one that has it: class D, the tail of
    a longer prompt served to a shorter one."""

    name = "longer_prompt_tail"

    def keys(self, keys: list[str], stored: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        longest = max((table for table in stored if table.get(0) == keys[0]), key=len, default={})
        tail = [longest[chunk] for chunk in sorted(longest)][-len(keys) :]
        if len(tail) < len(keys) or tail == keys:
            return keys
        scene.fired()
        return tail


class Unchained(Fault):
    """A chunk's key is a hash of its own tokens only: class D, the KV of the same words behind another beginning."""

    name = "unchained"

    def __init__(self) -> None:
        self._first: dict[bytes, str] = {}

    def named(self, key: str, own: bytes) -> str:
        return self._first.setdefault(own, key)


class _NotInKey(Fault):
    """Fires with every key, which another identity has, too."""

    without: tuple[str, ...] = ()

    def named_by(self, parts: dict[str, object], fired: Callable[[], None]) -> dict[str, object]:
        fired()
        return {name: value for name, value in parts.items() if name not in self.without}


class SaltNotInKey(_NotInKey):
    """Keys know no salt: class D, one tenant is served what another stored."""

    name = "salt_not_in_key"
    without = ("salt",)


class LoraNotInKey(_NotInKey):
    """Keys know no adapter: class D, KV of the model itself is served to whoever asks its adapter."""

    name = "lora_not_in_key"
    without = ("lora",)


class WeightsNotInKey(_NotInKey):
    """Keys know a model's shape and not which one it is: class D, KV of other weights is served."""

    name = "weights_not_in_key"
    without = ("model", "revision", "commit", "weights")


class DtypeNotInKey(_NotInKey):
    """Keys know no dtype: class D, bytes of one are read as another of its size."""

    name = "dtype_not_in_key"
    without = ("dtype", "kv_dtype")


def _others(keys: list[str], stored: Sequence[Mapping[int, str]]) -> list[Mapping[int, str]]:
    """Prompts that begin otherwise."""
    return [table for table in stored if table.get(0) != keys[0]]
