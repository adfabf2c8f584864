"""What the files for programs hold, as types; their schemas are made of these.

``python -m e2e.report.schemas`` writes them anew beside the reports' own code.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from e2e.base.program import Program
from e2e.report.schemas import gain, night, placement, program_words, run, run_words, scoreboard, shrunk

#: Name of the file, less its ending -> its type, and what it is.
SHAPES: Mapping[str, tuple[type, str]] = {
    "report": (run.Report, "Report of one run of maru-e2e"),
    "gain": (gain.Gain, "Answers of maru-e2e gain"),
    "scoreboard": (scoreboard.Board, "What maru-e2e faults caught"),
    "night": (night.ToldNight, "One night of scripts/nightly, closed by maru-e2e night"),
    "shrunk": (shrunk.ToldShrunk, "What maru-e2e shrink tried, and what is left"),
    "program": (Program, "A story as a value, for maru-e2e run --program"),
    "regression": (placement.Regression, "What the kernels of maru-e2e placement wrote"),
    "bench": (placement.Bench, "How fast the kernels of maru-e2e placement are"),
}
_SAID = (run_words, gain, scoreboard, night, shrunk, program_words, placement)
#: Type -> field -> what it is. A test asks for all of them.
WORDS: Mapping[str, Mapping[str, str]] = {kind: words for each in _SAID for kind, words in each.WORDS.items()}


def schema(name: str) -> dict[str, object]:
    """JSON schema of ``name``.json. Its id is what such a file has as ``schema``, where it has one."""
    shape, title = SHAPES[name]
    made = msgspec.json.schema(shape, schema_hook=lambda _: {"description": "any value"})
    for kind, of in made["$defs"].items():
        for field, said in WORDS.get(kind, {}).items():
            of["properties"][field]["description"] = said
    version = made["$defs"][shape.__name__]["properties"].get("schema", {"enum": [f"maru-e2e/{name}"]})
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": version["enum"][0], "title": title}
    return head | made
