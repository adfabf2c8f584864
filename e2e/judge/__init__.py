"""Events in, verdicts out. The judge reads only the recording: no clock, no file, no network, no engine."""

from e2e.judge.cells import judge

__all__ = ["judge"]
