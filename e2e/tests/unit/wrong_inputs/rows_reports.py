"""Reports that can't be written: what is in their way, or where they were to go."""

import gzip
from collections.abc import Callable
from pathlib import Path

from row import Row
from rows_night import NIGHT, STEPS, cell, night

RECORDED = Path(__file__).resolve().parents[2] / "recordings" / "h200"


def run(*in_the_way: str, recording: str = "defect") -> Callable[[Path], None]:
    """The folder "run" with a real recording, of a self-test or a comparison, and folders where files are to go."""

    def make(folder: Path) -> None:
        (folder / "run").mkdir()
        packed = (RECORDED / f"{recording}.jsonl.gz").read_bytes()
        (folder / "run" / "recording.jsonl").write_bytes(gzip.decompress(packed))
        (folder / "file").write_text("")
        for name in in_the_way:
            (folder / "run" / name / "x").mkdir(parents=True)

    return make


def blocked(name: str, **files: str) -> Callable[[Path], None]:
    """A night with a folder where ``name`` is to go."""

    def make(folder: Path) -> None:
        night(**files)(folder)
        (folder / NIGHT / name / "x").mkdir(parents=True)

    return make


def of_run(name: str) -> Row:
    says = (f"can't write run/{name}", "choose another folder by --out")
    return Row(f"judge: a folder is in the way of {name}", ("judge", "run"), 2, says, given=run(name))


def of_night(name: str, code: int = 2, **files: str) -> Row:
    says = ("can't write", f"{NIGHT}/{name}", "make room for it in the night's folder")
    return Row(f"night: a folder is in the way of {name}", ("night", NIGHT), code, says, given=blocked(name, **files))


CORRUPT = {
    "report_json": cell(verdict="corrupt", reason="tokens differ", findings=[{"sentence": "Other tokens."}]),
    "steps_tsv": STEPS,
}
ROWS = (
    of_run("report.json"),
    of_run("junit.xml"),
    of_run("report.md"),
    of_run("scoreboard.json"),
    of_run("scoreboard.md"),
    Row("judge: --out is in a file", ("judge", "run", "--out", "file/x"), 2, ("file/x", "folder"), given=run()),
    Row("judge: --out can't be made", ("judge", "run", "--out", "/proc/x"), 2, ("/proc/x", "folder"), given=run()),
    Row(
        "gain --judge: a folder is in the way of gain.md", ("gain", "--judge", "run"), 2,
        ("can't write run/gain.md", "make room for it"), given=run("gain.md", recording="gain-nhd"),
    ),
    of_night("summary.md"),
    of_night("night.json"),
    of_night("junit.xml"),
    of_night("issue.md", 1, **CORRUPT),
)  # fmt: skip
