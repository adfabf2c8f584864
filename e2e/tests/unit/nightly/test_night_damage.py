"""Any one value of what a grid or an earlier night left, replaced: the file is named, or the night closes."""

from __future__ import annotations

import copy
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.base.errors import UsageError
from e2e.judge import judge
from e2e.recording.journal import read
from e2e.report.facts import facts
from e2e.report.nightly_files import close_night
from e2e.report.report_json import report

H200 = Path(__file__).resolve().parents[2] / "recordings" / "h200"
EVENTS = [event for event in read(H200 / "defect.jsonl.gz") if not str(event.data.get("cell")).endswith("omitted")]
REPORT = json.loads(json.dumps(report(facts(EVENTS), judge(EVENTS))))
STEPS = "selftest\t0\t1\tcmd\ngrid-x\t0\t1\tcmd\n"
junk = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, -1, 10**400, 1e308, "", "x", "corrupt", "\x1b<b>"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "engine"]), inner, max_size=2),
    max_leaves=4,
)


def places(value, at=()):
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*at, key)
        yield from places(item, (*at, key))


def replaced(value, place, fresh):
    whole = copy.deepcopy(value)
    inner = whole
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = fresh
    return whole


def night(root: Path, name: str, document) -> Path:
    grid = root / name / "grid-x"
    grid.mkdir(parents=True, exist_ok=True)
    (grid / "report.json").write_text(json.dumps(document))
    (root / name / "steps.tsv").write_text(STEPS)
    return root / name


def test_the_night_that_is_spoiled_is_a_good_one(tmp_path):
    assert close_night(night(tmp_path, "1", REPORT))[0] == 0


def closed(folder: Path, *, blames: str) -> int | None:
    """Its code, or None where the file that was spoiled is named."""
    try:
        code, summary = close_night(folder)
    except UsageError as error:
        if blames in str(error):
            return None
        raise
    assert summary
    json.loads((folder / "night.json").read_text())
    return code


@settings(max_examples=150, derandomize=True)
@given(place=st.sampled_from(sorted(places(REPORT), key=str)), fresh=junk)
def test_any_value_of_a_report(tmp_path_factory, place, fresh):
    root = tmp_path_factory.mktemp("nights")
    spoiled = night(root, "1", replaced(REPORT, place, fresh))
    assert closed(spoiled, blames="grid-x/report.json") in (None, 0, 1, 3, 4)


@settings(max_examples=100, derandomize=True)
@given(data=st.data())
def test_any_value_of_an_earlier_night(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("nights")
    close_night(night(root, "1", REPORT))
    path = root / "1" / "night.json"
    whole = json.loads(path.read_text())
    place, fresh = data.draw(st.sampled_from(sorted(places(whole), key=str))), data.draw(junk)
    path.write_text(json.dumps(replaced(whole, place, fresh)))
    assert closed(night(root, "2", REPORT), blames="1/night.json") in (None, 0, 3)
