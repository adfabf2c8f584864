"""One task as its driver knows it: an engine key, what its nodes have recorded of it, and whether that is all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.base.event import Event
from e2e.base.spelling import count
from e2e.fleet.node import Told
from e2e.recording.journal import read
from e2e.recording.reader import whole_bytes
from e2e.recording.resume import finished
from e2e.settings.settings import RECORDING


@dataclass(frozen=True)
class Need:
    """What one task takes of a node, or a node has."""

    cpus: float
    gpus: int = 0

    def __str__(self) -> str:
        cpus = count(round(self.cpus), "CPU")
        return f"{count(self.gpus, 'GPU')} and {cpus}" if self.gpus else cpus


class Share:
    """``place``: number, and of how many. ``cells``: ids of what is to be played. ``folder``: where what is known of it
    is kept, by an earlier driver too."""

    def __init__(
        self, place: tuple[int, int], key: str, cells: Sequence[str], need: Need, folder: Path
    ) -> None:  # fmt: skip
        self.place, self.key, self.cells, self.need, self.folder = place, key, cells, need, folder
        self.recorded = self.said = self.lost = 0
        self.last = ""

    @property
    def recording(self) -> Path:
        return self.folder / RECORDING

    def events(self) -> list[Event]:
        return read(self.recording) if self.recording.exists() else []

    def begin(self) -> bytes:
        """What a node is to continue: nothing where no run has begun, else whole lines."""
        content = self.recording.read_bytes() if self.recording.exists() else b""
        content = content[: whole_bytes(content)]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.recording.write_bytes(content)
        self.recorded, self.said = len(content), 0
        return content

    def add(self, told: Told) -> list[str]:
        """Keeps what is new, and gives the lines for a person."""
        with self.recording.open("ab") as file:
            file.write(told.recorded)
        self.recorded, self.said = self.recorded + len(told.recorded), self.said + len(told.said)
        lines = told.said.decode(errors="replace").splitlines()
        self.last = lines[-1] if lines else self.last
        return lines

    def keep(self, logs: Mapping[str, bytes]) -> None:
        for name, content in logs.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def whole(self) -> bool:
        """Did a run of it come to its end, with every cell?"""
        events = self.events()
        return bool(events) and events[-1].kind == "run.end" and finished(events) >= {*self.cells}
