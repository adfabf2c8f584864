"""Writes the files of a report; each appears whole, by rename."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from e2e.base.errors import EXIT_CORRUPT, UsageError
from e2e.base.event import Event
from e2e.base.exhibit import Exhibit
from e2e.base.judgement import Judgement
from e2e.report import html, junit, markdown, report_csv, report_json, run_page, run_report
from e2e.report.facts import facts

RENDERERS = {
    "report.json": report_json.render,
    "report.csv": report_csv.render,
    "junit.xml": junit.render,
    "report.md": lambda facts, judgement: markdown.render(run_report.document(facts, judgement)),
    "report.html": lambda facts, judgement: html.render(run_page.page(facts, judgement)),
}


def write_reports(
    events: Sequence[Event], judgement: Judgement, *, directory: Path,
    exhibits: Mapping[tuple[str, int], Exhibit] = MappingProxyType({}),
) -> None:  # fmt: skip
    """All of ``RENDERERS``. ``exhibits``: what the page shows of each verdict; without them it is quickly made. The
    same recording gives the same bytes, but for words of tokens, which a tokenizer at hand tells, and plots, which
    matplotlib draws. UsageError when the folder can't be written."""
    of_run = facts(events, exhibits)
    for name, render in RENDERERS.items():
        put(directory / name, render(of_run, judgement))


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
