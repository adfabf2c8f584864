"""What shrunk.json holds, and what each field of it is; program_words.py of the program in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from e2e.base.program import Program
from e2e.report.schemas.closed import VERSION, Closed, Table


class Size(Closed):
    """How much a program is, in counts and tokens."""

    engines: int
    steps: int
    sends: int
    texts: int
    tokens: int
    requests: int
    at_once: int
    settings: Table


class Trial(Closed):
    """One candidate."""

    cell: str
    what: str
    fresh: bool
    verdict: str
    failed: bool


class ToldShrunk(Closed):
    """``after``, ``program`` and ``command`` are null where the cell did not fail so again."""

    schema: Literal["maru-e2e/shrunk/1"]
    cell: str
    verdict: str
    before: Size
    after: Size | None
    trials: list[Trial]
    untried: int
    starts: int
    seconds: float
    program: Program | None
    command: str | None


WORDS: Mapping[str, Mapping[str, str]] = {
    "ToldShrunk": {
        "schema": VERSION,
        "cell": "Id of the cell that failed.",
        "verdict": "How it failed.",
        "before": "What it was.",
        "after": "What is left of it.",
        "trials": "Candidates, in the order in which they were played.",
        "untried": "Candidates for which the starts or the time did not suffice.",
        "starts": "Engines that were started.",
        "seconds": "Length of the search.",
        "program": "The least program that still fails so, as in program.json.",
        "command": "Command line that replays it.",
    },
    "Size": {
        "engines": "Starts of engines.",
        "steps": "Steps, those at once counted each.",
        "sends": "Steps that send requests.",
        "texts": "Prompts.",
        "tokens": "Of all prompts.",
        "requests": "Of all steps.",
        "at_once": "Most requests at once.",
        "settings": "Axis -> value.",
    },
    "Trial": {
        "cell": "Id under which it was recorded.",
        "what": "In what it is smaller.",
        "fresh": "Was it played on engines that had played nothing else?",
        "verdict": "What became of it.",
        "failed": "Did it fail as the original did?",
    },
}  # fmt: skip
