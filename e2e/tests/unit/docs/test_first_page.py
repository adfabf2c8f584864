"""The first page, in both languages: what a newcomer must meet, and early."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from pages import ROOT, Page, pages

from e2e import cli
from e2e.base.errors import EXIT_CORRUPT, EXIT_ENGINE, EXIT_INCONCLUSIVE, EXIT_PASS
from e2e.base.verdict import Finding, Reason, Verdict
from e2e.connectors.generic import load_generic
from e2e.judge import judge
from e2e.recording.journal import read
from e2e.report import console, sentences
from e2e.report.facts import facts

_SCREEN = 45
_CODES = {
    Verdict.PASS: EXIT_PASS,
    Verdict.CORRUPT: EXIT_CORRUPT,
    Verdict.ERROR: EXIT_ENGINE,
    Verdict.INCONCLUSIVE: EXIT_INCONCLUSIVE,
}
_PAGES = ("README.md", "README.ko.md")


def test_the_third_sentence_says_that_the_default_is_a_double():
    first = (ROOT / "README.md").read_text().split("\n\n")[1]
    third = re.split(r"(?<=\.)\s", first)[2]
    assert "default connector" in third
    assert "test double of Maru" in third
    assert "--connector maru" in third


@pytest.mark.parametrize("page", _PAGES)
def test_the_first_output_is_explained_within_two_screens(page: str):
    lines = (ROOT / page).read_text().splitlines()
    assert next(n for n, line in enumerate(lines) if "**speed-up**" in line) <= 2 * _SCREEN + 5


@pytest.mark.parametrize("page", _PAGES)
def test_the_first_output_is_what_its_recording_says(page: str):
    events, stream = read(ROOT / "e2e" / "tests" / "recordings" / "golden" / "grid.jsonl.gz"), io.StringIO()
    on = console.console(stream)
    on.width = 160
    console.show(facts(events), judge(events), on=on, directory=Path("results"))
    (shown,) = [text for kind, text in Page(ROOT / page).blocks if text.startswith("cell ")]
    lines = [line for line in shown.splitlines() if line and not line.startswith("...")]
    assert len(lines) >= 4
    assert set(lines) <= {line.rstrip() for line in stream.getvalue().splitlines()}


@pytest.mark.parametrize("page", _PAGES)
def test_verdicts_and_their_exit_codes(page: str):
    found = re.findall(r"^\| `(\w+)` \| .* \| (\d+): [^|]* \|$", (ROOT / page).read_text(), re.MULTILINE)
    assert {Verdict(name): int(code) for name, code in found} == _CODES


#: Of the run that the red example shows.
_TOKENS = {
    "arm": "external", "prompt": 0, "reference": "baseline cold", "position": 0, "kind": "tokens", "expected": 216,
    "found": 79, "logprobs": [-0.12904269993305206, -0.3413427174091339],
}  # fmt: skip
_PAGES_WRONG = {
    "arm": "external", "prompt": 0, "layer": 0, "kv": "K", "head": 0, "block": 0, "token": 0, "token_end": 16,
    "wrong_pages": 5760, "pages": 5760, "wrong_share": 1.0, "wrong_layers": 30, "layers": 30, "pattern": "axes_swapped",
}  # fmt: skip


@pytest.mark.parametrize(
    "shown",
    [
        sentences.detail(Finding("exact", Reason.TOKENS_DIFFER, _TOKENS)),
        sentences.sentence(Finding("digests", Reason.DIGEST_DIFFERS, _PAGES_WRONG)),
        f"{sentences.meaning(Reason.TOKENS_DIFFER)}: {sentences.pattern(_PAGES_WRONG)} (1 cell)",
    ],
)
def test_the_red_example_reads_as_reports_do(shown: str):
    assert shown in re.sub(r"\s*\n>?\s*", " ", (ROOT / "README.md").read_text())


@pytest.mark.parametrize("word", ["independent community build", "libnuma1", "python3-venv", "GB of disk", "minutes"])
def test_what_installing_takes(word: str):
    assert word in " ".join((ROOT / "README.md").read_text().split())


@pytest.mark.parametrize(
    ("name", "text"),
    [(page.name, text) for page in pages() for kind, text in page.blocks if kind == "toml" and "[connector]" in text],
)
def test_connectors_shown_as_files_load(name: str, text: str, tmp_path: Path):
    path = tmp_path / "shown.toml"
    path.write_text(text)
    assert load_generic(str(path)).name == "mine"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (page.name, text)
        for page in pages()
        for kind, text in page.blocks
        if kind == "toml" and "[connector]" not in text and "[project" not in text
    ],
)
def test_settings_shown_as_files_are_read(name: str, text: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shown.toml").write_text(text)
    assert cli.execute(["cells", "--config", "shown.toml"]) == EXIT_PASS
    assert "layerwise" in capsys.readouterr().out


def test_both_first_pages_show_the_same_commands():
    english, korean = ({line.split("#")[0].strip() for line in _commands(page)} for page in _PAGES)
    assert korean <= english | {
        "MARU_REQUIREMENT=/path/to/maru ./scripts/maru",
        "./scripts/canary --connector maru",
    }


def _commands(page: str) -> list[str]:
    text = "".join(text for kind, text in Page(ROOT / page).blocks if kind == "")
    return [line for line in text.splitlines() if re.match(r"[A-Z_]+=|\./|\.venv", line)]
