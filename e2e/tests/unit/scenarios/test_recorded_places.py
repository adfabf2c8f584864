"""Faults that right themselves where they were made, on real engines: the rerun passes though they fired, and only a
story of several engines or identities shows them, by a named check."""

from __future__ import annotations

import pytest
from recorded import recording
from test_recorded_faults import judged

from e2e.base.verdict import Reason, Verdict
from e2e.recording.journal import read
from e2e.report.facts import facts

#: (scenario, fault) -> its verdict, checks that see it
CAUGHT = {
    ("restart", "region_not_kept"): (Verdict.CORRUPT, {Reason.DIGEST_DIFFERS, Reason.TOKENS_DIFFER}),
    ("second", "layout_not_in_key"): (Verdict.CORRUPT, {Reason.DIGEST_DIFFERS}),
    ("cross", "heads_permuted_both_ways"): (Verdict.CORRUPT, {Reason.DIGEST_DIFFERS, Reason.TOKENS_DIFFER}),
    **{
        ("identity", f"{what}_not_in_key"): (
            Verdict.CORRUPT,
            {Reason.TOKENS_DIFFER, Reason.DIGEST_DIFFERS, Reason.NOT_ISOLATED},
        )
        for what in ("lora", "weights", "dtype")
    },
    # whoever has another salt computes the same bytes
    ("identity", "salt_not_in_key"): (Verdict.INCONCLUSIVE, {Reason.NOT_ISOLATED}),
}


@pytest.mark.parametrize(("scenario", "fault"), CAUGHT)
def test_the_story_shows_it(scenario, fault):
    cell, (verdict, checks) = judged(f"{scenario}-{fault}"), CAUGHT[scenario, fault]
    assert (cell.verdict, cell.fault) == (verdict, fault)
    assert checks <= {finding.reason for finding in cell.findings}
    assert not {Reason.FAULT_NOT_FIRED, Reason.SCENARIO_DID_NOT_HAPPEN, Reason.ENGINE_CRASHED} & {
        finding.reason for finding in cell.findings
    }


#: The rerun asks another salt, too.
@pytest.mark.parametrize("fault", [fault for _, fault in CAUGHT if fault != "salt_not_in_key"])
def test_the_rerun_passes_though_it_fired(fault):
    cell = judged(f"replay-{fault}")
    assert (cell.verdict, cell.findings, cell.fault) == (Verdict.PASS, (), fault)
    fired = [event for event in read(recording(f"replay-{fault}")) if event.kind == "fault.fired"]
    assert sum(event["count"] for event in fired) > 0


@pytest.mark.parametrize("scenario", ["restart", "second", "cross", "identity"])
def test_the_clean_twin_passes(scenario):
    cell = judged(scenario)
    assert (cell.verdict, cell.findings, cell.first_generation) == (Verdict.PASS, (), "identical")


def test_what_was_asked_under_another_setting_is_said():
    told = {line.split()[1]: line.partition(": ")[2] for line in facts(read(recording("cross"))).served}
    assert {axis for axis, what in told.items() if what.startswith("served")} == {"layout", "placement"}
    assert {axis for axis, what in told.items() if what.startswith("a clean miss")} == {
        "storage_format", "dtype", "block_size", "chunk_tokens",
    }  # fmt: skip
