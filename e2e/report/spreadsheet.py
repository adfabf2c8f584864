"""Tables for a spreadsheet, such as report.csv: the cells of report.json, a line a cell."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping

from e2e.report.escape import spreadsheet

#: Of a cell, what is a table in a line of its own or says again what stands there.
_LEFT_OUT = ("effective", "oracle.first_difference", "oracle.texts")


def table(rows: Iterable[Mapping[str, object]]) -> str:
    """Of JSON values. Tables in a row become columns such as ``ttft.cold_s``; a list of words is one text, other lists
    are left out. A column is there as soon as one row has it."""
    flat = [dict(_flat(row)) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([spreadsheet(name) for name in columns])
    writer.writerows([_value(row.get(name)) for name in columns] for row in flat)
    return file.getvalue()


def _flat(row: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for key, value in row.items():
        name = f"{before}{key}"
        if name in _LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif not isinstance(value, list):
            yield name, value
        elif all(isinstance(each, str) for each in value):
            yield name, ", ".join(value)


def _value(value: object) -> object:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else spreadsheet(_said(value))


def _said(value: object) -> str:
    return "" if value is None else str(value)
