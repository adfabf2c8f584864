"""What one layer's registered KV tensor means: axes, strides, physical order. Nothing is ever copied here.

Letters: B blocks, N tokens per block, H KV heads, D head size, L layers, C = 2*D (K|V packed). Sizes and strides are in
elements. Rules from the vLLM sources, 0.14 to 0.33: shapes by version and backend, physical order by strides only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import torch

from e2e.base.kv_form import packed_kv

#: Backends whose K/V axis was first up to vLLM 0.22; all split backends have blocks first from 0.23 on.
_KV_FIRST_UP_TO_0_22 = ("FLASH_ATTN", "FLEX_ATTENTION")
#: ``STRIDED_CPU`` is our own attention backend for CPUs: packed, token-granular, follows strides.
_BACKENDS = (*_KV_FIRST_UP_TO_0_22, "FLASHINFER", "TRITON_ATTN", "CPU_ATTN", "STRIDED_CPU")


@dataclass(frozen=True, eq=False)
class PagedLayer:
    """One layer of a paged KV cache, as a set of views on the tensor that vLLM registered.

    ``registered``: the tensor itself. ``form``: "packed" (B,H,N,2D), "blocks_first" (B,2,N,H,D) or "kv_first"
    (2,B,N,H,D). ``axes``: the registered tensor with K/V split, its own axis order, 5-D. ``logical``: the same bytes as
    (B,2,N,H,D), whatever the form. ``token_granular``: False where the backend packs pages in its own way (stock
    CPU_ATTN), so that only whole pages may be moved and [:, 0] isn't K.
    """

    registered: torch.Tensor
    form: str
    axes: torch.Tensor
    logical: torch.Tensor
    token_granular: bool = True

    @classmethod
    def resolve(
        cls,
        tensor: torch.Tensor,
        *,
        num_kv_heads: int,
        head_size: int,
        block_size: int,
        vllm_version: str,
        backend: str,
    ) -> PagedLayer:
        """Raises ValueError, one sentence, for every tensor that isn't known to be one of the three forms."""
        version, backend = _minor(vllm_version), backend.upper()
        if backend not in _BACKENDS:
            raise ValueError(
                f"KV geometry of attention backend {backend} is unknown; known are {', '.join(_BACKENDS)}."
            )
        if tensor.dim() == 3 or (tensor.dim() == 4 and tensor.shape[1] == 1 and tensor.shape[3] != 2 * head_size):
            raise ValueError(
                f"a KV tensor of shape {tuple(tensor.shape)} is MLA's, which has no K and V to place apart."
            )
        packed = packed_kv(version, backend)
        rank = 4 if packed else 5
        if tensor.dim() != rank:
            raise ValueError(
                f"vLLM {vllm_version} with {backend} registers KV tensors of rank {rank}, "
                f"not of shape {tuple(tensor.shape)}."
            )
        token_granular = backend != "CPU_ATTN"
        if packed:
            layer = cls.packed(tensor, token_granular=token_granular)
        elif backend == "CPU_ATTN":
            layer = cls(tensor, "kv_first", tensor, tensor.permute(1, 0, 3, 2, 4), token_granular)
        elif backend in _KV_FIRST_UP_TO_0_22 and version < (0, 23):
            layer = cls.split(tensor, kv_first=True)
        else:
            layer = cls.split(tensor, kv_first=False)
        layer._check(num_kv_heads, head_size, block_size)
        return layer

    @classmethod
    def packed(cls, tensor: torch.Tensor, *, token_granular: bool = True) -> PagedLayer:
        """(B,H,N,2D), any strides, K in [..., :D]."""
        if tensor.dim() != 4 or tensor.shape[3] % 2:
            raise ValueError(f"a packed KV tensor is (B,H,N,2D), not {tuple(tensor.shape)}.")
        # (B,H,N,2,D) -> (B,2,H,N,D): views, unflatten of the last axis never copies
        axes = tensor.unflatten(3, (2, tensor.shape[3] // 2)).permute(0, 3, 1, 2, 4)
        return cls(tensor, "packed", axes, axes.transpose(2, 3), token_granular)

    @classmethod
    def split(cls, tensor: torch.Tensor, *, kv_first: bool) -> PagedLayer:
        """(2,B,N,H,D) or (B,2,N,H,D) by ``kv_first``, any strides."""
        if tensor.dim() != 5 or tensor.shape[0 if kv_first else 1] != 2:
            raise ValueError(
                f"a KV tensor with {'K/V' if kv_first else 'blocks'} first can't have shape {tuple(tensor.shape)}."
            )
        if kv_first:
            return cls(tensor, "kv_first", tensor, tensor.transpose(0, 1))
        return cls(tensor, "blocks_first", tensor, tensor)

    def __post_init__(self) -> None:
        if self.logical.data_ptr() != self.registered.data_ptr():
            raise ValueError("the logical view doesn't start where the registered tensor starts.")
        if self.logical.stride(4) != 1 and self.head_size > 1:
            raise ValueError(
                f"a head's {self.head_size} elements aren't adjacent (strides {self.registered.stride()})."
            )

    def _check(self, heads: int, head_size: int, block_size: int) -> None:
        if self.block_size != block_size and block_size % self.block_size == 0 and self.heads == heads:
            raise ValueError(
                f"blocks of {block_size} tokens are split into kernel blocks of {self.block_size}; "
                f"start the engine with --block-size {self.block_size}."
            )
        found, wanted = (self.block_size, self.heads, self.head_size), (block_size, heads, head_size)
        if found != wanted:
            raise ValueError(
                f"a KV tensor of shape {tuple(self.registered.shape)} read as {self.form} has "
                f"(block, heads, head size) {found}, not {wanted}."
            )

    @property
    def num_blocks(self) -> int:
        return self.logical.shape[0]

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.logical.shape[2]

    @property
    def heads(self) -> int:
        return self.logical.shape[3]

    @property
    def head_size(self) -> int:
        return self.logical.shape[4]

    @property
    def dtype(self) -> torch.dtype:
        return self.registered.dtype

    @property
    def device(self) -> torch.device:
        return self.registered.device

    @cached_property
    def head_major(self) -> bool:
        """In a page, do all tokens of one head stand before those of the next (HND)? With one head or one token per
        block both orders are the same bytes; then False."""
        _, _, n, h, _ = self.logical.stride()
        return self.heads > 1 and self.block_size > 1 and h > n

    @cached_property
    def physical(self) -> torch.Tensor:
        """View in the order in which a page lies in memory: (B,2,N,H,D) under NHD, (B,2,H,N,D) under HND."""
        return self.logical.transpose(2, 3) if self.head_major else self.logical

    @cached_property
    def layout(self) -> str:
        """vLLM's name for the physical order, from strides alone: NHD (=LBNHC), HND (=LBHNC), BLNHC, BLHNC, BHLNC or
        LHBNC. One layer can't tell padding between pages from other layers' pages: both read as block-outermost."""
        blocks, _, _, h, _ = self.logical.stride()
        heads_apart = self.heads > 1 and self.head_major and h > self._run
        if heads_apart and self.num_blocks > 1 and h > blocks:
            return "LHBNC"
        if self.num_blocks > 1 and blocks > self.page_elements:
            if heads_apart:
                return "BHLNC"
            return "BLHNC" if self.head_major else "BLNHC"
        return "HND" if self.head_major else "NHD"

    @property
    def _run(self) -> int:
        """Elements of one head's tokens in one page, K and V together where they are packed."""
        return self.block_size * (2 * self.head_size if self.form == "packed" else self.head_size)

    @property
    def page_elements(self) -> int:
        """Elements of one page: K and V of one block, or K alone where K/V is the outermost axis."""
        both = self.heads * self.block_size * self.head_size
        return both if self.kv_outermost else 2 * both

    @property
    def kv_outermost(self) -> bool:
        """Do all blocks of K stand before all blocks of V?"""
        return self.logical.stride(1) > self.logical.stride(0)

    @cached_property
    def row_pitch(self) -> int | None:
        """Elements from one (token, head) row of a page to the next: D when K and V are split, 2*D when packed. None
        when rows aren't evenly spaced (FLEX_ATTENTION 0.23 to 0.25; BHLNC; LHBNC), so that no kernel that assumes an
        order in the page can be used."""
        outer, inner = self.physical.shape[2:4]
        step, pitch = self.physical.stride()[2:4]
        if inner == 1:
            return step if outer > 1 else (2 * self.head_size if self.form == "packed" else self.head_size)
        return pitch if outer == 1 or step == inner * pitch else None

    @cached_property
    def page_span(self) -> tuple[int, int]:
        """First and one past the last element of this layer in its storage. Under block-outermost layouts the elements
        between belong to other layers too."""
        first = self.registered.storage_offset()
        last = sum((size - 1) * stride for size, stride in zip(self.logical.shape, self.logical.stride(), strict=True))
        return first, first + last + 1


def _minor(version: str) -> tuple[int, int]:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if not match:
        raise ValueError(f"vLLM version {version!r} can't be read, so the KV geometry is unknown.")
    return int(match[1]), int(match[2])
