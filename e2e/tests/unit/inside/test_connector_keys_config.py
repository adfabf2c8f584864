from types import SimpleNamespace

import pytest

from e2e.inside import keys
from e2e.inside.config import RequestSettings, parse, size_bytes

BASE = {"embedded_pool_dir": "/nowhere"}


def test_a_chunk_key_names_everything_before_it():
    space = keys.namespace({"model": "m", "salt": "s"})
    ids = list(range(100))
    whole = keys.chunk_keys(ids, 32, space)
    assert len(whole) == 3, "the partial last chunk has no key"
    assert keys.chunk_keys(ids[:64], 32, space) == whole[:2]
    assert keys.chunk_keys([7, *ids[1:]], 32, space)[2] != whole[2], "a change in the first token changes the last key"
    assert not set(keys.chunk_keys(ids, 32, keys.namespace({"model": "m", "salt": "t"}))) & set(whole)


def test_unknown_and_idle_keys():
    config = parse({**BASE, "maru_server_url": "tcp://localhost:5555"}, block_size=16)
    assert config.inert == ("maru_server_url",)
    with pytest.raises(ValueError, match=r"maru_kv_chunk_token.*did you mean maru_kv_chunk_tokens"):
        parse({**BASE, "maru_kv_chunk_token": 256}, block_size=16)
    with pytest.raises(ValueError, match="not emulated"):
        parse({**BASE, "maru_storage_backend": "remote"}, block_size=16)
    with pytest.raises(ValueError, match="embedded_pool_dir is missing"):
        parse({}, block_size=16)


def test_a_quoted_false_is_refused():
    with pytest.raises(ValueError, match="without quotes"):
        parse({**BASE, "maru_async_load": "false"}, block_size=16)


def test_an_unknown_key_gets_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown key 'colour'; use embedded_evict, .* or maru_use_layerwise[.]$"):
        parse({**BASE, "colour": "red"}, block_size=16)


def test_marus_names_become_settings():
    extra = {
        "maru_enable_deferred_loading": True,
        "maru_overlap_load_with_compute": True,
        "maru_use_layerwise": True,
        "maru_overlap_release_after_layers": 4,
        "maru_kv_chunk_tokens": 250,
        "maru_pool_size": "1.5G",
    }
    config = parse({**BASE, **extra}, block_size=16)
    assert config.defaults == RequestSettings("layerwise", "async", True, "index", 4)
    assert config.chunk_tokens == 240, "rounded down to whole blocks, as Maru does"
    assert config.pool_size == 3 << 29
    with pytest.raises(ValueError, match="overlap needs load=async"):
        parse({**BASE, "maru_overlap_load_with_compute": True}, block_size=16)


def test_a_request_overrides_and_refuses():
    base = RequestSettings()
    assert base.override({"placement": "kernel"}).placement == "kernel"
    assert base.override(None) is base
    with pytest.raises(ValueError, match="unknown key 'placment'"):
        base.override({"placment": "kernel"})
    with pytest.raises(ValueError, match="storage_format"):
        base.override({"storage_format": "rowwise"})


def test_how_something_is_loaded_is_no_part_of_its_key():
    timed = RequestSettings().override({"pace_s": 0})
    assert timed.pace_s == 0
    assert timed.in_key == RequestSettings().in_key
    for how in ({"placement": "kernel"}, {"load": "async", "overlap": True}, {"release_after_layers": 2}):
        assert timed.override(how).in_key == timed.in_key
    for what in ({"storage_format": "layerwise"}, {"cell": "another"}, {"fault": "bit_flip"}):
        assert timed.override(what).in_key != timed.in_key
    for wrong in (-1, True, "0", 61):
        with pytest.raises(ValueError, match="use seconds from 0 to 60"):
            timed.override({"pace_s": wrong})


@pytest.mark.parametrize(
    ("text", "size"), [("4M", 4 << 20), ("1GiB", 1 << 30), (7, 7), ("2kb", 2048), ("0.5G", 1 << 29)]
)
def test_sizes(text, size):
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["four", "", True, -1, "1X"])
def test_no_sizes(text):
    with pytest.raises(ValueError, match="is no size"):
        size_bytes(text)


def test_weights_of_one_name_are_told_apart(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"one")
    before = keys.weights(str(tmp_path))
    assert before == keys.weights(str(tmp_path)) != []
    (tmp_path / "model.safetensors").write_bytes(b"another")
    assert keys.weights(str(tmp_path)) != before
    assert keys.weights("some/name-in-a-hub") == []


def test_an_adapters_number_is_no_identity_and_its_weights_are(tmp_path):
    (tmp_path / "adapter.safetensors").write_bytes(b"one")
    of = lambda number: SimpleNamespace(lora_name="a", lora_int_id=number, lora_path=str(tmp_path))  # noqa: E731
    before = keys.lora(of(1))
    assert before == keys.lora(of(2))
    (tmp_path / "adapter.safetensors").write_bytes(b"another")
    assert keys.lora(of(1)) != before


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"embedded_index": "{index-server.address}"}, "give the index's address as host:port"),
        ({"embedded_index": "localhost"}, "give the index's address as host:port"),
        ({"embedded_index": 5555}, "give the index's address as host:port"),
        ({"embedded_index_limit_s": 0}, "use seconds up to 60"),
        ({"embedded_index_limit_s": True}, "use seconds up to 60"),
        ({"embedded_evict": "true"}, "without quotes"),
        ({"maru_async_store": 1}, "without quotes"),
    ],
)
def test_what_an_index_can_t_be(extra, why):
    with pytest.raises(ValueError, match=why):
        parse({**BASE, **extra}, block_size=16)


def test_an_index_of_its_own_unless_it_is_given_one():
    assert parse(BASE, block_size=16).index == ""
    given = parse({**BASE, "embedded_index": "10.0.0.1:5555", "embedded_evict": True}, block_size=16)
    assert (given.index, given.evict, given.async_store) == ("10.0.0.1:5555", True, False)


@pytest.mark.parametrize(("extra", "on_gpu", "beside"), [
    ({}, False, False), ({}, True, True), ({"maru_async_store": False}, True, False),
    ({"maru_enable_write_behind": True}, False, True),
])  # fmt: skip
def test_a_gpu_stores_beside_the_compute_unless_it_is_told_otherwise(extra, on_gpu, beside):
    assert parse({**BASE, **extra}, block_size=16, on_gpu=on_gpu).async_store is beside
