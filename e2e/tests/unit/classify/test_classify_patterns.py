"""Every pattern on random tensors of random shapes, degenerate sizes included, through pages, rows and bits."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kv_models import Model, sample, zero

from e2e.judge.classify import PATTERNS, classify
from e2e.judge.contents import encode, values

DTYPES = ("float32", "float16", "bfloat16")


@st.composite
def models(draw, *, layers=1, heads=1, blocks=1, block_size=1, size=2, dtypes=DTYPES) -> Model:
    """Arguments are least sizes."""
    return Model.random(
        draw(st.integers(0, 2**31)),
        layers=draw(st.integers(layers, 4)),
        heads=draw(st.integers(heads, 4)),
        blocks=draw(st.integers(blocks, 6)),
        block_size=draw(st.sampled_from([n for n in (1, 2, 4, 8) if n >= block_size])),
        size=draw(st.integers(size, 8)),
        dtype=draw(st.sampled_from(dtypes)),
    )


def blank_like(model: Model) -> Model:
    """What all blocks were overwritten with: the same page everywhere, by layer."""
    layers, two, heads, tokens, width = model.kv.shape
    page = np.random.default_rng(99).integers(0, 255, (layers, two, heads, model.block_size, width), dtype=np.uint8)
    return model.like(np.tile(page, (1, 1, 1, tokens // model.block_size, 1)))


def look(expected: Model, found: Model, *, blank: Model | None = None, others=None, strays=None, sampled=True):
    assert (expected.kv != found.kv).any(), "nothing was spoiled"
    pattern = classify(
        expected.pages(), found.pages(), block_size=expected.block_size, zero=zero(expected, page=True),
        blank=None if blank is None else blank.pages()[..., 0], others=others,
        sample=sample(expected, found, blank, strays) if sampled else None,
    )  # fmt: skip
    assert pattern.name in PATTERNS
    return pattern


few = settings(max_examples=40, deadline=None)


@few
@given(models())
def test_kv_swapped(model):
    assert look(model, model.like(model.kv[:, ::-1])).name == "kv_swapped"


@few
@given(models(heads=2))
def test_heads_permuted(model):
    pattern = look(model, model.like(np.roll(model.kv, 1, axis=2)))
    assert pattern.name == "heads_permuted"
    assert f"0<{model.kv.shape[2] - 1}" in pattern.details["heads"].split()


@few
@given(models(layers=2), st.booleans())
def test_neighbour_layer(model, all_layers):
    kv = model.kv.copy()
    if all_layers:
        kv = np.roll(kv, 1, axis=0)
    else:
        kv[0] = kv[1]
    pattern = look(model, model.like(kv))
    assert pattern.name == "neighbour_layer"
    if model.kv.shape[0] > 2:
        assert pattern.details["delta"] == (-1 if all_layers else 1)


@few
@given(models(blocks=2), st.data())
def test_shifted_by_slots(model, data):
    """Of whole blocks (seen by pages) and of parts of one (seen by rows)."""
    tokens = model.kv.shape[3]
    assume(tokens >= 4)
    slots = data.draw(st.integers(1, max(tokens // 3, 1)))
    blank = blank_like(model)
    kv = blank.kv.copy()
    kv[:, :, :, slots:] = model.kv[:, :, :, : tokens - slots]
    pattern = look(model, model.like(kv), blank=blank)
    assert (pattern.name, pattern.details["slots"]) == ("shifted_by_n_slots", slots)


@few
@given(models(heads=2, block_size=4))
def test_axes_swapped_in_a_page(model):
    layers, two, heads, tokens, width = model.kv.shape
    assume(heads != model.block_size)
    page = model.kv.transpose(0, 1, 3, 2, 4).reshape(layers, two, -1, heads, model.block_size, width)
    swapped = page.transpose(0, 1, 2, 4, 3, 5).reshape(layers, two, tokens, heads, width).transpose(0, 1, 3, 2, 4)
    assert look(model, model.like(swapped)).name == "axes_swapped"


@few
@given(models(heads=2, blocks=2, block_size=4))
def test_axes_swapped_beyond_the_load(model):
    """Nothing arrived, and the rows were found at addresses of other heads and slots."""
    _, two, heads, tokens, _ = model.kv.shape
    here = np.argwhere(np.ones((two, heads, tokens), bool))
    strays = np.concatenate((here, here), 1)
    strays[:, 4] = (here[:, 1] + 1) % heads
    strays[:, 5] = here[:, 2] * heads + here[:, 1] + 1000
    blank = blank_like(model)
    assert look(model, blank, blank=blank, strays=strays).name == "axes_swapped"


@few
@given(models(heads=2, blocks=2, block_size=4, size=8), st.integers(0, 2**31))
def test_a_few_rows_that_seem_to_have_moved_name_nothing(model, seed):
    """Another prompt's KV, of which a quarter is the same words, a block further on."""
    layers, _, heads, tokens, width = model.kv.shape
    quarter, size = model.block_size // 4, model.block_size
    other = Model.random(
        2**32 + seed, layers=layers, heads=heads, blocks=tokens // size, block_size=size, dtype=model.dtype,
        size=width // (4 if model.dtype == "float32" else 2),
    ).kv  # fmt: skip
    other[:, :, :, :quarter] = model.kv[:, :, :, size : size + quarter]
    assert look(model, model.like(other)).name in ("unknown", "truncated_tail")


@few
@given(models(heads=2, blocks=2, block_size=4, size=8))
def test_zeros_that_were_expected_did_not_move(model):
    """What was computed had been zeroed, and zeros lie in many places."""
    zeroed = model.kv.copy()
    zeroed[:, :, :, : model.block_size] = 0
    here = np.argwhere(np.ones((2, model.kv.shape[2], model.block_size), bool))
    strays = np.concatenate((here, here), 1)
    strays[:, 4], strays[:, 5] = (here[:, 1] + 1) % model.kv.shape[2], 1000
    assert look(model.like(zeroed), model, strays=strays).name == "unknown"


@few
@given(models(), models())
def test_stale(model, other):
    shape = [min(a, b) for a, b in zip(model.pages().shape, other.pages().shape, strict=True)]
    at = tuple(slice(n) for n in shape)
    expected = model.pages()
    found = expected.copy()
    found[at] = other.pages()[at]
    assume((found != expected).any())
    pattern = classify(expected, found, block_size=model.block_size, others={4: other.pages()})
    assert (pattern.name, pattern.details["of_prompt"]) == ("stale", 4)


@few
@given(models(layers=2), st.booleans())
def test_not_written_and_zeros(model, zeros):
    blank = blank_like(model)
    kv = model.kv.copy()
    kv[1] = 0 if zeros else blank.kv[1]
    assert look(model, model.like(kv), blank=blank).name == ("zeros" if zeros else "not_written")


@few
@given(models(blocks=3), st.data())
def test_truncated_tail(model, data):
    tokens = model.kv.shape[3]
    first = data.draw(st.integers(model.block_size, tokens - model.block_size))
    blank = blank_like(model)
    kv = model.kv.copy()
    kv[:, :, :, first:] = blank.kv[:, :, :, first:]
    pattern = look(model, model.like(kv), blank=blank)
    assert (pattern.name, pattern.details["from_token"]) == ("truncated_tail", first)


@few
@given(models(), st.integers(1, 3), st.data())
def test_bit_flips(model, count, data):
    """In one element of one page, bits that make it neither another type nor a multiple."""
    kv = model.kv.copy()
    row = kv[-1, 1, 0, 0].view({"float32": "<u4"}.get(model.dtype, "<u2"))
    for bit in range(count):
        row[data.draw(st.integers(0, len(row) - 1))] ^= 1 << bit
    assume((kv != model.kv).any())
    changed = kv[-1, 1, 0, : model.block_size] ^ model.kv[-1, 1, 0, : model.block_size]
    touched = (changed.reshape(-1, 4 if model.dtype == "float32" else 2) != 0).any(1).sum()
    flipped = int(np.unpackbits(changed).sum())
    assume(flipped <= 1.5 * touched)
    assume(model.kv.shape[3] * model.kv.shape[4] > 16)
    pattern = look(model, model.like(kv))
    assert (pattern.name, pattern.details["flips"]) == ("bit_flips", flipped)


@few
@given(models(size=4, block_size=4, dtypes=("float32", "bfloat16")))
def test_read_as_fp16(model):
    misread = values(encode(values(model.kv.ravel(), model.dtype), "bfloat16"), "float16")
    misread = np.nan_to_num(misread, nan=0.0).astype("<f4")
    pattern = look(model, model.like(encode(misread, model.dtype).reshape(model.kv.shape)))
    assert pattern.name == "reinterpreted"
    assert (pattern.details["stored"], pattern.details["read_as"]) == ("bfloat16", "float16")


@few
@given(models(size=4, block_size=4), st.sampled_from([0.5, 2.0, -1.0, 0.0078125]))
def test_scaled(model, scale):
    scaled = (values(model.kv.ravel(), model.dtype) * scale).astype("<f4")
    pattern = look(model, model.like(encode(scaled, model.dtype).reshape(model.kv.shape)))
    assert pattern.name == "reinterpreted"
    assert abs(pattern.details["scale"] / scale - 1) < 0.02


@few
@given(models(size=4, block_size=4))
def test_noise_is_unknown(model):
    generator = np.random.default_rng(2**40)
    noise = generator.standard_normal((*model.kv.shape[:4], model.kv.shape[4] // 2)).astype("<f2").view("u1")
    assert look(model, model.like(noise)).name == "unknown"


def test_without_a_sample_pages_still_speak():
    model = Model.random(1, layers=3, heads=2, blocks=4, block_size=4, size=4, dtype="float32")
    assert look(model, model.like(model.kv[:, ::-1]), sampled=False).name == "kv_swapped"
    kv = model.kv.copy()
    kv[0, 0, 0, 0, 0] ^= 1
    assert look(model, model.like(kv), sampled=False).name == "unknown"


def test_repeated_rows_do_not_mislead():
    """Layer 0's V is equal for equal tokens: such rows have no single place and are left out."""
    model = Model.random(1, layers=2, heads=2, blocks=4, block_size=4, size=4, dtype="float32")
    model.kv[:, 1] = model.kv[:, 1, :, :1]
    kv = np.roll(model.kv, 1, axis=3)
    assert look(model, model.like(kv)).name == "shifted_by_n_slots"
