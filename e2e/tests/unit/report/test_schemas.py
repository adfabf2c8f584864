"""Every file for programs is what its schema says, and its schema says what each field is."""

from __future__ import annotations

import gzip
import io
import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from e2e.judge import judge
from e2e.recording.journal import read
from e2e.report import console, scoreboard
from e2e.report.nightly_files import close_night
from e2e.report.schemas import SHAPES, WORDS, schema

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"
GOLDEN = RECORDINGS / "golden"


def assert_of_its_schema(path: Path) -> dict:
    """And no other key could stand there."""
    found, of = json.loads(path.read_text(encoding="utf-8")), schema(path.stem)
    jsonschema.validate(found, of)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found | {"more": 1}, of)
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_every_field_is_described(name):
    for kind, shape in schema(name)["$defs"].items():
        assert {key: field.get("description") for key, field in shape["properties"].items()} == WORDS[kind], kind
        assert all(WORDS[kind].values()), kind


def test_no_words_are_left_over():
    assert WORDS.keys() == {kind for name in SHAPES for kind in schema(name)["$defs"]}


@pytest.mark.parametrize("name", SHAPES)
def test_the_shipped_schema_is_the_one_of_the_types(name):
    shipped = files("e2e.report").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    assert json.loads(shipped) == json.loads(json.dumps(schema(name))), "python -m e2e.report.schemas"


def test_none_is_shipped_that_no_type_makes():
    shipped = {path.name for path in files("e2e.report").iterdir() if path.name.endswith(".json")}
    assert shipped == {f"{name}.schema.json" for name in SHAPES}


@pytest.mark.parametrize("name", ["golden/faults-kernel", "golden/interrupted", "h200/defect"])
def test_scoreboards_of_real_runs(name, tmp_path: Path):
    board = scoreboard.scoreboard(judge(read(RECORDINGS / f"{name}.jsonl.gz")))
    code = scoreboard.show(board, on=console.console(io.StringIO()), directory=tmp_path, recordings=["one", "two"])
    found = assert_of_its_schema(tmp_path / "scoreboard.json")
    assert (len(found["rows"]), found["clean_cells"]) == (len(board.rows), board.alone.clean_cells)
    assert code == board.exit_code


def test_a_night_of_real_steps(tmp_path: Path):
    """Two grids, one of which was stopped, and a comparison."""
    said = {name: json.loads(gzip.decompress((GOLDEN / f"{name}.said.json.gz").read_bytes()))
            for name in ("grid", "interrupted", "gain")}  # fmt: skip
    folder = tmp_path / "20260101T020000Z"
    for step, of, names in (
        ("grid-embedded-default", "grid", ("report.json", "junit.xml")),
        ("grid-embedded-wide", "interrupted", ("report.json", "junit.xml")), ("gain", "gain", ("gain.json",)),
    ):  # fmt: skip
        (folder / step).mkdir(parents=True)
        for name in names:
            (folder / step / name).write_text(said[of][name], encoding="utf-8")
    steps = {"selftest": 0, "grid-embedded-default": 0, "grid-embedded-wide": 130, "grid-maru-default": 4, "gain": 3}
    (folder / "steps.tsv").write_text("".join(f"{name}\t{code}\t12.5\tcmd\n" for name, code in steps.items()))
    code, _ = close_night(folder)
    found = assert_of_its_schema(folder / "night.json")
    assert found["code"] == code
    assert found["cells"]
    assert found["gain"]
    assert found["gaps"]


@pytest.mark.parametrize("name", ["eviction", "identity", "long_prompt", "preemption", "struck", "turns"])
def test_programs_of_real_cells(name):
    with gzip.open(RECORDINGS / "scenarios" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        programs = [json.loads(line)["data"]["program"] for line in lines if '"kind": "plan.cell"' in line]
    assert programs
    for program in programs:
        jsonschema.validate(program, schema("program"))
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**program, "steps": [{"do": "dance"}]}, schema("program"))


def test_the_benchmark_of_a_gpu():
    of = json.loads(gzip.decompress((RECORDINGS / "h200" / "bench.json.gz").read_bytes()))
    del of["tiles"]  # of that day alone: how large a tile was best
    jsonschema.validate(of, schema("bench"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**of, "rows": [of["rows"][0] | {"outcome": "good"}]}, schema("bench"))
