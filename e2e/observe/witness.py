"""Readers for connectors that can't be asked in the worker, by the name that the adapter gives (``Witness``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from e2e.base.connector import Witness
from e2e.observe.evidence import Rpc
from e2e.observe.maru import MaruWitness

_READERS: Mapping[str, Callable[..., Rpc]] = {"maru": MaruWitness}


def reader(witness: Witness, *, log_path: Path | None, effective: Mapping[str, object]) -> Rpc:
    """What ``EvidenceWindow`` asks instead of the worker extension. ``effective``: as in event ``engine.config``."""
    return _READERS[witness.name](log_path=log_path, effective=effective, **witness.about)
