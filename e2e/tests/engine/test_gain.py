"""The gain gate on a real engine: it measures what it says. (Figures from a CPU say nothing about a GPU.)"""

from __future__ import annotations

import json

import pytest

from e2e.base.errors import EXIT_INCONCLUSIVE, EXIT_PASS

pytestmark = [pytest.mark.engine, pytest.mark.long]

CELLS = ("HND-chunkwise-overlap_on-index", "HND-chunkwise-overlap_on-kernel")
REPEATS = 6


@pytest.fixture(scope="module")
def ran(rig, tmp_path_factory):
    words = ["--axis", "placement", "index", "kernel", "--cell", "layout=HND,storage_format=chunkwise,overlap=on"]
    words += ["--lengths", "513", "--concurrency", "2", "--repeats", str(REPEATS), "--looks", "1"]
    return rig(*words, out=tmp_path_factory.mktemp("gain"), command="gain", limit_s=600)


def test_every_pair_was_served_as_predicted_and_judged(ran):
    told = json.loads((ran.out / "gain.json").read_text())
    assert ran.code == told["exit_code"], ran.said
    assert ran.code in (EXIT_PASS, EXIT_INCONCLUSIVE), "what can be told is up to the machine's noise"
    assert {cell["id"]: cell["verdict"] for cell in told["cells"]} == dict.fromkeys(CELLS, "pass")
    whole = next(answer for answer in told["answers"] if answer["length"] is None)
    assert (whole["client"]["pairs"], whole["noise"]["pairs"], whole["left_out"]) == (REPEATS, REPEATS, 0)
    assert whole["sentence"] in " ".join(ran.said.split()), "lines are as long as the terminal"
    assert "embedded double" in ran.said
    assert "nothing here says anything about a GPU" in ran.said


def test_each_sample_came_from_the_connector_alone(ran):
    samples = ran.events("gain.sample")
    assert {each["side"] for each in samples} == {"a", "b", "a2"}
    assert [(each["local"], each["external"]) for each in samples] == [(0, 2 * 512)] * (3 * REPEATS)


def test_timed_loads_are_not_paced_and_their_overlap_is_told(ran):
    told = {each["cell"]: each for each in ran.events("gain.overlap")}
    assert {cell: each["loads"] for cell, each in told.items()} == dict(
        zip(CELLS, (2 * 2 * REPEATS, 2 * REPEATS), strict=True)
    )
    paced = [load for each in ran.events("connector.evidence") for load in each["loads"] if load["overlap"]]
    waited = {load["cell"] for load in paced if load["blocking_waits"]}
    assert waited == set(CELLS), "the proof before was made with overlap that really happened"


def test_what_a_load_and_a_copy_took_is_told(ran):
    (copy,) = ran.events("gain.copy")
    assert copy["bytes"] / copy["seconds"] > 0
    told = {each["cell"]: each for each in ran.events("gain.timings")}
    assert {cell: each["loads"] for cell, each in told.items()} == dict(
        zip(CELLS, (2 * 2 * REPEATS, 2 * REPEATS), strict=True)
    )
    assert all(each["read_s"] > 0 and each["place_s"] > 0 for each in told.values())


def test_operations_were_counted_on_both_sides(ran):
    counts = {each["side"]: each["counts"] for each in ran.events("gain.launches")}
    assert counts.keys() == {"a", "b"}
    for side in counts.values():
        assert side["device"] == "cpu"
        assert sum(side["placement"]["launches"].values()) > 0
