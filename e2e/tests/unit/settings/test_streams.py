"""Whatever becomes of the printing, the exit code is that of the judgement, and the reports are written."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_recording import Recording

from e2e.recording.journal import Journal

GAIN = Path(__file__).resolve().parents[2] / "recordings" / "h200" / "gain-nhd.jsonl.gz"
RIG = shlex.join([sys.executable, "-m", "e2e"])
#: A reader that goes away at once or after a line, a full disk, no stream at all; {} is the command.
BROKEN = (
    "{} | head -1", "{} | true", "{} >/dev/full", "{} >/dev/full 2>&1", "{} >&-", "{} >&- 2>&-", "{} <&- >&- 2>&-",
)  # fmt: skip


def shell(line, **environ):
    """The exit code of the first command of a pipe, and what was printed."""
    words = ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"]
    return subprocess.run(
        words, capture_output=True, timeout=120, check=False, env={**os.environ, **environ, "COLUMNS": "80"}
    )


@pytest.fixture(params=[(False, 0), (True, 1)], ids=["pass", "corrupt"])
def judged(request, tmp_path):
    """(folder with a recording in it, the exit code of its verdict)."""
    corrupt, code = request.param
    made = Recording()
    if corrupt:
        made.change("request.done", lambda data: data["logprobs"].__setitem__(1, -9.0), arm="external")
    folder = tmp_path / "한국어"
    with Journal(folder / "recording.jsonl") as journal:
        for kind, data in made.events:
            journal.record(kind, **data)
    return folder, code


@pytest.mark.parametrize("line", BROKEN)
def test_a_verdict_stands_when_only_its_printing_fails(judged, line):
    folder, code = judged
    done = shell(line.format(f"{RIG} judge {shlex.quote(str(folder))}"))
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert {"report.md", "report.json", "junit.xml"} <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_without_utf8_shows_what_it_can(judged, encoding):
    folder, code = judged
    done = shell(f"{RIG} judge {shlex.quote(str(folder))}", PYTHONIOENCODING=encoding)
    assert done.returncode == code, done.stderr
    shown = "한국어" if encoding == "utf-8" else r"\ud55c\uad6d\uc5b4"
    assert f"{shown}/report.md" in done.stdout.decode(encoding)


@pytest.mark.parametrize("line", ["{} 2>/dev/full", "{} >&- 2>&-"])
def test_a_usage_error_stays_one(tmp_path, line):
    assert shell(line.format(f"{RIG} judge {tmp_path}/한국어")).returncode == 2


@pytest.mark.parametrize(
    "words",
    ["--help", "run --help", "--version", "cells --device cpu", "completion bash", "doctor", "gain --judge {gain}"],
)
def test_no_command_fails_for_want_of_a_reader(words, tmp_path):
    shutil.copy(GAIN, tmp_path / "recording.jsonl.gz")
    words = words.format(gain=tmp_path)
    code = shell(f"{RIG} {words}").returncode if words.startswith(("doctor", "gain")) else 0
    for line in ("{} | true", "{} >&-"):
        done = shell(line.format(f"{RIG} {words}"))
        assert done.returncode == code, (line, done.stderr)


def test_the_words_of_a_child_need_no_reader(tmp_path):
    assert shell(f"{RIG} placement --device cpu --out {tmp_path} | true", OMP_NUM_THREADS="1").returncode == 0
    assert (tmp_path / "regression.json").is_file()


def test_a_closed_output_is_never_the_recordings(tmp_path):
    """The first file that a process opens gets the lowest number that is free: without standard output, 1."""
    asks = (
        "import os, sys; from e2e.streams import forgive; forgive(); "
        f"file = open({str(tmp_path / 'recording')!r}, 'w'); assert file.fileno() > 2; "
        "print('words'); os.write(1, b'of an engine'); os.write(2, b'of an engine')"
    )
    done = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(asks)} >&- 2>&- <&-")
    assert done.returncode == 0
    assert (tmp_path / "recording").read_text() == ""


def test_words_are_whole_and_in_order_until_the_reader_goes(tmp_path):
    done = shell(f"{RIG} cells --device cpu | cat")
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert lines[0].split() == ["CELL", "ENGINE", "KEY"]
    assert "cells: 16" in lines
    assert len(lines) == len({*lines} - {""}) + lines.count("")
