"""docker/canary and docs/canary.md speak of metrics that there are; promtool runs the tests of the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.canary.exported import Exported

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "docker" / "canary"
NAME = re.compile(r"maru_canary_[a-z_]+")


def exported() -> set[str]:
    """Names of all samples that there can be."""
    names = set()
    for family in Exported([]).registry.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum", ""]}.get(family.type, [""])
        names |= {family.name + suffix for suffix in suffixes}
    return names


def named(text: str) -> set[str]:
    return {*NAME.findall(text)}


@pytest.mark.parametrize("path", [FOLDER / "alerts.yml", FOLDER / "alerts_test.yml", FOLDER / "dashboard.json"])
def test_only_metrics_that_there_are_are_asked_for(path):
    asked = named(path.read_text())
    assert asked
    assert not asked - exported()


def test_the_page_has_all_metrics_and_all_alerts():
    page = (ROOT / "docs" / "canary.md").read_text()
    told = named(page)
    assert not told - exported()
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported()}
    assert not families - told
    alerts = {*re.findall(r"alert: (\w+)", (FOLDER / "alerts.yml").read_text())}
    assert alerts == {*re.findall(r"alertname: (\w+)", (FOLDER / "alerts_test.yml").read_text())}
    assert {*re.findall(r"MaruCanary\w+", page)} <= alerts


def test_the_dashboard_has_no_panel_twice():
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    assert all(target["expr"] for panel in panels for target in panel["targets"])


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not there: Debian's package prometheus has it"
)
def test_the_rules_pass_their_own_tests():
    words = ["promtool", "test", "rules", "alerts_test.yml"]
    done = subprocess.run(words, cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
