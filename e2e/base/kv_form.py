"""How vLLM keeps K and V of a layer. Source: its sources, 0.14 to 0.33."""

from __future__ import annotations

#: Since when the backend of that name does it; any other one since the last of these.
_PACKED_SINCE = {"STRIDED_CPU": (0, 0), "CPU_ATTN": (0, 23)}
_ALL_SINCE = (0, 26)


def packed_kv(vllm: tuple[int, int] | None, backend: str = "") -> bool:
    """Are K and V registered in one head-first tensor (B,H,N,2D)? ``vllm`` None: one that nobody can ask, so a new one.
    ``backend``: as vLLM names it; "" for one of a GPU."""
    return vllm is None or vllm >= _PACKED_SINCE.get(backend, _ALL_SINCE)
