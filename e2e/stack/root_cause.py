"""Why an engine died: the one line out of a log full of tracebacks.

vLLM's processes fail in a chain: Worker, then EngineCore ("Engine core initialization failed"), then the API server.
Each logs its own traceback. The cause is what the innermost process raised first when it went down: what follows
within seconds are consequences, what came long before (a plugin that was left out, say) it had survived.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PROCESS = re.compile(r"^\((?P<name>[A-Za-z]\w*)[^)]*?pid=\d+\) ?")
_STAMP = re.compile(
    r"^(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-(?P<day>\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:\.\d+)? "
    r"\[[^\]]*\] ?"
)
#: Of a logger that is not vLLM's.
_OTHERS_ERROR = re.compile(r"^\[?\d{4}-\d\d-\d\d[^\]]*\]? .*\b(?:ERROR|CRITICAL)\b")
_TRACEBACK = "Traceback (most recent call last):"
_LINKS = ("The above exception was the direct cause", "During handling of the above exception")
_EXCEPTION = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?::\s*(?P<text>.*))?$")
#: Says only that another process failed, or that this one was told to end.
_SECOND_HAND = re.compile(
    r"Engine core initialization failed|EngineDeadError|EngineCore encountered an issue|EngineGenerateError"
    r"|WorkerProc initialization failed|Worker failed with error|Executor failed|Engine process failed to start"
    r"|^(?:[\w.]*\.)?(?:KeyboardInterrupt|SystemExit|CancelledError|ContextTerminated|BrokenPipeError|EOFError"
    r"|ConnectionResetError)\b|RuntimeError: cancelled|shutdown signal"
)
_REPORTED = re.compile(r"Worker failed with error '?\"?(?P<text>.+?)(?:'|\"|, please check)")
#: Without a traceback: a bad flag, a missing module file, a fault below Python.
_BARE = re.compile(
    r"^(?:[\w./-]+: error: .+|.*No module named .+|terminate called after .+|Fatal Python error: .+"
    r"|.*\bSegmentation fault\b.*|.*\bBus error\b.*|.*\bout of memory\b.*|.*\bAddress already in use\b.*)$",
    re.IGNORECASE,
)
#: How near to the cause a process is that names itself so.
_DEPTH = {"worker": 3, "enginecore": 2}
#: One that was killed said nothing, but its parent did; an engine core that fails by itself takes its worker along.
_VANISHED = re.compile(r"^(?:Ray)?Worker ?[Pp]roc .*died unexpectedly|^Engine core process .*died unexpectedly")


#: Errors that follow each other by less are one going down. Seconds.
_BURST_S = 5
#: vLLM's own counts, each ten seconds.
_COUNTS = re.compile(
    r"Running: (?P<running>\d+) reqs?, Waiting: (?P<waiting>\d+) reqs?.*?KV cache usage: (?P<used>[\d.]+)%"
)
#: Per cent of the cache in use from which a request can't start.
_FULL = 90.0


@dataclass(frozen=True)
class _Line:
    """``process``: "" for the API server before it names itself. ``second``: of the month, None without a stamp.
    ``error``: logged as one."""

    process: str
    text: str
    second: int | None
    error: bool = False


@dataclass(frozen=True)
class _Raised:
    depth: int
    position: int
    line: str
    second: int | None = None


def root_cause(log: str) -> str:
    """The cause as one line, ``ValueError: ...``, or an empty string when the log has none."""
    lines = [_split(line) for line in log.splitlines()]
    raised = [item for item in _chains(lines) if not _SECOND_HAND.search(item.line)]
    for position, line in enumerate(lines):
        if _VANISHED.match(line.text):
            raised.append(_Raised(1, position, line.text.strip(), line.second))
    if raised:
        return _first_of_the_end(raised).line
    for line in reversed(lines):
        if found := _REPORTED.search(line.text):
            return found["text"]
    return next((line.text.strip() for line in lines if _BARE.match(line.text.strip())), "")


def errors_before(log: str, cause: str) -> list[str]:
    """What was logged as an error before ``cause`` was, outside tracebacks and their headings: often the connector's
    own words. Distinct lines, the first three."""
    found: dict[str, None] = {}
    inside: dict[str, bool] = {}
    last: dict[str, str] = {}
    for line in map(_split, log.splitlines()):
        text = line.text.strip()
        if cause and text and cause.startswith(text):
            break
        if text == _TRACEBACK or text.startswith(_LINKS):
            found.pop(last.pop(line.process, ""), None)  # it was a heading
            inside[line.process] = True
        elif inside.get(line.process):
            inside[line.process] = line.text[:1].isspace() or not _EXCEPTION.match(text)
        elif line.error and text not in found and not _SECOND_HAND.search(text):
            found[text[:300]] = None
            last[line.process] = text[:300]
        elif text:
            last.pop(line.process, None)
    return list(found)[:3]


def stall(log: str) -> str:
    """What vLLM's last counts say of an engine that answers nothing, with the line itself; empty where they show
    requests at work or none."""
    counts = next((m for m in map(_COUNTS.search, reversed(log.splitlines())) if m), None)
    if not counts or int(counts["running"]) or not int(counts["waiting"]):
        return ""
    if float(counts["used"]) >= _FULL:
        why = "its cache is full and nothing runs, so blocks are not freed"
    else:
        used = f"nothing runs, yet {counts['used']}% of the cache stay in use"
        why = f"{used}: blocks are not freed, or a load of the connector does not end"
    return f"{why} (its log: {counts.string[counts.start() :].strip()[:200]})"


def _first_of_the_end(raised: list[_Raised]) -> _Raised:
    """Of the innermost process that raised anything: the first error of its last burst."""
    depth = max(item.depth for item in raised)
    own = sorted((item for item in raised if item.depth == depth), key=lambda item: item.position)
    first = own[-1]
    for item in reversed(own[:-1]):
        if item.second is None or first.second is None or not 0 <= first.second - item.second <= _BURST_S:
            break
        first = item
    return first


def _split(line: str) -> _Line:
    """Without vLLM's prefixes."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line)
    process = _PROCESS.match(line)
    text = line[process.end() :] if process else line
    stamp = _STAMP.match(text)
    second = None
    if stamp:
        day, hour, minute, rest = (int(stamp[part]) for part in ("day", "h", "m", "s"))
        second, text = ((day * 24 + hour) * 60 + minute) * 60 + rest, text[stamp.end() :]
    error = stamp["level"] in ("ERROR", "CRITICAL") if stamp else bool(_OTHERS_ERROR.match(text))
    return _Line(process["name"] if process else "", text, second, error)


def _chains(lines: list[_Line]) -> Iterator[_Raised]:
    """The first exception of every chain of tracebacks, process by process, since their lines interleave."""
    for name in dict.fromkeys(line.process for line in lines):
        own = [(position, line) for position, line in enumerate(lines) if line.process == name]
        depth = next((rank for start, rank in _DEPTH.items() if name.lower().startswith(start)), 0)
        linked = False
        for index, (position, line) in enumerate(own):
            if line.text.startswith(_LINKS):
                linked = True
            elif line.text.strip() == _TRACEBACK:
                indent = len(line.text) - len(line.text.lstrip())
                found = _exception_after([after.text for _, after in own[index + 1 : index + 400]], indent)
                if found and not linked:
                    yield _Raised(depth, position, found, line.second)
                linked = False


def _exception_after(texts: list[str], indent: int) -> str:
    """Skips the frames of a traceback; joins the first line of a message that starts on the next one (pydantic)."""
    for index, text in enumerate(texts):
        body = text[indent:]
        if not body or body[0].isspace() or text.strip() == _TRACEBACK:
            continue
        found = _EXCEPTION.match(body)
        if not found:
            return body.strip()
        if found["text"] is None:  # nothing but a class: the line that raised it says more
            frame = [line.strip() for line in texts[:index] if line.strip(" ~^")]
            raised_by = frame[-1] if frame else "File "
            return body.strip() if raised_by.startswith("File ") else f"{body.strip()}: {raised_by}"
        more = [line.strip() for line in texts[index + 1 : index + 4] if line.strip()]
        if "validation error" in (found["text"] or "") and len(more) > 1:
            return f"{found['kind'].rpartition('.')[2]}: {more[0]}: {more[1].partition(' [type=')[0]}"
        return " ".join((body.strip(), *more)) if body.rstrip().endswith(":") else body.strip()
    return ""
