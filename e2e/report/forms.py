"""One report in every form in which it is read: a new form is one line of ``FORMS``, and all of them say the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from e2e.report import html, markdown, spreadsheet
from e2e.report.document import Document, Page
from e2e.report.report_json import plain


@dataclass(frozen=True)
class Report:
    """Each part is made when a form asks for it. ``document``: for people; ``page``: that and what takes a browser, by
    default the document; ``data``: for programs; ``rows``: what of it is a table. A form that has nothing to say is not
    written."""

    document: Callable[[], Document]
    page: Callable[[], Page] | None = None
    data: Callable[[], object] | None = None
    rows: Callable[[], Sequence[Mapping[str, object]]] | None = None


#: Ending of a file's name -> what stands in it.
FORMS: Mapping[str, Callable[[Report], str | None]] = {
    "md": lambda report: markdown.render(report.document()),
    "html": lambda report: html.render((report.page or report.document)()),
    "json": lambda report: report.data and as_json(report.data()),
    "csv": lambda report: report.rows and spreadsheet.table([plain(row) for row in report.rows()]),
}


def as_json(data: object) -> str:
    """In ASCII: what a terminal would obey, or no file can hold, stands as an escape."""
    return json.dumps(plain(data), indent=2, allow_nan=False) + "\n"
