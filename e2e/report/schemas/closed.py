"""What the types of several files have in common, and words for it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Table = dict[str, Any]
Verdict = Literal["pass", "corrupt", "inconclusive", "error"]
VERSION = "Version of this form."
VERDICT = "pass: served as predicted and exactly what the engine computes; corrupt; error; or inconclusive."
SPEEDUP = "TTFT without a connector over that of the rerun that it served."
STORE_COST = "How much longer the first request takes that stores on the way, as a share of TTFT without a connector."
TIMES = {
    "baseline_cold_s": "Cold, on an engine without a connector.",
    "cold_s": "Cold, on the engine with the connector, which stores on the way.",
    "external_s": "From the connector.",
}


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    """No other keys than these."""
