"""What the changed part of a load takes of TTFT: the most that any change of it can save."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from e2e.base.event import Event
from e2e.base.gain import Launches, Share
from e2e.base.judgement import Judgement

#: Bytes of one number of a KV cache, by its dtype in torch's words.
_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "uint8": 1}


@dataclass(frozen=True)
class Shares:
    """``axis``: what is compared, None: two connectors. ``kernels_s``: (branch, length) -> GPU time of side a's
    placements; ``placing_s``: (cell, length) -> the host's, both seconds a request sent alone. ``local_s``: (cell,
    length) -> TTFT from vLLM's own cache. ``token_bytes``: KV of one token on one rank. ``copy_speed``: bytes a second;
    None where it was not measured."""

    axis: str | None
    kernels_s: Mapping[tuple[str, int], float]
    placing_s: Mapping[tuple[str, int], float]
    local_s: Mapping[tuple[str, int], float]
    token_bytes: int | None
    copy_speed: float | None

    @classmethod
    def of(
        cls, events: Sequence[Event], axis: str | None, cells: Judgement, launches: Iterable[Launches]
    ) -> Shares:  # fmt: skip
        kernels = {(e.branch, e.length): e.device_us / 1e6 for e in launches if e.side == "a" and e.device_us}
        sums: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for event in events:
            if event.kind == "gain.timings" and event["concurrency"] == 1 and event["place_s"] is not None:
                of = sums[str(event["cell"]), int(event["length"])]
                of[0], of[1] = of[0] + float(event["place_s"]), of[1] + int(event["loads"])
        local = {(cell.id, each.tokens): each.local_s for cell in cells.cells for each in cell.ttft.by_length}
        copies = [e["bytes"] / e["seconds"] for e in events if e.kind == "gain.copy" and e["seconds"] > 0]
        return cls(
            axis, kernels, {key: took / loads for key, (took, loads) in sums.items() if loads},
            {key: seconds for key, seconds in local.items() if seconds}, _token_bytes(events),
            statistics.median(copies) if copies else None,
        )  # fmt: skip

    def share(
        self, pair: Mapping, at_once: int, length: int | None, samples: Sequence[Mapping[str, object]]
    ) -> Share | None:
        """Of one length, or the mean over all of them. None where it isn't known, as of several requests at once: each
        part was measured of one that is alone."""
        a = [s for s in samples if s["side"] == "a" and s["concurrency"] == at_once == 1 and s["ttft_s"]]
        lengths = sorted({int(s["length"]) for s in a if length in (None, s["length"])})
        found = [self._of_length(pair, n, [s for s in a if s["length"] == n]) for n in lengths]
        if not found or None in found:
            return None
        derived = [each.at_copy_speed for each in found]
        return Share(
            found[0].what, statistics.fmean(each.seconds for each in found),
            statistics.fmean(each.share for each in found), None if None in derived else statistics.fmean(derived),
        )  # fmt: skip

    def _of_length(self, pair: Mapping, length: int, samples: Sequence[Mapping[str, object]]) -> Share | None:
        ttft_s = statistics.median(statistics.fmean(sample["ttft_s"]) for sample in samples)
        local_s = self._local_s(pair, length)
        if self.axis == "placement":
            kernels = self.kernels_s.get((pair["branch"], length))
            seconds = kernels or self.placing_s.get((pair["a"], length))
            what = "placement, by the profiler" if kernels else "placement, by the connector's own clock"
        else:
            seconds = ttft_s - local_s if local_s and local_s < ttft_s else None
            what = "the load, which is all beyond a rerun from vLLM's own cache"
        if not seconds or ttft_s <= 0:
            return None
        return Share(what, seconds, min(seconds / ttft_s, 1.0), self._at_copy_speed(seconds, local_s, samples[0]))

    def _local_s(self, pair: Mapping, length: int) -> float | None:
        """The quicker of both sides', one rerun each: with the slower one the most to be saved would be less than it
        is. None where neither is known."""
        known = {self.local_s.get((pair[side], length)) for side in ("a", "b")} - {None}
        return min(known, default=None)

    def _at_copy_speed(self, seconds: float, local_s: float | None, sample: Mapping[str, object]) -> float | None:
        if not (local_s and self.copy_speed and self.token_bytes and sample["external"]):
            return None
        copy_s = int(sample["external"]) * self.token_bytes / self.copy_speed
        part_s = seconds if self.axis == "placement" else copy_s
        return part_s / (local_s + copy_s + (part_s if self.axis == "placement" else 0.0))


def _token_bytes(events: Iterable[Event]) -> int | None:
    """As the worker told its KV cache; None where that is not known."""
    told = [event["effective"] for event in events if event.kind == "engine.config"]
    names = ("num_layers", "heads", "head_size", "dtype")
    for effective in told:
        *sizes, dtype = (effective.get(name) for name in names)
        if None not in sizes and min(sizes) > 0 and dtype in _SIZES:
            return 2 * math.prod(sizes) * _SIZES[dtype]
    return None
