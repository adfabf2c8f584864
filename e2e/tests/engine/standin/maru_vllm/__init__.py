"""Stands in for Maru where it is not installed: Maru's class name, keys, log lines and counters around the embedded
connector, whose bytes are real. It proves the rig's half of the adapter, and nothing about Maru."""

from maru_vllm.connector import MaruKVConnector

__all__ = ["MaruKVConnector"]
