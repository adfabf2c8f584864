import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.base.errors import RecordingError, RigError, Stopped, UsageError
from e2e.base.event import SCHEMA
from e2e.recording.journal import Journal, read


def note(journal, text):
    return journal.record("note", text=text)


def begin(journal, attempt=1, schema=SCHEMA):
    return journal.record(
        "run.begin", run_id="r", attempt=attempt, schema=schema, command=[], versions={}, machine={},
        settings={}, wall_time="2026-01-01T00:00:00Z",
    )  # fmt: skip


def test_events_come_back_as_recorded(tmp_path):
    path = tmp_path / "deep" / "recording.jsonl"
    with Journal(path) as journal:
        begin(journal)
        written = note(journal, "zwei\nZeilen \u2028 ✓")
    events = read(path)
    assert [event.kind for event in events] == ["run.begin", "note"]
    assert events[1].data == written.data
    assert events[1].t_ns == written.t_ns > 0


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values=st.lists(json_values, max_size=5))
def test_any_json_value_survives(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("journal") / "r.jsonl"
    with Journal(path) as journal:
        for value in values:
            journal.record("note", text="", value=value)
    assert [event["value"] for event in read(path)] == values


@given(cut=st.integers(min_value=1, max_value=60))
def test_torn_last_line_is_left_out_and_repaired(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("journal") / "r.jsonl"
    with Journal(path) as journal:
        note(journal, "first")
        size = path.stat().st_size
        note(journal, "second " * 5)
    torn = max(path.stat().st_size - cut, size)
    os.truncate(path, torn)
    assert [event["text"] for event in read(path)] == ["first"]
    with Journal(path) as journal:
        note(journal, "third")
    assert [event["text"] for event in read(path)] == ["first", "third"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_value_that_json_cannot_hold_is_refused_and_leaves_no_trace(tmp_path, value):
    path = tmp_path / "r.jsonl"
    with Journal(path) as journal:
        with pytest.raises(RigError, match="note holds a value"):
            note(journal, value)
        note(journal, "after")
    assert [event["text"] for event in read(path)] == ["after"]


@pytest.mark.parametrize("value", [5, None, ["text"]])
def test_value_that_could_not_be_read_again_is_refused(tmp_path, value):
    path = tmp_path / "r.jsonl"
    with Journal(path) as journal:
        with pytest.raises(RigError, match=r"event note can't be recorded.*\$\.text"):
            note(journal, value)
        note(journal, "after")
    assert [event["text"] for event in read(path)] == ["after"]


def test_unknown_kind_and_missing_key_are_refused(tmp_path):
    with Journal(tmp_path / "r.jsonl") as journal:
        with pytest.raises(ValueError, match="unknown event kind"):
            journal.record("nonsense")
        with pytest.raises(ValueError, match="lacks text"):
            journal.record("note")
    assert read(tmp_path / "r.jsonl") == []


def test_second_writer_is_refused_until_the_first_is_done(tmp_path):
    path = tmp_path / "r.jsonl"
    with Journal(path), pytest.raises(UsageError, match="another run is writing"):
        Journal(path)
    with Journal(path) as journal:
        note(journal, "free again")
    assert len(read(path)) == 1


def test_threads_share_one_journal(tmp_path):
    path = tmp_path / "r.jsonl"
    with Journal(path) as journal:
        threads = [
            threading.Thread(target=lambda name=name: [note(journal, f"{name}-{i}" * 50) for i in range(50)])
            for name in "abcd"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = read(path)
    assert len({event["text"] for event in events}) == 200
    assert [event.t_ns for event in events] == sorted(event.t_ns for event in events)


def test_closed_journal_refuses(tmp_path):
    journal = Journal(tmp_path / "r.jsonl")
    journal.close()
    with pytest.raises(RigError, match="is closed"):
        note(journal, "late")


def spoil(lines, how):
    if how == "garbled":
        lines[1] = lines[1][:-3]
    elif how == "lost":
        del lines[1]
    elif how == "doubled":
        lines.insert(1, lines[0])
    elif how == "unknown kind":
        lines[1] = json.dumps({"seq": 1, "t_ns": 1, "kind": "no.kind", "data": {}})
    elif how == "no object":
        lines[1] = "[]"
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("how", ["garbled", "lost", "doubled", "unknown kind", "no object"])
def test_broken_line_is_named(tmp_path, how):
    path = tmp_path / "r.jsonl"
    with Journal(path) as journal:
        for text in "abc":
            note(journal, text)
    path.write_text(spoil(path.read_text().splitlines(), how))
    with pytest.raises(RecordingError, match="line 2"):
        read(path)
    with pytest.raises(RecordingError, match="line 2"):
        Journal(path)


def test_other_schema_is_refused(tmp_path):
    path = tmp_path / "r.jsonl"
    with Journal(path) as journal:
        begin(journal, schema="maru-e2e/recording/99")
    with pytest.raises(RecordingError, match=r"recording/99.*recording/1"):
        read(path)


def test_missing_recording_and_unwritable_folder(tmp_path):
    with pytest.raises(RecordingError, match="no recording can be read"):
        read(tmp_path / "none.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be written"):
        Journal(tmp_path / "file" / "r.jsonl")


def test_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    real_write = os.write
    with Journal(path) as journal:
        note(journal, "kept")

        counts = iter((5, None))

        def short_then_full(fd, data):
            count = next(counts)
            if count is None:
                raise OSError(28, "No space left on device")
            return real_write(fd, data[:count])

        monkeypatch.setattr("e2e.recording.journal.os.write", short_then_full)
        with pytest.raises(RigError, match="No space left"):
            note(journal, "lost")
        monkeypatch.setattr("e2e.recording.journal.os.write", real_write)
        note(journal, "next")
    assert [event["text"] for event in read(path)] == ["kept", "next"]


WRITER = """
import sys
from e2e.recording.journal import Journal
journal = Journal(sys.argv[1])
for i in range(10**9):
    journal.record("note", text="x" * (i % 5000))
    print(i, flush=True)
"""


def test_kill_loses_nothing_that_was_acknowledged(tmp_path):
    path = tmp_path / "r.jsonl"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        deadline, acknowledged = time.monotonic() + 120, []
        while (not path.exists() or path.stat().st_size < 2_000_000) and time.monotonic() < deadline:
            acknowledged += writer.stdout.readline().split()
        writer.send_signal(signal.SIGKILL)
        acknowledged += writer.stdout.read().split()
    assert len(read(path)) > int(acknowledged[-1]) > 100
    with Journal(path) as journal:
        note(journal, "resumed")
    assert read(path)[-1]["text"] == "resumed"


def test_a_packed_recording_is_read_where_it_lies_and_not_continued(tmp_path):
    path = tmp_path / "r.jsonl"
    with Journal(path) as journal:
        note(journal, "packed")
    packed = tmp_path / "r.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert [event["text"] for event in read(path)] == [event["text"] for event in read(packed)] == ["packed"]
    with pytest.raises(UsageError, match="unpack it by gunzip"):
        Journal(path)
    for broken in (packed.read_bytes()[:-12], b"\x1f\x8bno gzip"):
        packed.write_bytes(broken)
        with pytest.raises(RecordingError, match="no recording can be read"):
            read(path)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_signal_in_mid_write_leaves_a_recording_that_goes_on(tmp_path, monkeypatch, share):
    path, real_write = tmp_path / "r.jsonl", os.write

    def stopped_while_writing(fd, data):
        real_write(fd, data[: int(len(data) * share)])
        raise Stopped(signal.SIGTERM)

    with Journal(path) as journal:
        journal.record("note", text="before")
        monkeypatch.setattr("e2e.recording.journal.os.write", stopped_while_writing)
        with pytest.raises(Stopped):
            journal.record("note", text="the signal came here")
        monkeypatch.setattr("e2e.recording.journal.os.write", real_write)
        journal.record("note", text="on the way out")
    assert [event["text"] for event in read(path)] == ["before", "on the way out"]
