"""Faults that need a load that fails: it is not told, or not all of it."""

from __future__ import annotations

from e2e.inside.faults.base import Fault, Scene


class FailureKeptQuiet(Fault):
    """What can't be read is not written, and the load is reported good: class C, HTTP 200 with what lay there."""

    name = "failure_kept_quiet"

    def unreadable(self, whole: bool, scene: Scene) -> bool:
        if not whole:
            scene.fired()
        return not whole


class ChecksumIgnored(Fault):
    """Bytes that are not those that were stored are loaded as they are: class C, a torn or replaced object."""

    name = "checksum_ignored"

    def unreadable(self, whole: bool, scene: Scene) -> bool:
        if whole:
            scene.fired()
        return whole


class LastBlockReported(Fault):
    """Of a load that failed vLLM is told the last block alone, and computes nothing before it: class C."""

    name = "last_block_reported"

    def invalid(self, blocks: list[int], scene: Scene) -> list[int]:
        if len(blocks) > 1:
            scene.fired()
        return blocks[-1:]
