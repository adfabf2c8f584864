"""Digests of KV as attention reads it, taken in the worker around any connector, or without one."""

from e2e.inside.probe.probe import Probe

__all__ = ["Probe"]
