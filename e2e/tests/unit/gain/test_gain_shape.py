"""gain.json is what its schema says."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import jsonschema
import pytest
from test_timeline import recorded

from e2e.judge.gain import judge_gain
from e2e.judge.timeline import timelines
from e2e.recording.journal import read
from e2e.report import gain, timeline
from e2e.report.report_json import plain
from e2e.report.schemas import schema

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"


@pytest.mark.parametrize("name", ["golden/gain", "golden/gain-looks", "h200/gain-hnd"])
def test_what_is_said_of_real_comparisons_is_of_the_schema(name):
    events = read(RECORDINGS / f"{name}.jsonl.gz")
    found = plain(gain.as_json(judge_gain(events), events))
    jsonschema.validate(found, schema("gain"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found | {"more": 1}, schema("gain"))


def test_a_timeline_is_of_the_schema_too():
    (each,) = timelines(recorded())
    of_one = {"$ref": "#/$defs/ToldTimeline", "$defs": schema("gain")["$defs"]}
    jsonschema.validate(plain(timeline.as_json(each)), of_one)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain(asdict(each)), of_one)  # with its intervals
