"""The adapter to LMCache's and Maru's kernels, on a stand-in that follows their contract on a CPU: sizes and strides as
the kernels read them, everything else by format."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from e2e.inside.placement import Unavailable
from e2e.inside.placement.flat_walk import token_first_view
from e2e.lab.kernels import libraries
from e2e.lab.kernels.caches import RANK5, Geometry, make
from e2e.lab.kernels.regression import cases, compare
from e2e.lab.kernels.transfer import FORMATS, Library, Transfer


class StandIn:
    """Counts in rows of one head; writes outside the tensor's storage are an error here."""

    def __init__(self) -> None:
        self.calls = []

    def single_layer_kv_transfer(self, buffer, paged, slots, direction, kind, token_major):
        self.calls.append("single")
        hnd, kv_first = "NH_BS" in kind, "TWO_NB" in kind
        heads, block_size = (paged.size(2), paged.size(3)) if hnd else (paged.size(3), paged.size(2))
        size = paged.size(4)
        block_step, kv_step = (paged.stride(1), paged.stride(0)) if kv_first else (paged.stride(0), paged.stride(1))
        for token, slot in enumerate(slots.tolist()):
            for head in range(heads if slot >= 0 else 0):
                block, offset = divmod(slot, block_size)
                row = head * block_size + offset if hnd else offset * heads + head
                for kv in (0, 1):
                    at = paged.storage_offset() + block * block_step + kv * kv_step + row * size
                    there = torch.as_strided(paged, (size,), (1,), at)
                    here = (buffer[token, kv] if token_major else buffer[kv, token])[head * size : (head + 1) * size]
                    _copy(here, there, direction)

    def multi_layer_kv_transfer(self, buffer, table, slots, device, page_buffer_size, direction, kind, block_size,
                                head_size, skip, *stride):  # fmt: skip
        self.calls.append("multi")
        assert skip == 0
        heads = buffer.size(3) // head_size
        for layer, address in enumerate(table.tolist()):
            paged = self.layers[address]
            for token, slot in enumerate(slots.tolist()):
                for head in range(heads if slot >= 0 else 0):
                    block, offset = divmod(slot, block_size)
                    row = head * block_size + offset if "NH_BS" in kind else offset * heads + head
                    page = heads * block_size
                    for kv in (0, 1):
                        if "TWO_NB" in kind:
                            at = kv * page_buffer_size * heads + block * page + row
                        else:
                            at = (2 * block + kv) * page + row
                        start = paged.storage_offset() + at * head_size
                        there = torch.as_strided(paged, (head_size,), (1,), start)
                        _copy(buffer[kv, layer, token, head * head_size : (head + 1) * head_size], there, direction)


def _copy(here, there, direction):
    if direction == "H2D":
        there.copy_(here)
    else:
        here.copy_(there)


def stand_in(**more):
    ops = StandIn()
    formats = types.SimpleNamespace(**{name: name for key, name in FORMATS.items() if key[0] != "packed"})
    directions = types.SimpleNamespace(H2D="H2D", D2H="D2H")
    return Transfer(Library("lmcache", ops, formats, directions, block_stride=False), **more), ops


@pytest.mark.parametrize("form", RANK5)
@pytest.mark.parametrize("launch", ["single", "multi"])
def test_arguments_carry_the_geometry(form, launch, monkeypatch):
    placement, ops = stand_in(launch=launch)
    original = Transfer._table

    def table(self, layers):
        ops.layers = {layer.registered.data_ptr(): layer.registered for layer in layers}
        return original(self, layers)

    monkeypatch.setattr(Transfer, "_table", table)
    for case in cases(3, 6):
        assert compare(placement, form, case, device="cpu") == 0
    assert set(ops.calls) == {launch}


@pytest.mark.parametrize("form", RANK5)
def test_the_original_defect_can_be_planted(form):
    geometry = Geometry(layers=1, blocks=40, block_size=16, heads=8, head_size=8)
    staged = torch.randn(3, 2, 3, 8, 8)[1:2]
    slots = torch.tensor([5, 40, 18])
    storages = []
    for more in ({}, {"view": token_first_view}):
        placement, _ = stand_in(launch="single", **more)
        storage, layers = make(form, geometry, guard=geometry.layer_elements)
        # room behind the staging: the wrong head count reads past its end
        roomy = torch.zeros(4 * staged.numel())[: staged.numel()].view(staged.shape).copy_(staged)
        try:
            placement.scatter(roomy, layers, slots)
        except (ValueError, RuntimeError):
            storage.fill_(-1)
        storages.append(storage)
    assert torch.equal(*storages) == form.endswith("NHD")


def test_refusals_are_sentences():
    geometry = Geometry(layers=2, blocks=4, block_size=4, heads=3, head_size=8)
    slots = torch.tensor([1])
    _, layers = make("packed-LBHNC", geometry)
    placement, _ = stand_in(launch="multi")
    with pytest.raises(ValueError, match="no format for packed pages in HND order"):
        placement.scatter(torch.zeros(2, 2, 1, 3, 8), layers, slots)
    narrow = Geometry(layers=2, blocks=4, block_size=4, heads=3, head_size=1)
    _, layers = make("blocks_first-NHD", narrow)
    placement, _ = stand_in(launch="single")
    with pytest.raises(ValueError, match="words of 8 bytes"):
        placement.scatter(torch.zeros(2, 2, 1, 3, 1), layers, slots)
    placement, ops = stand_in(launch="single")
    _, layers = make("blocks_first-NHD", geometry)

    def explode(*_):
        raise RuntimeError("Unsupported format\nmore lines")

    ops.single_layer_kv_transfer = explode
    with pytest.raises(ValueError, match=r"refuses blocks_first pages in NHD order: Unsupported format\.$"):
        placement.scatter(torch.zeros(2, 2, 1, 3, 8), layers, slots)
    with pytest.raises(ValueError, match="launch 'both' is unknown"):
        stand_in(launch="both")


def test_multi_layer_refuses_pages_with_gaps():
    geometry = Geometry(layers=2, blocks=4, block_size=4, heads=3, head_size=8)
    _, layers = make("blocks_first-NHD", geometry)
    gaps = [type(layer).split(layer.registered[::2], kv_first=False) for layer in layers]
    placement, _ = stand_in(launch="multi")
    with pytest.raises(ValueError, match="gaps"):
        placement.scatter(torch.zeros(2, 2, 1, 3, 8), gaps, torch.tensor([1]))


def test_missing_libraries_are_unavailable(monkeypatch):
    monkeypatch.setitem(sys.modules, "maru_kv_ops", None)
    with pytest.raises(Unavailable, match="isn't built here"):
        libraries.maru_kv_ops()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="isn't installed here"):
        libraries.lmcache()


def test_a_library_for_another_torch_is_unavailable(monkeypatch, tmp_path):
    import importlib.machinery

    package = tmp_path / "lmcache"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / f"c_ops{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"not an extension")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "lmcache"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(Unavailable, match=r"can't be loaded with torch \d"):
        libraries.lmcache()
