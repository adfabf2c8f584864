"""The libraries of kernels, loaded as far as the kernels need. Each raises Unavailable, one sentence, if it can't."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch

from e2e.inside.placement import Unavailable
from e2e.lab.kernels import first_line
from e2e.lab.kernels.transfer import Library


def lmcache() -> Library:
    if not importlib.util.find_spec("lmcache"):
        raise Unavailable("placement lmcache needs the package lmcache, which isn't installed here.")
    with _loading("the kernels of the installed lmcache"):
        if _extension("lmcache_native"):
            enums, ops = _import("lmcache_native"), _import("cuda_ops")
            return Library("lmcache", ops, enums.EngineKVFormat, enums.TransferDirection, block_stride=True)
        ops = _import("c_ops")
        return Library("lmcache", ops, ops.GPUKVFormat, ops.TransferDirection, block_stride=False)


def maru_kv_ops() -> Library:
    """Maru's own extension: LMCache's kernels, vendored, built with nvcc against the installed torch."""
    if not importlib.util.find_spec("maru_kv_ops"):
        raise Unavailable("placement maru_kv_ops needs Maru's extension of that name, which isn't built here.")
    with _loading("Maru's extension maru_kv_ops"):
        ops = importlib.import_module("maru_kv_ops")
        formats = getattr(ops, "EngineKVFormat", None) or ops.GPUKVFormat
        return Library("maru_kv_ops", ops, formats, ops.TransferDirection, block_stride=False)


@contextmanager
def _loading(what: str) -> Iterator[None]:
    try:
        yield
    except (ImportError, OSError, AttributeError) as error:
        why = first_line(error).rstrip(".")
        raise Unavailable(f"{what} can't be loaded with torch {torch.__version__}: {why}.") from error


def _extension(name: str) -> Path | None:
    """The compiled module's file, found without importing the package."""
    package = importlib.util.find_spec("lmcache")
    for folder in package.submodule_search_locations or ():
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = Path(folder) / f"{name}{suffix}"
            if path.exists():
                return path
    return None


def _import(name: str) -> ModuleType:
    """The package imports much that the kernels don't need; where that fails, the extension is loaded alone."""
    try:
        module = importlib.import_module(f"lmcache.{name}")
        if getattr(module, "__file__", "").endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
            return module
    except ImportError:
        pass
    path = _extension(name)
    if path is None:
        raise ImportError(f"lmcache has no compiled {name}")
    spec = importlib.util.spec_from_file_location(f"lmcache.{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # one extension of the package may import another by name
    sys.modules[spec.name] = module
    return module
