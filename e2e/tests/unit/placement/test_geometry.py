from __future__ import annotations

import pytest
import torch

from e2e.inside.geometry import PagedLayer
from e2e.lab.kernels.caches import FORMS, UNEVEN, Geometry, make

SIZES = Geometry(layers=3, blocks=5, block_size=4, heads=3, head_size=8)
NAMES = {"LBNHC": "NHD", "LBHNC": "HND"}


@pytest.mark.parametrize("form", FORMS)
def test_views_share_memory_and_name_the_order(form):
    storage, layers = make(form, SIZES)
    storage.copy_(torch.arange(storage.numel()))
    order = form.split("-")[1]
    for layer in layers:
        assert layer.logical.shape == (5, 2, 4, 3, 8)
        assert layer.logical.data_ptr() == layer.registered.data_ptr() == layer.physical.data_ptr()
        assert layer.layout == NAMES.get(order, order)
        assert layer.head_major == (order.index("H") < order.index("N"))
        assert (layer.row_pitch is None) == (form in UNEVEN)
        first, end = layer.page_span
        assert storage[first] == layer.logical.min()
        assert storage[end - 1] == layer.logical.max()
        for block, kv, token, head in ((0, 0, 0, 0), (4, 1, 3, 2), (1, 0, 2, 1), (2, 1, 0, 2)):
            got = layer.logical[block, kv, token, head]
            if layer.form == "packed":
                want = layer.registered[block, head, token, kv * 8 : kv * 8 + 8]
            elif layer.form == "kv_first":
                want = layer.registered[kv, block, token, head]
            else:
                want = layer.registered[block, kv, token, head]
            assert torch.equal(got, want)


@pytest.mark.parametrize(
    ("version", "backend", "shape", "form"),
    [
        ("0.14.1", "FLASH_ATTN", (2, 6, 16, 4, 8), "kv_first"),
        ("0.22.1", "FLEX_ATTENTION", (2, 6, 16, 4, 8), "kv_first"),
        ("0.22.1", "FLASHINFER", (6, 2, 16, 4, 8), "blocks_first"),
        ("0.14.1", "TRITON_ATTN", (6, 2, 16, 4, 8), "blocks_first"),
        ("0.23.0", "FLASH_ATTN", (6, 2, 16, 4, 8), "blocks_first"),
        ("0.25.1+cu130", "FLASH_ATTN", (6, 2, 16, 4, 8), "blocks_first"),
        ("0.26.0", "FLASH_ATTN", (6, 4, 16, 16), "packed"),
        ("0.32.0", "STRIDED_CPU", (6, 4, 16, 16), "packed"),
        ("0.23.0", "CPU_ATTN", (6, 4, 16, 16), "packed"),
        ("0.20.0", "CPU_ATTN", (2, 6, 4, 16, 8), "kv_first"),
    ],
)
def test_version_and_backend_decide_the_form(version, backend, shape, form):
    tensor = torch.arange(2 * 6 * 16 * 4 * 8).view(shape)
    layer = PagedLayer.resolve(
        tensor, num_kv_heads=4, head_size=8, block_size=16, vllm_version=version, backend=backend
    )
    assert layer.form == form
    assert layer.logical.shape == (6, 2, 16, 4, 8)
    assert layer.token_granular == (backend != "CPU_ATTN")


def test_two_blocks_or_two_heads_dont_mislead():
    tensor = torch.zeros(2, 2, 2, 2, 8)
    assert torch.equal(
        PagedLayer.resolve(
            tensor, num_kv_heads=2, head_size=8, block_size=2, vllm_version="0.22.0", backend="FLASH_ATTN"
        ).logical,
        tensor.transpose(0, 1),
    )


@pytest.mark.parametrize(
    ("version", "backend", "shape", "words"),
    [
        ("0.32.0", "FLASH_ATTN", (6, 2, 16, 4, 8), "rank 4"),
        ("0.25.0", "FLASH_ATTN", (6, 4, 16, 16), "rank 5"),
        ("0.32.0", "FLASH_ATTN", (6, 16, 576), "MLA"),
        ("0.32.0", "FLASH_ATTN", (6, 1, 16, 576), "MLA"),
        ("0.32.0", "TREE_ATTN", (6, 4, 16, 16), "TREE_ATTN"),
        ("0.32.0", "FLASHINFER", (12, 4, 8, 16), "--block-size 8"),
        ("0.32.0", "FLASH_ATTN", (6, 16, 4, 16), r"not \(16, 4, 8\)"),
        ("0.20.0", "TRITON_ATTN", (6, 2, 16, 4, 12), r"not \(16, 4, 8\)"),
        ("0.20.0", "TRITON_ATTN", (2, 6, 16, 4, 8), "blocks first"),
        ("main", "FLASH_ATTN", (6, 4, 16, 16), "version"),
    ],
)
def test_refuses_what_it_does_not_know(version, backend, shape, words):
    with pytest.raises(ValueError, match=words):
        PagedLayer.resolve(
            torch.zeros(shape), num_kv_heads=4, head_size=8, block_size=16, vllm_version=version, backend=backend
        )
