"""``maru-e2e shrink``: from a recording with a corrupt cell to the least program and cell that still fail so."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from e2e.attempt import Name, begin, clean_up, under_way
from e2e.base.errors import EXIT_CORRUPT, EXIT_ENGINE, EXIT_INCONCLUSIVE, UsageError
from e2e.base.event import Event
from e2e.base.program import plainly
from e2e.base.verdict import Verdict
from e2e.chosen import usable
from e2e.grid.cells import Grid
from e2e.material import material
from e2e.recording.journal import read
from e2e.recording.reader import is_there
from e2e.recording.resume import next_attempt
from e2e.report import shrunk
from e2e.report.reproduce import reproduce
from e2e.settings.settings import RECORDING
from e2e.settings.world import engine_python
from e2e.shrink.failed import Failed, failed_cell
from e2e.shrink.kept import Keeping, started
from e2e.shrink.least import least
from e2e.shrink.trials import Case, Cases, Limits, Trials, spent_s, starts


def shrink(
    folder: Path, *, cell: str | None, limits: Limits, out: Path | None, resume: bool, argv: Sequence[str] = ()
) -> int:
    """Returns the exit code: 1 with what still fails, 3 where the cell does not fail again, 4 where no engine could
    tell."""
    failed = failed_cell(folder, cell)
    if (needed := len(started(failed.case.program))) > limits.starts:
        raise UsageError(f"--starts: {limits.starts} is too few; the cell alone needs {needed} engine starts.")
    out = out or folder / f"shrunk-{failed.judged.id}"
    before = _before(failed, out, resume)
    settings = failed.settings.model_copy(update={"out": out, "argv": tuple(argv), "resume": resume})
    clean_up()
    python = engine_python(settings.engine_python) if settings.launcher == "process" else sys.executable
    adapter = usable(settings.connector, settings, python=python)
    cases = Cases(settings, adapter, material(settings, python=python))
    cases.part(failed.case)
    with (
        under_way(
            settings, cases.made_of, Name.new(next_attempt(before)), [], before=before, steps={},
            report=lambda: EXIT_INCONCLUSIVE,
        ) as player,
        Keeping(player.world, _spec) as kept,
    ):  # fmt: skip
        player.world = kept
        begin(player, settings, adapter, Grid(()), [])
        trials = Trials(failed, cases, player, kept, limits, before=before)
        found = least(failed.case, cases.smaller, trials.fails)
    _report(failed, trials, found, out)
    if found is not None:
        return EXIT_CORRUPT
    return EXIT_ENGINE if trials.known and trials.known[0].judged.verdict is Verdict.ERROR else EXIT_INCONCLUSIVE


def _spec(part, site):
    return part.spec(site, name="", model="", pool_dir="")


def _before(failed: Failed, out: Path, resume: bool) -> list[Event]:
    """Events of the search that is continued. UsageError where there is none, or another one."""
    if not is_there(out / RECORDING):
        if resume:
            raise UsageError(f"--resume: there is nothing to continue in {out}; leave --resume out.")
        return []
    before = read(out / RECORDING)
    if before and not resume:
        raise UsageError(f"{out} holds a recording already; add --resume to continue it, or choose another --out.")
    began = [event for event in before if event.kind == "run.begin"]
    if began and began[0]["settings"].get("program") != plainly(failed.case.program):
        raise UsageError(f"--resume: {out} holds another search; choose another --out.")
    return before


def _report(failed: Failed, trials: Trials, found: Case | None, out: Path) -> None:
    events = read(out / RECORDING)
    command = None
    if found is not None:
        shrunk.write_program(found.program, out)
        command = reproduce(found.settings, failed.run, program=str((out / shrunk.PROGRAM).resolve()))
    shrunk.write(
        shrunk.Shrunk(
            cell=failed.judged, before=(failed.case.settings, failed.case.program),
            after=(found.settings, found.program) if found is not None else None,
            trials=[shrunk.Tried(t.case.what, t.fresh, t.judged, t.failed) for t in trials.known],
            untried=len(trials.untried), starts=starts(events), seconds=spent_s(events), command=command,
        ),
        out,
    )  # fmt: skip
