"""A CPU attention backend that honours any KV layout, so that NHD and HND are both real without a GPU.

vLLM's own CPU_ATTN reads one layout only and packs pages by block, so it can't show a layout bug. This one writes and
reads single tokens through the strides of the ``(B, H, N, 2*D)`` view that vLLM hands to each layer, K in
``[..., :D]`` and V in ``[..., D:]``, in plain torch. Decoder self-attention only; written for vLLM 0.29 and newer,
where a layout is a matter of strides alone.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.attention.backends.triton_attn import TritonAttentionMetadata
from vllm.v1.kv_cache_interface import KVCacheLayout


class StridedCPUMetadata(TritonAttentionMetadata):
    """``spans``: per request (first query row, end query row, tokens in the sequence). ``block_table``: int [requests,
    blocks]. ``slot_mapping``: int64 [tokens], flat slot = block * block_size + offset.

    Connectors that tell views apart by the class of the metadata (Maru) find Triton's: its view is this one, and what
    they run is what they run on a GPU with TRITON_ATTN on vLLM 0.26 and newer.
    """

    def __init__(
        self,
        num_actual_tokens: int,
        spans: list[tuple[int, int, int]],
        block_table: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        self.num_actual_tokens, self.spans = num_actual_tokens, spans
        self.block_table, self.slot_mapping = block_table, slot_mapping


class StridedCPUBackend(AttentionBackend):
    #: what rig_info reports; get_name must stay a name that vLLM knows
    rig_name = "STRIDED_CPU"
    forward_includes_kv_cache_update: bool = False
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto"]

    @staticmethod
    def get_name() -> str:
        return "CPU_ATTN"

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None) -> list[int | MultipleOf]:
        return [MultipleOf(1)]

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        return tuple(KVCacheLayout)

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        return attn_type == AttentionType.DECODER

    @staticmethod
    def get_impl_cls() -> type[StridedCPUImpl]:
        return StridedCPUImpl

    @staticmethod
    def get_builder_cls() -> type[StridedCPUMetadataBuilder]:
        return StridedCPUMetadataBuilder


class StridedCPUMetadataBuilder(AttentionMetadataBuilder[StridedCPUMetadata]):
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> StridedCPUMetadata:
        meta = common_attn_metadata
        starts = meta.query_start_loc.tolist()
        lengths = meta.seq_lens.tolist()
        spans = [(starts[i], starts[i + 1], lengths[i]) for i in range(meta.num_reqs)]
        return StridedCPUMetadata(meta.num_actual_tokens, spans, meta.block_table_tensor, meta.slot_mapping)


class StridedCPUImpl(AttentionImpl):
    def __init__(
        self, num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
        logits_soft_cap=None, attn_type=AttentionType.DECODER, kv_sharing_target_layer_name=None, sinks=None,
    ) -> None:  # fmt: skip
        unsupported = {
            "alibi": alibi_slopes, "sliding window": sliding_window, "logits soft cap": logits_soft_cap or None,
            "sinks": sinks, "KV sharing": kv_sharing_target_layer_name,
            "quantized KV": None if kv_cache_dtype == "auto" else kv_cache_dtype,
        }  # fmt: skip
        wanted = [name for name, value in unsupported.items() if value is not None]
        if wanted or attn_type != AttentionType.DECODER:
            raise NotImplementedError(
                f"The rig's CPU attention backend has no {', '.join(wanted) or attn_type}; "
                "use a plain decoder model, or vLLM's stock backend (--attention stock)."
            )
        self.num_heads, self.head_size, self.num_kv_heads, self.scale = num_heads, head_size, num_kv_heads, float(scale)

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping) -> None:
        """key, value: [tokens, H, D]; kv_cache: (B, H, N, 2*D) of any strides; negative slots are padding."""
        block_size = kv_cache.shape[2]
        slots = slot_mapping[: key.shape[0]]
        if bool((slots < 0).any()):
            keep = slots >= 0
            slots, key, value = slots[keep], key[keep], value[keep]
        kv_cache[slots // block_size, :, slots % block_size] = torch.cat((key, value), dim=-1)

    def forward(
        self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None
    ) -> torch.Tensor:
        """query, output: [tokens, heads, D]. Each request is attended alone, whatever else is in the batch. Computed in
        float32: torch attends over 16-bit types no faster, and one query at a time three times slower."""
        if attn_metadata is None:  # warming up
            return output
        block_size, dim = kv_cache.shape[2], self.head_size
        out = output.view(output.shape[0], self.num_heads, dim)
        for row, (start, end, length) in enumerate(attn_metadata.spans):
            if end == start:
                continue
            blocks = attn_metadata.block_table[row, : -(-length // block_size)]
            pages = kv_cache[blocks].transpose(0, 1).reshape(self.num_kv_heads, -1, 2 * dim)[:, :length].float()
            queries = query[start:end].view(end - start, self.num_heads, dim).transpose(0, 1).float()
            causal = end - start == length
            mask = None
            if not causal and end - start > 1:
                mask = torch.ones(end - start, length, dtype=torch.bool).tril(length - (end - start))
            out[start:end] = F.scaled_dot_product_attention(
                queries.unsqueeze(0), pages[None, ..., :dim], pages[None, ..., dim:],
                attn_mask=mask, is_causal=causal and length > 1, scale=self.scale, enable_gqa=True,
            )[0].transpose(0, 1)  # fmt: skip
        return output
