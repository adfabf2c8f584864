"""gain.json is what its schema says, and its schema says what each field is."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from test_timeline import recorded

from e2e.judge.gain import judge_gain
from e2e.judge.timeline import timelines
from e2e.recording.journal import read
from e2e.report import gain, timeline
from e2e.report.described import WORDS
from e2e.report.gain_shape import GAIN_WORDS, schema
from e2e.report.report_json import plain

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"


def test_every_field_is_described():
    words, shapes = {**WORDS, **GAIN_WORDS}, schema()["$defs"]
    assert GAIN_WORDS.keys() <= shapes.keys() <= words.keys()
    for name, shape in shapes.items():
        assert {key: field["description"] for key, field in shape["properties"].items()} == words[name]


def test_the_shipped_schema_is_the_one_of_the_types():
    shipped = files("e2e.report").joinpath("gain.schema.json").read_text(encoding="utf-8")
    assert json.loads(shipped) == json.loads(json.dumps(schema())), (
        "python -m e2e.report.gain_shape > e2e/report/gain.schema.json"
    )


@pytest.mark.parametrize("name", ["golden/gain", "golden/gain-looks", "h200/gain-hnd"])
def test_what_is_said_of_real_comparisons_is_of_the_schema(name):
    events = read(RECORDINGS / f"{name}.jsonl.gz")
    found = plain(gain.as_json(judge_gain(events), events))
    jsonschema.validate(found, schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found | {"more": 1}, schema())


def test_a_timeline_is_of_the_schema_too():
    (each,) = timelines(recorded())
    of_one = {"$ref": "#/$defs/ToldTimeline", "$defs": schema()["$defs"]}
    jsonschema.validate(plain(timeline.as_json(each)), of_one)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain(asdict(each)), of_one)  # with its intervals
