"""Adapters and other weights are made of a model's folder once, the same ones for a seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from e2e.base.errors import SettingsError
from e2e.inside.made import PROJECTIONS, RANK
from e2e.stack.identities import adapter, other_weights

SHAPES = {f"model.layers.0.self_attn.{name}.weight": (12, 8) for name in PROJECTIONS} | {"model.norm.weight": (8,)}


@pytest.fixture
def model(tmp_path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    tensors = {name: torch.randn(shape).to(torch.bfloat16) for name, shape in SHAPES.items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return folder


def test_an_adapter_strikes_every_attention_projection_and_seeds_differ(model, tmp_path):
    one, two = (Path(adapter(str(model), seed, cache_dir=tmp_path / "made")) for seed in (1, 2))
    assert adapter(str(model), 1, cache_dir=tmp_path / "made") == str(one)
    config = json.loads((one / "adapter_config.json").read_text())
    assert (config["r"], config["target_modules"]) == (RANK, list(PROJECTIONS))
    found, other = (load_file(folder / "adapter_model.safetensors") for folder in (one, two))
    assert found.keys() == {
        f"base_model.model.model.layers.0.self_attn.{name}.lora_{half}.weight" for name in PROJECTIONS for half in "AB"
    }
    assert all(not torch.equal(found[name], other[name]) for name in found)
    assert {tuple(found[name].shape) for name in found} == {(RANK, 8), (12, RANK)}


def test_other_weights_have_the_shape_of_the_model_and_other_matrices(model, tmp_path):
    made = Path(other_weights(str(model), 1, cache_dir=tmp_path / "made"))
    before, after = (load_file(folder / "model.safetensors") for folder in (model, made))
    assert {name: (t.shape, t.dtype) for name, t in before.items()} == {n: (t.shape, t.dtype) for n, t in after.items()}
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {"model.norm.weight"}
    assert (made / "config.json").read_text() == "{}"


@pytest.mark.parametrize(("given", "says"), [("org/name", "is none; give --model one"), (".", "can't be made")])
def test_what_none_can_be_made_of_is_one_sentence(tmp_path, given, says, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(SettingsError, match=says) as caught:
        adapter(given, 1, cache_dir=tmp_path / "made")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "made").glob("*")) if (tmp_path / "made").exists() else True
