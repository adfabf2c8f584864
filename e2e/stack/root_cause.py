"""Why an engine died: the one line out of a log full of tracebacks.

vLLM's processes fail in a chain: Worker, then EngineCore ("Engine core initialization failed"), then the API server.
Each logs its own traceback. The cause is what the innermost process raised first in its last chain of tracebacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PROCESS = re.compile(r"^\((?P<name>[A-Za-z]\w*)[^)]*?pid=\d+\) ?")
_STAMP = re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[[^\]]*\] ?")
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


@dataclass
class _Raised:
    depth: int
    position: int
    line: str


def root_cause(log: str) -> str:
    """The cause as one line, ``ValueError: ...``, or an empty string when the log has none."""
    lines = [_split(line) for line in log.splitlines()]
    raised = [item for item in _chains(lines) if not _SECOND_HAND.search(item.line)]
    for position, (_, text) in enumerate(lines):
        if _VANISHED.match(text):
            raised.append(_Raised(1, -position, text.strip()))
    if raised:
        return max(raised, key=lambda item: (item.depth, item.position)).line
    for _, text in reversed(lines):
        if found := _REPORTED.search(text):
            return found["text"]
    return next((text.strip() for _, text in lines if _BARE.match(text.strip())), "")


def _split(line: str) -> tuple[str, str]:
    """Process name ("" for the API server before it names itself) and text, without vLLM's prefixes."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line)
    process = _PROCESS.match(line)
    text = line[process.end() :] if process else line
    stamp = _STAMP.match(text)
    return (process["name"] if process else ""), (text[stamp.end() :] if stamp else text)


def _chains(lines: list[tuple[str, str]]) -> Iterator[_Raised]:
    """The first exception of every chain of tracebacks, process by process, since their lines interleave."""
    for name in dict.fromkeys(name for name, _ in lines):
        own = [(position, text) for position, (owner, text) in enumerate(lines) if owner == name]
        depth = next((rank for start, rank in _DEPTH.items() if name.lower().startswith(start)), 0)
        linked = False
        for index, (position, text) in enumerate(own):
            if text.startswith(_LINKS):
                linked = True
            elif text.strip() == _TRACEBACK:
                indent = len(text) - len(text.lstrip())
                line = _exception_after([text for _, text in own[index + 1 : index + 400]], indent)
                if line and not linked:
                    yield _Raised(depth, position, line)
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
        more = [line.strip() for line in texts[index + 1 : index + 4] if line.strip()]
        if "validation error" in (found["text"] or "") and len(more) > 1:
            return f"{found['kind'].rpartition('.')[2]}: {more[0]}: {more[1].partition(' [type=')[0]}"
        return " ".join((body.strip(), *more)) if body.rstrip().endswith(":") else body.strip()
    return ""
