"""vLLM plugin (entry point group ``vllm.general_plugins``): runs in every vLLM process, acts only when asked to.

``MARU_E2E_ATTENTION=strided`` replaces CPU_ATTN by our stride-driven backend. Overriding is the only way on a CPU:
``--attention-backend CUSTOM`` falls back to CPU_ATTN without an error, so the rig also checks the class in the worker.
"""

from __future__ import annotations

import os


def register() -> None:
    wanted = os.environ.get("MARU_E2E_ATTENTION", "")
    if not wanted:
        return
    if wanted != "strided":
        raise ValueError(f"MARU_E2E_ATTENTION is {wanted!r}; use 'strided' or leave it unset.")
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CPU_ATTN, "e2e.inside.cpu_attention.StridedCPUBackend")
