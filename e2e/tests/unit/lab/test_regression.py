from __future__ import annotations

import json

import jsonschema
import pytest
import torch

from e2e.inside.placement.flat_walk import FlatWalk, token_first_view
from e2e.inside.placement.index import Index
from e2e.lab.kernels import bench, defect, regression
from e2e.lab.kernels.caches import FORMS, RANK5, UNEVEN, Geometry
from e2e.lab.kernels.reference import Reference
from e2e.report.schemas import schema

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU, and there is none here")


def test_the_whole_report_on_a_cpu(tmp_path, capsys):
    path = tmp_path / "regression.json"
    assert regression.main(["--device", "cpu", "--cases", "1", "--out", str(path)]) == 0
    result = json.loads(path.read_text())
    jsonschema.validate(result, schema("regression"))
    outcomes = {(r["placement"], r["format"], r["dtype"]): r["outcome"] for r in result["grid"]}
    for form in FORMS:
        assert outcomes["index", form, "bfloat16"] == outcomes["triton", form, "float8_e4m3fn"] == "same"
        assert outcomes["kernel", form, "float32"] == ("refuses" if form in UNEVEN else "same")
    lost = {entry["name"]: entry["why"] for entry in result["implementations"] if not entry["available"]}
    assert set(lost) == {"lmcache/single", "lmcache/multi", "maru_kv_ops/single", "maru_kv_ops/multi"}
    assert capsys.readouterr().out == ""


class Transposed(Index):
    """Wrong in one format only."""

    def scatter(self, staged, layers, slots):
        return super().scatter(staged.flip(1) if layers[0].form == "kv_first" else staged, layers, slots)


class SpillsOver(Index):
    """Right bytes where they belong, and one byte too many."""

    def scatter(self, staged, layers, slots):
        calls = super().scatter(staged, layers, slots)
        layers[-1].logical.view(torch.uint8)[-1, 1, -1, -1, -1] ^= 1
        return calls


class Lazy(Index):
    def scatter(self, staged, layers, slots):
        return len(layers)


class Broken(Index):
    def gather(self, layers, slots, out=None):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")


@pytest.mark.parametrize(
    ("placement", "wrong"), [(Transposed, RANK5[:2]), (SpillsOver, FORMS), (Lazy, FORMS), (Index, ())]
)
def test_the_grid_finds_planted_errors_and_only_those(placement, wrong):
    _, rows = regression.grid({"planted": placement}, device="cpu", seed=5, count=2)
    assert {row["format"] for row in rows if row["outcome"] != "same"} == set(wrong)
    assert {row["outcome"] for row in rows} <= {"same", "mismatch"}


def test_a_failure_is_recorded_and_the_rest_goes_on():
    available, rows = regression.grid({"broken": Broken, "index": Index}, device="cpu", seed=5, count=1)
    assert [entry["available"] for entry in available] == [True, True]
    broken = [row for row in rows if row["placement"] == "broken"]
    assert {row["outcome"] for row in broken} == {"fails"}
    assert broken[0]["why"] == "CUDA error: an illegal memory access was encountered"
    assert {row["outcome"] for row in rows if row["placement"] == "index"} == {"same"}


def test_an_idle_reference_is_noticed(monkeypatch):
    monkeypatch.setattr(Reference, "scatter", lambda *_: 0)
    with pytest.raises(AssertionError, match="wrote 0 bytes instead of"):
        regression.compare(Index(), "packed-LBNHC", regression.cases(0, 1)[0], device="cpu")


def test_cases_are_never_blind_and_hold_what_they_should():
    found = regression.cases(0, 60)
    assert all(case.geometry.block_size != case.geometry.heads for case in found)
    assert all(min(case.slots) == -1 for case in found)
    assert any(list(case.slots) != sorted(case.slots) for case in found)
    spread = [len({s // c.geometry.block_size for s in c.slots if s >= 0}) for c in found]
    assert sum(blocks > 1 for blocks in spread) > 50
    for heads, block_size in ((8, 8), (1, 8), (8, 1)):
        with pytest.raises(ValueError, match="can't show a swap"):
            Geometry(layers=1, blocks=2, block_size=block_size, heads=heads, head_size=8).refuse_if_blind()


def test_with_as_many_heads_as_tokens_the_defect_really_hides():
    case = regression.Case(Geometry(2, 4, 8, 8, 16), (9, 30, 2, -1), "layer-major", 3)
    assert regression.compare(FlatWalk(view=token_first_view), "blocks_first-HND", case, device="cpu") == 0


def test_the_defect_shows_under_hnd_only():
    placements = {"raw": lambda: FlatWalk(view=token_first_view), "physical": FlatWalk}
    for row in defect.table(placements):
        assert bool(row["mismatches"]) == (row["placement"] == "raw" and row["format"].endswith("HND")), row


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_they_say_so(capsys):
    assert bench.main([]) == 2
    assert regression.main(["--device", "cuda"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 2
    assert "CUDA GPU" in said.err


def test_goals_are_judged_by_the_worst_case():
    def row(way, us, share, *, shape="32x8x128", tokens=16384, layout="blocks_first-NHD"):
        return {"outcome": "ok", "shape": shape, "tokens": tokens, "layout": layout, "way": way, "us": us,
                "of_copy": share}  # fmt: skip

    found = [
        row("triton, all layers", 1000, 0.95), row("lmcache single", 1300, 0.73),
        row("triton, all layers", 1100, 0.89, layout="blocks_first-HND"),
        row("triton, all layers", 30, 0.1, tokens=256), row("lmcache single", 270, 0.01, tokens=256),
        {"outcome": "fails", "shape": "32x8x128", "tokens": 16384, "layout": "x", "way": "lmcache multi", "why": "no"},
    ]  # fmt: skip
    assert [goal["met"] for goal in bench.goals(found)] == [False, True, True]
    assert [goal["met"] for goal in bench.goals([])] == [None, None, None]


@pytest.mark.gpu
@NO_GPU
def test_the_whole_report_on_a_gpu(tmp_path):
    assert regression.main(["--device", "cuda", "--out", str(tmp_path / "placement.json")]) == 0


@pytest.mark.gpu
@NO_GPU
def test_the_benchmark_runs(tmp_path):
    path = tmp_path / "bench.json"
    assert bench.main(["--quick", "--out", str(path)]) == 0
    result = json.loads(path.read_text())
    jsonschema.validate(result, schema("bench"))
    rows = result["rows"]
    assert {row["outcome"] for row in rows if row["way"].startswith(("index", "triton"))} == {"ok"}
