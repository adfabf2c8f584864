"""scripts/nightly itself, in a clone whose rig is a stand-in: order, exit codes, what is kept, one night at a time."""

import fcntl
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
RIG = r"""#!/usr/bin/env bash
echo "$@" >>"$CALLS"
[[ "${2:-}" == --help ]] && exit 0
if [[ "$1" == night ]]; then
    cp "$2/steps.tsv" "$CALLS.steps"; echo "# summary" >"$2/summary.md"; echo {} >"$2/night.json"
    exit "${NIGHT_CODE:-0}"
fi
[[ "$1" == faults ]] && exit "${FAULTS_CODE:-0}"
[[ "$1" == run && -n "${RUN_WAITS:-}" ]] && exec sleep 60
exit 0
"""


@pytest.fixture
def clone(tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "nightly", tmp_path / "scripts")
    for path, text in ((".venv/bin/maru-e2e", RIG), ("scripts/setup", "#!/bin/sh\n")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    return tmp_path


def run(clone, *words, **env):
    environ = {**os.environ, "CALLS": str(clone / "calls"), "CONNECTORS": "embedded example.toml", **env}
    return subprocess.run(
        [clone / "scripts" / "nightly", *words], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_self_test_first_then_every_grid_then_the_gates_code(clone):
    done = run(clone, "--max-tokens", "4", NIGHT_CODE="3", FAULTS_CODE="1", GITHUB_STEP_SUMMARY=str(clone / "summary"))
    assert done.returncode == 3
    rows = [line.split("\t") for line in (clone / "calls.steps").read_text().splitlines()]
    names = [row[0] for row in rows if row[0] not in ("placement", "gain")]
    assert names == ["setup", "doctor", "selftest", "selftest-clean", "grid-embedded-default", "grid-example-default"]
    assert {row[0]: row[1] for row in rows}["selftest"] == "1"
    command = {row[0]: row[3] for row in rows}
    assert "--connector example.toml --grid default --scenario nightly --out" in command["grid-example-default"]
    assert command["grid-example-default"].endswith("--max-tokens 4")
    assert command["selftest"].count(" --cell ") == 3
    assert " --fault none --rounds 5 --scenario nightly --cell " in command["selftest-clean"]
    assert (clone / "summary").read_text() == "# summary\n"


def test_the_self_test_may_run_side_by_side_and_the_grids_are_timed(clone):
    run(clone, SIDE_BY_SIDE="4")
    calls = (clone / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls if "--side-by-side 4" in call] == ["faults", "faults"]


def test_scenarios_are_those_that_the_variable_names(clone):
    run(clone, NIGHT_CODE="0", CONNECTORS="embedded", SCENARIOS="replay quick")
    rows = [line.split("\t") for line in (clone / "calls.steps").read_text().splitlines()]
    (grid,) = [row[3] for row in rows if row[0].startswith("grid-")]
    assert " --scenario replay --scenario quick --out" in grid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_step_and_closes_the_night(clone, number):
    environ = {**os.environ, "CALLS": str(clone / "calls"), "RUN_WAITS": "1", "NIGHT_CODE": "3"}
    night = subprocess.Popen([clone / "scripts" / "nightly"], env=environ, stderr=subprocess.PIPE, text=True)
    calls = clone / "calls"
    while not (calls.exists() and "\nrun " in calls.read_text()) and night.poll() is None:
        time.sleep(0.05)
    night.send_signal(number)
    night.communicate(timeout=60)
    assert night.returncode == 3
    steps = [line.split("\t")[:2] for line in (clone / "calls.steps").read_text().splitlines()]
    assert steps[-1][0] == "grid-embedded-default"
    assert steps[-1][1] != "0"
    with (clone / "nights" / ".lock").open() as lock:  # nobody who was started holds it
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_old_nights_go_and_strangers_folders_stay(clone):
    for name in ("20200101T000000Z", "20200102T000000Z", "20200103T000000Z", "mine"):
        (clone / "nights" / name / "grid").mkdir(parents=True)
        for file in ("night.json", "summary.html", "steps.tsv", "grid/night.json"):
            (clone / "nights" / name / file).write_text("{}")
    (clone / "nights" / "20190101T000000Z").mkdir()
    assert run(clone, KEEP="2", KEEP_FIGURES="3").returncode == 0
    left = sorted(path.name for path in (clone / "nights").iterdir() if path.is_dir())
    assert "20200101T000000Z" not in left
    assert {"20190101T000000Z", "20200102T000000Z", "20200103T000000Z", "mine"} <= set(left)
    # what an older one said stays for the trends, its recordings and logs go
    assert sorted(path.name for path in (clone / "nights" / "20200102T000000Z").iterdir()) == [
        "night.json", "summary.html",
    ]  # fmt: skip
    for name in ("20200103T000000Z", "mine"):
        assert (clone / "nights" / name / "grid" / "night.json").exists()
    assert (clone / "calls").read_text().splitlines()[-1] == "index nights"


def test_one_night_at_a_time(clone):
    (clone / "nights").mkdir()
    with (clone / "nights" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run(clone)
    assert done.returncode == 2
    assert "another night is going on" in done.stderr


def test_a_step_that_hangs_is_ended(clone):
    (clone / "scripts" / "setup").write_text("#!/bin/sh\nexec sleep 30\n")
    done = run(clone, STEP_LIMIT_S="1")
    assert done.returncode == 0
    assert (clone / "calls.steps").read_text().startswith("setup\t124\t")


@pytest.mark.parametrize("requirement", ["", "maru", "maru==0.2.0", "Maru >= 1"])
def test_foreign_package_of_the_same_name_is_never_installed(requirement):
    done = subprocess.run(
        [ROOT / "scripts" / "maru"], env={**os.environ, "MARU_REQUIREMENT": requirement}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("maru: ")
    assert "wheel" in done.stderr
