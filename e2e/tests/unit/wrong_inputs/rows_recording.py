"""Recordings that are none, that were changed, or that are of another kind than the command takes."""

from __future__ import annotations

import copy
import gzip
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from row import Row

sys.path.insert(0, str(Path(__file__).parent.parent / "judge"))
from synthetic_recording import Recording

RUN = "run"
DEEP = "[" * 5000 + "]" * 5000
Edit = Callable[[dict], object]


@cache
def _entries() -> str:
    events = Recording().build()
    return json.dumps([{"seq": i, "t_ns": e.t_ns, "kind": e.kind, "data": dict(e.data)} for i, e in enumerate(events)])


def line(kind: str, number: int = 0) -> int:
    """Its number in the file, from 1."""
    found = [i for i, entry in enumerate(json.loads(_entries()), start=1) if entry["kind"] == kind]
    return found[number]


def recording(kind: str, edit: Edit) -> Callable[[Path], None]:
    """A healthy one, with ``edit`` done to the first event of a kind."""

    def make(folder: Path) -> None:
        entries = json.loads(_entries())
        edit(entries[line(kind) - 1])
        write(folder, [json.dumps(entry) for entry in entries])

    return make


def lines(edit: Callable[[list[str]], object]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        whole = [json.dumps(entry) for entry in json.loads(_entries())]
        write(folder, edit(copy.copy(whole)) or whole)

    return make


def content(data: bytes, name: str = "recording.jsonl") -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / RUN).mkdir()
        (folder / RUN / name).write_bytes(data)

    return make


def write(folder: Path, whole: list[str]) -> None:
    content("".join(f"{each}\n" for each in whole).encode())(folder)


def value(key: str, wrong: object, kind: str, says: str, *, words: tuple[str, ...] = ("judge", RUN)) -> Row:
    """One value of the first event of a kind is ``wrong``; ``key``: "t_ns" and "seq" stand beside the data."""

    def edit(entry: dict) -> None:
        (entry if key in entry else entry["data"])[key] = wrong

    where = f"recording.jsonl line {line(kind)} "
    name = f"{' '.join(words[:-1])}: {kind} whose {key} is {json.dumps(wrong)[:24]}"
    return Row(name, words, 2, (where, says, "changed or damaged"), given=recording(kind, edit))


def changed(name: str, number: int, says: str, edit: Callable[[list[str]], object]) -> Row:
    return Row(f"judge: {name}", ("judge", RUN), 2, (f"recording.jsonl line {number} ", says), given=lines(edit))


def replace(number: int, text: str) -> Callable[[list[str]], list[str]]:
    return lambda whole: [*whole[: number - 1], text, *whole[number:]]


DONE = line("request.done")
GAIN, RESUME = ("gain", "--judge", RUN), ("run", "--resume", "--out", RUN)

ROWS = (
    value("settings", None, "run.begin", "$.settings"),
    value("settings", {"strict": "no"}, "run.begin", "$.settings.strict"),
    value("versions", 5, "run.begin", "$.versions"),
    value("machine", ["x86"], "run.begin", "$.machine"),
    value("attempt", "a", "run.begin", "$.attempt"),
    value("attempt", 2, "run.begin", "attempt 2 after 0"),
    value("t_ns", "now", "plan.cell", "$.t_ns"),
    value("t_ns", 10**400, "plan.cell", "is no event"),
    value("seq", "1", "plan.cell", "$.seq"),
    value("kind", 5, "plan.cell", "$.kind"),
    value("kind", "plan.sell", "plan.cell", "unknown event kind"),
    value("lengths", {"a": 513}, "plan.cell", "$.lengths"),
    value("lengths", [513, None], "plan.cell", "$.lengths[1]"),
    value("settings", [], "plan.cell", "$.settings"),
    value("oracle", "guess", "plan.cell", "$.oracle"),
    value("step", 512.5, "plan.cell", "$.step"),
    value("baseline", 1, "plan.cell", "$.baseline"),
    value("role", None, "engine.start", "$.role"),
    value("argv", "vllm serve", "engine.start", "$.argv"),
    value("effective", [], "engine.config", "$.effective"),
    value("effective", {"versions": 1.5}, "engine.config", "$.effective.versions"),
    value("effective", {"head_size": {"a": None}}, "engine.config", "$.effective.head_size"),
    value("engine", "another", "cell.begin", "'another', which was never started"),
    value("cell", "another", "cell.begin", "'another', which was never planned"),
    value("arm", 3, "arm.begin", "$.arm"),
    value("prompt", "first", "expect.hit", "$.prompt"),
    value("token_ids", {"0": 216}, "request.done", "$.token_ids"),
    value("token_ids", [[216]], "request.done", "$.token_ids[0]"),
    value("logprobs", ["-0.5"], "request.done", "$.logprobs[0]"),
    value("top", [["token_id:216"]], "request.done", "$.top[0]"),
    value("request", "of somebody else", "request.done", "ends what did not begin"),
    value("counters", [1, 2], "metrics.delta", "$.counters"),
    value("ttft", None, "metrics.delta", "$.ttft"),
    value("loads", {"request": "r"}, "connector.evidence", "$.loads"),
    value("blocks", True, "overwrite.free", "$.blocks"),
    value("settings", None, "run.begin", "$.settings", words=GAIN),
    value("token_ids", "none", "request.done", "$.token_ids", words=GAIN),
    value("settings", None, "run.begin", "$.settings", words=RESUME),
    value("attempt", 1.5, "run.begin", "$.attempt", words=RESUME),
    changed("a line that is a list", 5, "is no event", replace(5, "[]")),
    changed("a line of text", 5, "is no event", replace(5, "Traceback (most recent call last):")),
    changed("an empty line", 5, "is no event", replace(5, "")),
    changed("nested without end", 5, "is no event", replace(5, DEEP)),
    changed("NaN", 5, "is no event", replace(5, '{"seq": 4, "t_ns": NaN, "kind": "note", "data": {"text": ""}}')),
    changed("a lost line", 5, "has seq 5, not 4: lines were lost", lambda whole: whole[:4] + whole[5:]),
    changed("a doubled line", 6, "has seq 4, not 5", lambda whole: whole[:5] + whole[4:]),
    changed("a cut line in the middle", 5, "is no event", lambda whole: [*whole[:4], whole[4][:20], *whole[5:]]),
    changed("another schema", 1, "reads 'maru-e2e/recording/1' only; use the version that wrote it",
            lambda whole: [whole[0].replace("recording/1", "recording/9"), *whole[1:]]),
    Row("judge: values nested deeper than anything that is recorded", ("judge", RUN), 2,
        ("recording.jsonl line 1 ", "is no event"),
        given=recording("run.begin", lambda entry: entry["data"].update(extra=json.loads("[" * 40 + "]" * 40)))),
    Row("judge: a recording that is not UTF-8", ("judge", RUN), 2, ("recording.jsonl line 1 ", "UTF-8"),
        given=content(b'{"seq": 0, "t_ns": 1, "kind": "note", "data": {"text": "\xff\xfe"}}\n')),
    Row("judge: an empty recording", ("judge", RUN), 2, ("holds no run", "give the folder of a run"),
        given=content(b"")),
    Row("judge: a recording that is one torn line", ("judge", RUN), 2, ("holds no run",), given=content(b'{"seq": 0')),
    Row("judge: a recording that is a folder", ("judge", RUN), 2, ("recording.jsonl",),
        given=lambda folder: (folder / RUN / "recording.jsonl").mkdir(parents=True)),
    Row("judge: a packed recording that was cut", ("judge", RUN), 2, ("recording.jsonl.gz", "no recording can be read"),
        given=content(gzip.compress(b"x" * 999)[:-9], "recording.jsonl.gz")),
    Row("judge: a packed recording that is something else", ("judge", RUN), 2, ("recording.jsonl.gz line 1 ",),
        given=content(b"PK\x03\x04\n", "recording.jsonl.gz")),
    Row("gain --judge: a run that compares nothing", GAIN, 2, ("holds no comparison", "maru-e2e gain"),
        given=recording("run.begin", lambda entry: None)),
    Row("gain --judge: an empty recording", GAIN, 2, (RUN,), given=content(b"")),
    Row("run --resume: a packed recording", RESUME, 2, ("is packed", "gunzip"),
        given=lambda folder: content(gzip.compress("".join(
            f"{json.dumps(entry)}\n" for entry in json.loads(_entries())).encode()), "recording.jsonl.gz")(folder)),
    Row("run --resume: a damaged line", RESUME, 2, ("recording.jsonl line 5 ", "is no event"),
        given=lines(replace(5, "{}"))),
    Row("run --resume: settings of no kind", RESUME, 2, ("--resume", "max_tokens", "start a new run"),
        given=recording("run.begin", lambda entry: entry["data"].update(settings={"max_tokens": "many"}))),
    Row("run --resume: a user and password that were not recorded", RESUME, 2, ("--attach", "give --attach"),
        given=recording("run.begin", lambda entry: entry["data"].update(
            settings={"attach": "http://(redacted)@127.0.0.1:9"}))),
    Row("run --out: a damaged recording lies there", ("run", "--out", RUN), 2, ("recording.jsonl line 5 ",),
        given=lines(replace(5, "{}"))),
)  # fmt: skip
