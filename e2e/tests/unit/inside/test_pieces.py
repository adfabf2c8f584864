"""A load is cut so that all of it is placed once, and as the forward asks for it where it is overlapped."""

import pytest

from e2e.inside import pieces as cut
from e2e.inside.config import RequestSettings
from e2e.inside.pieces import ahead, by_layers, pieces
from e2e.inside.scheduler_side import Load

LAYERS, CHUNK, CHUNK_BYTES = 3, 32, 1000


def _load(first: int, end: int, **settings) -> Load:
    return Load("r", RequestSettings(**settings), ["k"] * -(-end // CHUNK), first, end, [])


@pytest.mark.parametrize("most", [1, 2000, 1 << 30])
@pytest.mark.parametrize(("first", "end"), [(0, 320), (40, 300), (33, 63), (64, 96)])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("storage_format", ["chunkwise", "layerwise"])
def test_every_token_of_every_layer_is_in_one_piece(storage_format, overlap, first, end, most, monkeypatch):
    monkeypatch.setattr(cut, "PIECE_BYTES", most)
    settings = {"storage_format": storage_format, "overlap": overlap, "load": "async"}
    found = pieces(_load(first, end, **settings), layers=LAYERS, chunk_tokens=CHUNK, chunk_bytes=CHUNK_BYTES)
    placed = [(t, layer) for p in found for layer in p.layers for t in range(p.tokens.start, p.tokens.stop)]
    assert sorted(placed) == [(t, layer) for t in range(end - first) for layer in range(LAYERS)]
    for piece in found:
        assert piece.chunks.start * CHUNK <= first + piece.tokens.start < (piece.chunks.start + 1) * CHUNK
        assert (piece.chunks.stop - 1) * CHUNK < first + piece.tokens.stop <= piece.chunks.stop * CHUNK
    if overlap and storage_format == "layerwise":
        assert [[*p.layers] for p in found] == [[0], [1], [2]]
    else:
        assert {p.layers for p in found} == {range(LAYERS)}
        assert max(len(p.chunks) for p in found) <= max(most // CHUNK_BYTES, 1)


def test_a_gpu_copies_layers_together_but_for_the_first_and_the_last():
    load = _load(0, 64, storage_format="layerwise", overlap=True, load="async")
    found = pieces(load, layers=9, together=3, chunk_tokens=CHUNK, chunk_bytes=CHUNK_BYTES)
    assert [[*p.layers] for p in found] == [[0], [1, 2, 3], [4, 5, 6], [7], [8]]
    assert {p.chunks for p in found} == {range(2)}


@pytest.mark.parametrize("together", [1, 2, 8])
@pytest.mark.parametrize("layers", range(1, 7))
def test_each_layer_is_in_one_group(layers, together):
    found = by_layers(layers, together)
    assert [layer for group in found for layer in group] == [*range(layers)]
    assert all(1 <= len(group) <= together for group in found)


def test_a_planted_fault_gets_all_at_once():
    load = _load(0, 320, storage_format="layerwise", overlap=True, load="async", fault="zero_layer")
    assert [p.chunks for p in pieces(load, layers=LAYERS, chunk_tokens=CHUNK, chunk_bytes=1)] == [range(10)]


@pytest.mark.parametrize(("count", "begun_by_then"), [(0, [1, 2, 3]), (1, [2, 3, 3]), (2, [3, 3, 3]), (9, [3, 3, 3])])
def test_so_many_more_have_begun_when_one_is_looked_at(count, begun_by_then):
    begun = []
    seen = [(item, len(begun)) for item in ahead((begun.append(n) or n for n in range(3)), count)]
    assert seen == [*enumerate(begun_by_then)]
