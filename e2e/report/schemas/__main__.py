"""Writes the schema of every file for programs, e2e/report/<name>.schema.json."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.report.schemas import SHAPES, schema

if __name__ == "__main__":
    for name in SHAPES:
        target = Path(__file__).parents[1] / f"{name}.schema.json"
        target.write_text(json.dumps(schema(name), indent=2) + "\n", encoding="utf-8")
