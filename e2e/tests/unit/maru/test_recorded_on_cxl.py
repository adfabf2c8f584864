"""What Maru of July did on an emulated CXL device, for where there is neither. Seen anew by e2e/tests/cxl."""

import json
from pathlib import Path

import pytest

from e2e.tests.cxl.host import DEVICE
from e2e.tests.cxl.maru_there import OBJECTS, unexpected

SEEN = json.loads((Path(__file__).resolve().parents[2] / "recordings" / "maru" / "cxl-july.json").read_text())


def test_every_object_came_back_and_a_dead_server_kept_nothing():
    assert unexpected(SEEN, DEVICE) == []


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"stored": False}, "not every object"),
        ({"right": OBJECTS - 1}, "not every object"),
        ({"device": []}, "no header"),
        ({"scanned": []}, "don't find"),
        ({"reaped": []}, "not taken back"),
    ],
)
def test_what_would_be_seen_else(other, what):
    (found,) = unexpected({**SEEN, **other}, DEVICE)
    assert what in found
