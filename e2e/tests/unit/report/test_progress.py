"""What is said while a run goes on."""

import io
import time

import pytest
from synthetic_recording import Recording

from e2e.judge.cells import judge
from e2e.report.progress import Pace, Progress, about, said_if_slow

LONG = "HND-chunkwise-overlap_on-kernel-release_after_layers_4-chunk_tokens_256-fault_equal_length_prompt"


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock():
    return Clock()


def replayed(progress, clock, cell, took_s):
    with progress.step("cell", f"replaying {cell.id}"):
        clock.now_s += took_s
    progress.judged(cell)


def test_without_a_terminal_one_line_a_cell(clock, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as CI sets it; colours may come, a moving line may not
    monkeypatch.setenv("NO_COLOR", "1")
    (cell,) = judge(Recording().build()).cells
    stream = io.StringIO()
    with Progress(stream, {"start": 2, "baseline": 1, "cell": 16}, clock=clock) as progress:
        with progress.step("start", "starting baseline engine HND"):
            clock.now_s += 20
        with progress.step("baseline", "replaying on the baseline engine HND"):
            clock.now_s += 10
        with progress.step("start", "starting connector engine HND"):
            clock.now_s += 22
        replayed(progress, clock, cell, 20)
        replayed(progress, clock, cell, 10)
    assert stream.getvalue().splitlines() == [
        "[0/16] 00:00 starting baseline engine HND",
        "[0/16] 00:20 replaying on the baseline engine HND",
        "[0/16] 00:30 starting connector engine HND",
        f"[1/16] 01:12 pass {cell.id} 5 min left",
        f"[2/16] 01:22 pass {cell.id} 4 min left",
    ]


def test_ids_are_whole_on_a_narrow_terminal(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    for stream in (Terminal(), io.StringIO()):
        with Progress(stream, {"cell": 2}, clock=clock) as progress:
            progress.counted("corrupt: logprobs differ", LONG, style="red")
        assert LONG in stream.getvalue()


def test_a_terminal_shows_what_goes_on(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    (cell,) = judge(Recording().build()).cells
    stream = Terminal()
    with Progress(stream, {"cell": 4}, clock=clock) as progress:
        replayed(progress, clock, cell, 130)
        with progress.step("cell", f"replaying {LONG[:68]}"):
            progress._bar.refresh()
    shown = stream.getvalue()
    assert "1 of 4" in shown
    assert "6 min left" in shown
    assert f"replaying {LONG[:68]}" in shown, "an id of that length is whole at 80 columns"


def test_a_planted_fault_is_caught_or_missed(clock):
    for planned, said in (({}, "pass"), ({"fault": "bit_flip"}, "missed")):
        (cell,) = judge(Recording(**planned).drop("run.end").build()).cells
        if planned:
            cell = next(c for c in judge(fired(planned)).cells)
        stream = io.StringIO()
        Progress(stream, {"cell": 1}, clock=clock).judged(cell)
        assert f"[1/1] 00:00 {said}" in stream.getvalue()


def fired(planned):
    made = Recording(**planned)
    place = {"engine": made.connector, "cell": made.plan["cell"]}
    for arm in ("external", "external_again"):
        made.add("fault.fired", **place, arm=arm, fault="bit_flip", count=1)
    return made.build()


def test_nothing_hostile_reaches_the_terminal(clock):
    hostile = "bad\x1b[2J\x07\x9b31m\u202egnp.\nsecond [red]line[/red]"
    stream = io.StringIO()
    progress = Progress(stream, {"cell": 1}, clock=clock)
    progress.say(hostile)
    progress.counted("error", hostile)
    shown = stream.getvalue()
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert shown.count("\n") == 2
    assert "[red]line[/red]" in shown


def test_time_left_needs_one_of_each_kind_and_follows_what_is_left():
    pace = Pace({"start": 2, "cell": 3})
    assert pace.left_s() is None
    pace.done("start", 20.0)
    assert pace.left_s() is None
    pace.done("cell", 10.0)
    assert pace.left_s() == 20 + 2 * 10
    pace.steps = {"cell": 1}
    assert pace.left_s() == 10
    pace.done("cell", 20.0)
    assert pace.left_s() == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "10 s"), (52, "50 s"), (99, "100 s"), (239, "4 min"), (4199, "1 h 10 min")]
)
def test_a_time_is_told_as_roughly_as_it_is_known(seconds, text):
    assert about(seconds) == text


@pytest.mark.parametrize(("takes_s", "said"), [(0.0, ""), (0.6, "asking http://127.0.0.1:8000 ...\n")])
def test_a_long_wait_is_said_and_a_short_one_is_not(capsys, takes_s, said):
    with said_if_slow("asking http://127.0.0.1:8000 ...", after_s=0.2):
        time.sleep(takes_s)
    assert capsys.readouterr().err == said
