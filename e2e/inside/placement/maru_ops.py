"""Maru's own extension ``maru_kv_ops``: LMCache's kernels, vendored, built with nvcc against the installed torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import Unavailable
from e2e.inside.placement.flat_walk import physical_view
from e2e.inside.placement.lmcache_kernel import Library, Transfer


class MaruKvOps(Transfer):
    name = "maru_kv_ops"

    def __init__(self, *, launch: str = "auto", view: Callable[[PagedLayer], torch.Tensor] = physical_view) -> None:
        super().__init__(_load(), launch=launch, view=view)


def _load() -> Library:
    try:
        ops = importlib.import_module("maru_kv_ops")
        formats = getattr(ops, "EngineKVFormat", None) or ops.GPUKVFormat
        return Library(ops, formats, ops.TransferDirection, block_stride=False)
    except ModuleNotFoundError as error:
        raise Unavailable(
            "placement maru_kv_ops needs Maru's extension maru_kv_ops, which isn't built here."
        ) from error
    except (ImportError, OSError, AttributeError) as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise Unavailable(f"maru_kv_ops can't be loaded with torch {torch.__version__}: {line}.") from error
