"""Files that are none: a pipe that nobody writes into would hold the rig up for ever, a device would never end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from row import Row

NOT_REGULAR = "is no regular file"
STEPS = "grid\t0\t1.0\n"


def pipe(name: str, **files: str) -> Callable[[Path], None]:
    """``files``: what else lies there; ``__`` is a dot."""

    def make(folder: Path) -> None:
        for other, text in files.items():
            at(folder / other.replace("__", ".")).write_text(text)
        os.mkfifo(at(folder / name))

    return make


def at(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def device(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).symlink_to("/dev/zero")


ROWS = (
    Row(
        "pipe: connector", ("run", "--connector", "./mine.toml"), 2, ("mine.toml", NOT_REGULAR, "a connector's TOML"),
        pipe("mine.toml"),
    ),
    Row("pipe: cells", ("cells", "--connector", "./mine.toml"), 2, ("mine.toml", NOT_REGULAR), pipe("mine.toml")),
    Row(
        "pipe: gain's connector", ("gain", "--a", "./mine.toml", "--b", "example"), 2, ("mine.toml", NOT_REGULAR),
        pipe("mine.toml"),
    ),
    Row("pipe: config", ("run", "--config", "run.toml"), 2, ("--config", "run.toml", NOT_REGULAR), pipe("run.toml")),
    Row(
        "pipe: config by variable", ("run",), 2, ("MARU_E2E_CONFIG", NOT_REGULAR), pipe("run.toml"),
        {"MARU_E2E_CONFIG": "run.toml"},
    ),
    Row("pipe: grid", ("run", "--grid", "grid.toml"), 2, ("--grid", "grid.toml", NOT_REGULAR), pipe("grid.toml")),
    Row(
        "pipe: a prompt", ("run", "--prompts-dir", "texts"), 2, ("texts/a.txt", NOT_REGULAR, "check the path"),
        pipe("texts/a.txt"),
    ),
    Row(
        "pipe: one prompt of several", ("run", "--prompts-dir", "texts"), 2, ("texts/b.txt", NOT_REGULAR),
        pipe("texts/b.txt", **{"texts/a__txt": "Some words."}),
    ),
    Row(
        "pipe: a model's config", ("run", "--model", "mine"), 2, ("mine has no config.json",), pipe("mine/config.json"),
    ),
    Row("pipe: recording", ("judge", "old"), 2, ("old holds no recording.jsonl",), pipe("old/recording.jsonl")),
    Row(
        "pipe: packed recording", ("judge", "old"), 2, ("old holds no recording.jsonl",),
        pipe("old/recording.jsonl.gz"),
    ),
    Row(
        "pipe: recording of a comparison", ("gain", "--judge", "old"), 2, ("old holds no recording.jsonl",),
        pipe("old/recording.jsonl"),
    ),
    Row(
        "pipe: a night's steps", ("night", "n"), 2, ("n holds no readable steps.tsv",), pipe("n/steps.tsv"),
    ),
    Row(
        "pipe: a night's report", ("night", "n"), 2, ("n/grid/report.json", NOT_REGULAR),
        pipe("n/grid/report.json", **{"n/steps__tsv": STEPS}),
    ),
    Row("device: connector", ("run", "--connector", "./z.toml"), 2, ("z.toml", NOT_REGULAR), device("z.toml")),
    Row("device: config", ("run", "--config", "z.toml"), 2, ("z.toml", NOT_REGULAR), device("z.toml")),
    Row("device: grid", ("run", "--grid", "z.toml"), 2, ("z.toml", NOT_REGULAR), device("z.toml")),
)  # fmt: skip
