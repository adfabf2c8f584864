"""Every kind of page, made of real recordings, in a real browser: readable, accessible, and it asks for nothing."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import cli
from e2e.lab import report as placement
from e2e.report.html import LIMIT
from e2e.waits import until

pytestmark = pytest.mark.long
WHY = "it is not there: pip install -e '.[browser]'"
sync_api = pytest.importorskip("playwright.sync_api", reason=WHY)
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=WHY)

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
#: Debian's, Ubuntu's and Google's own names of it; playwright's would be one more download.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no browser is there: Debian's package chromium has one", allow_module_level=True)

PAGES = {
    "run": "runs/grid/report.html", "corrupt": "runs/decode-bench/report.html", "crash": "runs/crash/report.html",
    "stories": "runs/crowd-loads_exchanged/report.html", "faults": "runs/faults-kernel/scoreboard.html",
    "faults, each cell": "runs/faults-kernel/report.html", "gain": "runs/gain-hnd/gain.html",
    "placement": "placement/placement.html", "night": "nights/20260705T020000Z/summary.html",
    "nights": "nights/index.html", "index": "runs/index.html",
}  # fmt: skip
RUNS = ("golden/grid", "golden/decode-bench", "golden/crash", "golden/faults-kernel", "scenarios/crowd-loads_exchanged")
#: Of five nights one came to half its cells only, and so did the last.
NIGHTS = (1.0, 1.0, 0.5, 1.0, 0.5)
LOOKS = [(width, scheme) for width in (400, 1400) for scheme in ("light", "dark")]
#: What runs where a page refuses it leaves a trace; what a page asks for is heard by playwright.
WATCH = "addEventListener('securitypolicyviolation', e => (window.refused ??= []).push(e.violatedDirective))"


def recorded(name: str, folder: Path, *, share: float = 1.0) -> Path:
    """The recording in a folder of its own, the first ``share`` of its lines."""
    lines = gzip.decompress((RECORDINGS / f"{name}.jsonl.gz").read_bytes()).splitlines(keepends=True)
    folder.mkdir(parents=True)
    (folder / "recording.jsonl").write_bytes(b"".join(lines[: int(len(lines) * share)]))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("pages")
    for name in RUNS:
        cli.execute(["judge", str(recorded(name, root / "runs" / Path(name).name))])
    cli.execute(["gain", "--judge", str(recorded("h200/gain-hnd", root / "runs" / "gain-hnd"))])
    for number, share in enumerate(NIGHTS, 1):
        night = root / "nights" / f"2026070{number}T020000Z"
        cli.execute(["judge", str(recorded("golden/grid", night / "grid-embedded-default", share=share))])
        code = 0 if share == 1 else 3
        (night / "steps.tsv").write_text(f"selftest\t0\t60\tfaults\ngrid-embedded-default\t{code}\t60\trun\n")
        cli.execute(["night", str(night)])
    cli.execute(["placement", "--device", "cpu", "--out", str(root / "placement")])
    bench = json.loads(gzip.decompress((RECORDINGS / "h200" / "bench.json.gz").read_bytes()))
    regression = json.loads((root / "placement" / "regression.json").read_text())
    placement.write(regression, bench, directory=root / "placement")
    for each in ("runs", "nights"):
        cli.execute(["index", str(root / each)])
    return root


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM)
        yield launched
        launched.close()


@pytest.fixture
def opened(browser, folder):
    """Opens a page with all its folds unfolded; what it asked for stands in ``asked``."""
    contexts = []

    def open_page(name: str, width: int = 1400, scheme: str = "light", **how):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **how))
        page = contexts[-1].new_page()
        page.asked = []
        page.on("request", lambda request: page.asked.append(request))
        page.add_init_script(WATCH)
        page.goto((folder / PAGES[name]).as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_for_nothing_and_is_small(name, opened, folder):
    page = opened(name)
    assert [request.url for request in page.asked] == [(folder / PAGES[name]).as_uri()]
    assert page.evaluate("window.refused ?? []") == []
    assert all(page.evaluate("[...document.images].map(each => each.complete && each.naturalWidth > 0)"))
    assert (folder / PAGES[name]).stat().st_size < LIMIT + 100_000 <= 2_000_000


@pytest.mark.parametrize("name", PAGES)
def test_its_policy_refuses_scripts_and_the_network(name, opened):
    page = opened(name)
    page.asked.clear()
    page.evaluate("""() => {
        const add = (tag, about) => document.body.appendChild(Object.assign(document.createElement(tag), about));
        add("script", {textContent: "window.ran = true"});
        add("script", {src: "beside.js"});
        add("img", {src: "http://a.example/x.png"});
        add("div", {innerHTML: "<img src=x: onerror='window.ran = true'>"});
        add("iframe", {src: "index.html"});
    }""")
    kinds = {"script-src-elem", "script-src-attr", "img-src", "frame-src"}
    refused = until(
        lambda: {*page.evaluate("window.refused ?? []")}, lambda found: found >= kinds, limit_s=30, every_s=0.1
    )
    assert refused == kinds
    assert page.evaluate("window.ran") is None
    assert {request.failure for request in page.asked} == {"csp"}


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_runs_over_the_edge_and_all_can_be_read(name, width, scheme, opened):
    page = opened(name, width, scheme, bypass_csp=True)
    across, seen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert across <= seen == width
    found = axe.Axe().run(page).response
    assert found["passes"]
    serious = [
        f"{each['id']}: {node['html'][:200]}: {node['failureSummary']}"
        for each in found["violations"] if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]  # fmt: skip
    assert not serious, "\n".join(serious)
