from __future__ import annotations

import pytest
import torch
from geometry_cases import FORMS, UNEVEN, make_layers
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.inside.placement import Unavailable, get
from e2e.inside.placement.flat_walk import FlatWalk, registered_view, token_first_view
from e2e.inside.placement.index import Index
from e2e.inside.placement.reference import Reference

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.float8_e4m3fn)


@st.composite
def geometries(draw):
    block_size = draw(st.integers(1, 6))
    heads = draw(st.integers(1, 5).filter(lambda heads: heads != block_size or heads == 1))
    blocks = draw(st.integers(1, 6))
    size = dict(
        layers=draw(st.integers(1, 3)), blocks=blocks, block_size=block_size, heads=heads,
        head_size=draw(st.sampled_from([2, 4, 6, 16])), dtype=draw(st.sampled_from(DTYPES)),
    )  # fmt: skip
    slots = draw(st.lists(st.integers(0, blocks * block_size - 1), unique=True, max_size=12))
    for at in draw(st.lists(st.integers(0, len(slots)), max_size=3)):
        slots.insert(at, -1)
    return size, torch.tensor(slots, dtype=torch.int64), draw(st.integers(0, 2**31))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def random_staging(size: dict, tokens: int, seed: int) -> torch.Tensor:
    shape = (size["layers"], 2, tokens, size["heads"], size["head_size"])
    width = torch.empty(0, dtype=size["dtype"]).element_size()
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(1, 256, (*shape[:-1], shape[-1] * width), dtype=torch.uint8, generator=generator)
    return raw.view(size["dtype"]).view(shape)


def implementations(form: str):
    yield Index()
    yield Index(once=False)
    if form not in UNEVEN:
        yield FlatWalk()


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=40, deadline=None)
@given(case=geometries())
def test_every_byte_of_the_cache_equals_the_reference(form, case):
    size, slots, seed = case
    staged = random_staging(size, len(slots), seed)
    want, layers = make_layers(form, **size)
    Reference().scatter(staged, layers, slots)
    written = (bits(want) != 0).sum()
    assert written == bits(staged[:, :, slots >= 0]).numel()
    for placement in implementations(form):
        got, mine = make_layers(form, **size)
        assert placement.scatter(staged, mine, slots) == size["layers"]
        assert torch.equal(bits(got), bits(want))
        back = placement.gather(mine, slots)
        assert torch.equal(bits(back[:, :, slots >= 0]), bits(staged[:, :, slots >= 0]))
        assert not bits(back[:, :, slots < 0]).any()


@pytest.mark.parametrize("form", [form for form in FORMS if form not in UNEVEN])
def test_gather_into_views_of_other_staging_orders(form):
    size = dict(layers=2, blocks=5, block_size=4, heads=3, head_size=8)
    slots = torch.tensor([7, -1, 0, 13, 18])
    staged = random_staging(size | {"dtype": torch.float32}, 5, 1)
    for placement in (Reference(), *implementations(form)):
        _, layers = make_layers(form, **size)
        token_major = staged.transpose(1, 2).contiguous().transpose(1, 2)
        assert not token_major.is_contiguous()
        placement.scatter(token_major, layers, slots)
        out = torch.full((2, 5, 2, 3, 8), 7.0).transpose(1, 2)
        assert placement.gather(layers, slots, out) is out
        assert torch.equal(out[:, :, slots >= 0], staged[:, :, slots >= 0])
        assert (out[:, :, 1] == 7).all()


@pytest.mark.parametrize("form", [form for form in FORMS if form not in UNEVEN])
@pytest.mark.parametrize("view", [token_first_view, registered_view])
def test_a_planted_view_strikes_where_it_should_and_only_there(form, view):
    size = dict(layers=2, blocks=6, block_size=4, heads=3, head_size=8)
    slots = torch.tensor([9, 2, 5, 23, 0])
    staged = random_staging(size | {"dtype": torch.float32}, 5, 2)
    want, layers = make_layers(form, **size)
    Reference().scatter(staged, layers, slots)
    got, layers = make_layers(form, **size)
    FlatWalk(view=view).scatter(staged, layers, slots)
    head_major = layers[0].head_major
    strikes = head_major if view is token_first_view else head_major != (layers[0].form == "packed")
    assert (not torch.equal(bits(got), bits(want))) == strikes


def test_a_wrong_view_never_leaves_the_pages_of_its_layer():
    size = dict(layers=3, blocks=4, block_size=4, heads=3, head_size=8)
    slots = torch.tensor([15, 14, 3, 8])
    for form in ("packed-BLHNC", "packed-LBHNC", "kv_first-HND", "blocks_first-HND"):
        storage, layers = make_layers(form, **size)
        flat = FlatWalk(view=token_first_view)
        flat.scatter(random_staging(size | {"dtype": torch.float32}, 4, 3)[:1], layers[1:2], slots)
        assert flat.dropped > 0
        touched = int((storage != 0).sum())
        assert touched == int((layers[1].logical != 0).sum()) > 0


def test_reference_refuses_slots_past_the_cache():
    _, layers = make_layers("packed-LBNHC", layers=1, blocks=2, block_size=4, heads=3, head_size=2)
    with pytest.raises(ValueError, match="slot 8 lies past"):
        Reference().scatter(torch.zeros(1, 2, 1, 3, 2), layers, torch.tensor([8]))


def test_flat_walk_refuses_uneven_pages():
    for form in UNEVEN:
        _, layers = make_layers(form, layers=2, blocks=2, block_size=4, heads=3, head_size=2)
        with pytest.raises(ValueError, match="evenly"):
            FlatWalk().scatter(torch.zeros(2, 2, 1, 3, 2), layers, torch.tensor([1]))


@pytest.mark.parametrize(
    ("staged", "slots", "words"),
    [
        (torch.zeros(1, 2, 2, 3, 2), torch.tensor([1]), "shape"),
        (torch.zeros(1, 2, 1, 3, 2, dtype=torch.float16), torch.tensor([1]), "float16"),
        (torch.zeros(1, 2, 1, 3, 2), torch.tensor([1], dtype=torch.int32), "int64"),
    ],
)
def test_wrong_arguments_are_refused(staged, slots, words):
    _, layers = make_layers("packed-LBNHC", layers=1, blocks=2, block_size=4, heads=3, head_size=2)
    for placement in (Reference(), Index(), FlatWalk()):
        with pytest.raises(ValueError, match=words):
            placement.scatter(staged, layers, slots)


def test_table():
    assert get("kernel", "cpu").name == "kernel"
    assert get("index").name == "index"
    with pytest.raises(ValueError, match="unknown; use index"):
        get("kernal")
    with pytest.raises(Unavailable, match="CUDA"):
        get("lmcache", "cpu")
