"""Writes the files of a report; each appears whole, by rename."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

from e2e.base.errors import EXIT_CORRUPT, UsageError
from e2e.base.event import Event
from e2e.base.exhibit import Exhibit
from e2e.base.judgement import Judgement
from e2e.report import junit, report_json, run_page, run_report
from e2e.report.facts import RunFacts, facts
from e2e.report.forms import FORMS, Report


def of_run(facts: RunFacts, judgement: Judgement) -> Report:
    return Report(
        partial(run_report.document, facts, judgement), page=partial(run_page.page, facts, judgement),
        data=partial(report_json.report, facts, judgement),
        rows=lambda: report_json.report(facts, judgement)["cells"],
    )  # fmt: skip


def _in(form: Callable[[Report], str | None]) -> Callable[[RunFacts, Judgement], str]:
    return lambda facts, judgement: form(of_run(facts, judgement))


#: File of a run -> what stands in it.
RENDERERS = {f"report.{ending}": _in(form) for ending, form in FORMS.items()} | {"junit.xml": junit.render}


def write_reports(
    events: Sequence[Event], judgement: Judgement, *, directory: Path,
    exhibits: Mapping[tuple[str, int], Exhibit] = MappingProxyType({}),
) -> None:  # fmt: skip
    """All of ``RENDERERS``. ``exhibits``: what the page shows of each verdict; without them it is quickly made. The
    same recording gives the same bytes, but for words of tokens, which a tokenizer at hand tells, and plots, which
    matplotlib draws. UsageError when the folder can't be written."""
    told = facts(events, exhibits)
    for name, render in RENDERERS.items():
        put(directory / name, render(told, judgement))


def write(report: Report, folder: Path, name: str, *, cure: str = "choose another folder by --out") -> None:
    """``name``.md and so on in ``folder``. UsageError with the ``cure`` where it can't be written."""
    for ending, render in FORMS.items():
        if (text := render(report)) is not None:
            put(folder / f"{name}.{ending}", text, cure=cure)


@contextmanager
def judged(code: int) -> Iterator[None]:
    """Around what writes the reports of what was judged with this exit code: where they can't be written, a 1 stays."""
    try:
        yield
    except UsageError as error:
        if code == EXIT_CORRUPT:
            error.args = (f"it was judged with exit code {code}, but {error}",)
            error.exit_code = code
        raise


def put(path: Path, text: str, *, cure: str = "choose another folder by --out") -> None:
    """``path`` then holds all of ``text``, or what it held before. UsageError with the ``cure`` where it can't."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise UsageError(f"can't write {path} ({error.strerror}); {cure}.") from error
