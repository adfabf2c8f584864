from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.inside import placement as axis
from e2e.inside.placement.flat_walk import FlatWalk, registered_view, token_first_view
from e2e.inside.placement.index import Index
from e2e.lab.kernels import Unavailable, get
from e2e.lab.kernels.caches import FORMS, STAGINGS, UNEVEN, Geometry, make, stage
from e2e.lab.kernels.reference import Reference
from e2e.lab.kernels.regression import Case, compare

EVEN = [form for form in FORMS if form not in UNEVEN]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.float8_e4m3fn)
SMALL = Geometry(layers=3, blocks=6, block_size=4, heads=3, head_size=8)


@st.composite
def cases(draw):
    block_size = draw(st.integers(1, 6))
    geometry = Geometry(
        layers=draw(st.integers(1, 3)), blocks=draw(st.integers(1, 6)), block_size=block_size,
        heads=draw(st.integers(1, 5).filter(lambda heads: heads != block_size)),
        head_size=draw(st.sampled_from([2, 4, 6, 16])), dtype=draw(st.sampled_from(DTYPES)),
    )  # fmt: skip
    slots = draw(st.lists(st.integers(0, geometry.slots - 1), unique=True, min_size=1, max_size=12))
    for at in draw(st.lists(st.integers(0, len(slots)), max_size=3)):
        slots.insert(at, -1)
    return Case(geometry, tuple(slots), draw(st.sampled_from(sorted(STAGINGS))), draw(st.integers(0, 2**31)))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_every_byte_equals_the_reference(form, case):
    for placement in (Index(), Index(once=False), *([] if form in UNEVEN else [FlatWalk()])):
        assert compare(placement, form, case, device="cpu") == 0


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=12, deadline=None)
@given(case=cases())
def test_the_triton_kernel_equals_the_reference(form, case):
    pytest.importorskip("triton")
    assert compare(get("triton", "cpu"), form, case, device="cpu") == 0


def values(geometry: Geometry, tokens: int, seed: int) -> torch.Tensor:
    shape = (geometry.layers, 2, tokens, geometry.heads, geometry.head_size)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(geometry.dtype)


def test_calls_are_counted():
    slots = torch.tensor([3, 9])
    for name, calls in (("reference", 3), ("index", 3), ("kernel", 3), ("triton", 1)):
        _, layers = make("packed-LBNHC", SMALL)
        assert get(name).scatter(values(SMALL, 2, 0), layers, slots) == calls


@pytest.mark.parametrize("form", EVEN)
@pytest.mark.parametrize("view", [token_first_view, registered_view])
def test_a_planted_view_strikes_where_it_should_and_only_there(form, view):
    slots = torch.tensor([9, 2, 5, 23, 0])
    staged = values(SMALL, 5, 2)
    want, layers = make(form, SMALL)
    Reference().scatter(staged, layers, slots)
    got, layers = make(form, SMALL)
    FlatWalk(view=view).scatter(staged, layers, slots)
    head_major = layers[0].head_major
    strikes = head_major if view is token_first_view else head_major != (layers[0].form == "packed")
    assert (not torch.equal(got, want)) == strikes


@pytest.mark.parametrize("form", ["packed-BLHNC", "packed-LBHNC", "kv_first-HND", "blocks_first-HND"])
def test_a_wrong_view_never_leaves_the_pages_of_its_layer(form):
    storage, layers = make(form, SMALL)
    staged = values(SMALL, 4, 3)[:1]
    FlatWalk(view=token_first_view).scatter(staged, layers[1:2], torch.tensor([23, 22, 3, 8]))
    inside = int((layers[1].logical != 0).sum())
    assert int((storage != 0).sum()) == inside > 0
    assert inside < int((staged != 0).sum()), "nothing was dropped, so nothing could have left"


def test_gather_keeps_rows_of_negative_slots():
    slots = torch.tensor([7, -1, 0])
    for name in ("reference", "index", "kernel", "triton"):
        _, layers = make("packed-LBHNC", SMALL)
        get(name).scatter(values(SMALL, 3, 1), layers, slots)
        out = stage(torch.full((3, 2, 3, 3, 8), 7.0), "token-major")
        assert get(name).gather(layers, slots, out) is out
        assert (out[:, :, 1] == 7).all()
        assert torch.equal(out[:, :, [0, 2]], values(SMALL, 3, 1)[:, :, [0, 2]])


def test_reference_refuses_slots_past_the_cache():
    _, layers = make("packed-LBNHC", SMALL)
    with pytest.raises(ValueError, match="slot 24 lies past"):
        Reference().scatter(values(SMALL, 1, 0), layers, torch.tensor([24]))


@pytest.mark.parametrize("form", UNEVEN)
def test_flat_walk_refuses_uneven_pages(form):
    _, layers = make(form, SMALL)
    with pytest.raises(ValueError, match="evenly"):
        FlatWalk().scatter(values(SMALL, 1, 0), layers, torch.tensor([1]))


@pytest.mark.parametrize(
    ("staged", "slots", "words"),
    [
        (torch.zeros(3, 2, 2, 3, 8), torch.tensor([1]), "shape"),
        (torch.zeros(3, 2, 1, 3, 8, dtype=torch.float16), torch.tensor([1]), "float16"),
        (torch.zeros(3, 2, 1, 3, 8), torch.tensor([1], dtype=torch.int32), "int64"),
        (torch.zeros(3, 2, 1, 3, 16)[..., ::2], torch.tensor([1]), "adjacent"),
    ],
)
def test_wrong_arguments_are_refused(staged, slots, words):
    for name in ("reference", "index", "kernel", "triton"):
        _, layers = make("packed-LBNHC", SMALL)
        placement = get(name)
        with pytest.raises(ValueError, match=words):
            placement.scatter(staged, layers, slots)
        placement.scatter(torch.zeros(3, 2, 1, 3, 8), layers, torch.tensor([1]))
        with pytest.raises(ValueError, match=words):
            placement.scatter(staged, layers, slots)


def test_table():
    assert [axis.get(name).name for name in axis.NAMES] == ["index", "kernel"]
    with pytest.raises(ValueError, match="unknown; use index or kernel"):
        axis.get("kernal")
    with pytest.raises(Unavailable, match="CUDA"):
        get("lmcache", "cpu")
