"""Every wrong input gets one sentence that names cause and cure, its own exit code, and no traceback.

Rows stand in ``rows_<room>.py`` beside this file, each with a tuple ``ROWS``.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from e2e import cli
from e2e.settings import device

HERE = Path(__file__).parent
TABLES = sorted(path.stem for path in HERE.glob("rows_*.py"))
ROWS = [row for table in TABLES for row in importlib.import_module(table).ROWS]


def test_names_are_unique():
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_wrong_input(row, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.chdir(tmp_path)
    for name, value in (row.environ or {}).items():
        monkeypatch.setenv(name, value)
    if row.given:
        row.given(tmp_path)
    before = set(tmp_path.rglob("*"))
    code = cli.execute(list(row.argv))
    said = capfd.readouterr()
    lines = [line for line in said.err.splitlines() if line.strip()]
    assert code == row.code, said.err
    assert lines, "nothing was said"
    assert "Traceback" not in said.err + said.out
    missing = [word for word in row.says if word not in lines[-1]]
    assert not missing, f"{lines[-1]!r} lacks {missing}"
    if code == 2 and row.argv[:1] in (("run",), ("faults",), ("gain",)):
        assert set(tmp_path.rglob("*")) == before, "what is refused leaves nothing"
