"""What a connector reports to vLLM as not loaded. vLLM's own counters of hits don't take it back."""

from __future__ import annotations

from collections.abc import Callable

#: How it may report: method -> is there anything in what it returned. The second one is there since vLLM 0.30.
_REPORTS: dict[str, Callable[[object], bool]] = {
    "get_block_ids_with_load_errors": bool,
    "get_transfer_results": lambda found: bool(getattr(found, "failed_recving", None)),
}


class LoadErrors:
    """``failures``: how often the connector reported any, whatever it counts itself."""

    def __init__(self, connector) -> None:
        self.failures = 0
        for name, failed in _REPORTS.items():
            if (inner := getattr(connector, name, None)) is not None:
                setattr(connector, name, self._counted(inner, failed))

    def _counted(self, inner: Callable, failed: Callable[[object], bool]) -> Callable:
        def reported(*args, **kwargs):
            found = inner(*args, **kwargs)
            self.failures += failed(found)
            return found

        return reported

    def told(self, evidence: dict[str, object] | None) -> dict[str, object]:
        """``evidence`` of the connector itself, or None, with what it does not count."""
        found = evidence or {"counters": {}, "loads": []}
        return {**found, "counters": {"load_failures": self.failures, **found["counters"]}}
