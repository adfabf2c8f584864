"""Real signals to a real process that records: what it saw is judged, however impatient the sender is."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def script(corrupt: bool, stop_s: float) -> str:
    judge = Path(__file__).parent.parent / "judge"
    return f"""
import sys, time
sys.path.insert(0, {str(judge)!r})
from synthetic_recording import Recording
from e2e import cli, run as rooms
from e2e.recording.journal import Journal
from e2e.standing import judged_on_the_way_out

def run(settings):
    made = Recording()
    if {corrupt}:
        made.change("request.done", lambda data: data["logprobs"].__setitem__(1, -9.0), arm="external")
    with (
        Journal(settings.recording) as journal,
        judged_on_the_way_out(journal.record, lambda: rooms.report(settings.out, strict=False)),
    ):
        for kind, data in made.events:
            if kind != "run.end":
                journal.record(kind, **data)
        try:
            print("recorded", flush=True)
            time.sleep(60)
        finally:
            print("stopping engines", flush=True)
            time.sleep({stop_s})

rooms.run = run
sys.argv = ["maru-e2e", "run", "--device", "cpu", "--out", "o"]
cli.main()
"""


@pytest.mark.parametrize(
    ("corrupt", "signals", "code"),
    [
        (False, [signal.SIGINT], 130),
        (False, [signal.SIGTERM], 143),
        (True, [signal.SIGINT], 1),
        (True, [signal.SIGTERM], 1),
        (True, [signal.SIGHUP], 1),
        # as GitHub cancels a job: the second one comes while engines are being stopped
        (True, [signal.SIGINT, signal.SIGTERM], 1),
        (False, [signal.SIGINT, signal.SIGTERM], 143),
    ],
)
def test_a_stopped_run_leaves_its_reports_and_its_verdict(tmp_path, corrupt, signals, code):
    command = [sys.executable, "-c", script(corrupt, 0 if len(signals) == 1 else 60)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path, "env": os.environ}
    with subprocess.Popen(command, **pipes) as rig:
        try:
            for said, number in zip(("recorded", "stopping engines"), signals, strict=False):
                assert rig.stdout.readline() == f"{said}\n"
                rig.send_signal(number)
            out, err = rig.communicate(timeout=50)
        finally:
            rig.kill()
    assert rig.returncode == code, err
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "maru-e2e: stopped by a signal; maru-e2e run --resume --out o continues it."
    report = json.loads((tmp_path / "o" / "report.json").read_text())
    assert [cell["verdict"] for cell in report["cells"]] == ["corrupt" if corrupt else "pass"]
    assert "did not end" in (tmp_path / "o" / "report.md").read_text().splitlines()[0]
    assert "did not end" in out
