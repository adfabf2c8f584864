"""What a comparison parts before anything is written, and in which order it then runs; no engine is started."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake import FakeWorld

from e2e import gain
from e2e.base.errors import EngineTimeout, SettingsError
from e2e.connectors.embedded import Embedded
from e2e.connectors.example import Example
from e2e.connectors.offloading import Offloading
from e2e.gain import ORDERS, AxisGain, SpecGain, Wanted
from e2e.material import Material
from e2e.play.player import Player
from e2e.play.timed import Branch
from e2e.recording.journal import Journal, read
from e2e.report.progress import Progress
from e2e.settings.settings import Settings
from e2e.standing import Standing

MADE_OF = Material("python", "model", None, None, (), None)
ONE = ({"layout": "NHD", "storage_format": "chunkwise", "overlap": "off"},)


def wanted(**about):
    return Wanted(**{"concurrency": (1,), "repeats": 2, **about})


def axis(**settings):
    about = wanted(axis="placement", values=("index", "kernel"))
    return AxisGain(about, Settings(attention="strided", **settings), {"a": Embedded()}, MADE_OF)


def specs(**settings):
    about = wanted(specs=("one.toml", "two.toml"), rounds=2)
    return SpecGain(about, Settings(attention="strided", **settings), {"a": Embedded(), "b": Embedded()}, MADE_OF)


class Tokens(dict):
    """Every word of a text is a token, by its number."""

    def __missing__(self, word):
        self[word] = len(self)
        return self[word]


def ran(folder: Path, comparison, monkeypatch, *, fails=()):
    """``fails``: engine keys whose plain engine hangs. What is measured is not: no engine is there."""
    tokens = Tokens()
    texts = (" ".join(f"w{number}" for number in range(3000)),)
    made_of = replace(MADE_OF, texts=texts, encode=lambda text: [tokens[word] for word in text.split()])
    monkeypatch.setattr(comparison, "made_of", made_of)
    monkeypatch.setattr(Branch, "play", lambda self, engine, record: None)
    stream = io.StringIO()
    with Journal(folder / "recording.jsonl") as journal, Progress(stream, comparison.steps) as progress:
        standing = Standing(journal.record, directory=folder)
        world = FakeWorld(standing.record, {("send", key, "cold"): EngineTimeout("it hangs") for key in fails})
        world.run_id = "r"
        comparison.run(Player(world, standing, progress, 1, progress.say), "r")
    engines = [what[1] for what in world.did if what[0] == "start" and what[1] != "store"]
    return engines, stream.getvalue().splitlines(), read(folder / "recording.jsonl")


def test_an_axis_is_compared_on_one_engine_a_key(tmp_path, monkeypatch):
    comparison = axis(cells=ONE)
    assert comparison.steps == {"start": 2, "baseline": 1, "cell": 2, "branch": 1}
    engines, lines, events = ran(tmp_path, comparison, monkeypatch)
    assert [name.split(".")[1] for name in engines] == ["baseline", "connector"]
    counted = [line for line in lines if "starting" not in line and "replaying" not in line and "Connector" not in line]
    assert [line.split("]")[0] for line in counted] == ["[1/3", "[2/3", "[3/3"]
    assert "measured NHD-chunkwise-overlap_off" in counted[-1]
    assert len([event for event in events if event.kind == "plan.cell"]) == 2
    assert (tmp_path / "report.json").is_file()


def test_a_key_whose_baseline_hangs_is_given_up_and_its_cells_are_told(tmp_path, monkeypatch):
    comparison = axis(cells=({"storage_format": "chunkwise", "overlap": "off"},))
    engines, lines, _ = ran(tmp_path, comparison, monkeypatch, fails=("NHD",))
    assert [name.split(".")[0] for name in engines] == ["NHD", "HND", "HND"]
    assert sum("NHD-chunkwise-overlap_off-" in line for line in lines) == 2


def test_connectors_take_turns_on_engines_of_their_own(tmp_path, monkeypatch):
    comparison = specs(cells=ONE)
    turns = 2 * len(ORDERS[0])
    assert comparison.steps == {"start": 2 + turns, "baseline": 2, "cell": 2, "branch": turns}
    assert (comparison.starts("a"), comparison.starts("b")) == (4, 2)
    engines, lines, events = ran(tmp_path, comparison, monkeypatch)
    assert len(engines) == len(set(engines)) == 2 + turns
    assert sum("measured" in line for line in lines) == turns
    (plan,) = [event for event in events if event.kind == "gain.plan"]
    assert plan["names"] == {"a": "one", "b": "two"}
    cells = [event["cell"] for event in events if event.kind == "cell.begin"]
    assert sorted(cells) == sorted(plan["pairs"][0][side] for side in ("a", "b"))


def versus(**settings):
    about = wanted(specs=("embedded", "example"))
    made = Settings(attention="strided", lengths=(777,), **settings)
    return SpecGain(about, made, {"a": Embedded(), "b": Example()}, MADE_OF)


def test_connectors_with_axes_of_their_own_are_compared_where_they_share_a_setting():
    """Each other axis is at its default or as --cell says, and a load is what a run's would be."""
    (branch,) = versus(cells=({"layout": "HND", "storage_format": "layerwise"},)).branches.items()
    name, parts = branch
    assert name == "HND"
    (a,), (b,) = parts["a"].cells, parts["b"].cells
    assert (a.get("storage_format"), a.get("load")) == ("layerwise", "sync")
    assert (b.get("layout"), b.get("storage_format")) == ("HND", None)
    assert versus().branches.keys() == {"NHD", "HND"}


def test_what_gave_up_is_said_once(tmp_path, monkeypatch):
    comparison = specs(cells=ONE)
    (parts,) = comparison.branches.values()
    _, lines, _ = ran(tmp_path, comparison, monkeypatch, fails=(parts["a"].key,))
    assert sum("it hangs" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: AxisGain(wanted(axis="placement", values=("index", "kernel")), Settings(), {"a": Example()}, MADE_OF),
         "example can't choose placement per request"),
        (lambda: AxisGain(wanted(axis="layout", values=("NHD", "HND")), Settings(), {"a": Embedded()}, MADE_OF),
         "can't choose layout per request"),
        (lambda: axis(cells=({"placement": "index"},)), "no pair of cells differs in placement alone"),
        (lambda: SpecGain(wanted(specs=("a", "b")), Settings(), {"a": Embedded(), "b": Offloading()}, MADE_OF),
         "different prompt lengths"),
        (lambda: versus(cells=({"layout": "NHD"}, {"layout": "HND"}, {"load": "async"})),
         "NHD-chunkwise-overlap_off-index and .*-load_async, which the other does not tell apart; give one by --cell"),
        (lambda: versus(cells=({"layuot": "NHD"},)), "has no axis layuot"),
    ],
)  # fmt: skip
def test_what_can_not_be_compared_is_refused_when_it_is_planned(made, says):
    with pytest.raises(SettingsError, match=says):
        made()


def test_a_store_without_room_for_every_start_is_refused_before_anything_is_written(monkeypatch, tmp_path):
    monkeypatch.setattr(Embedded, "crowded", lambda self, *, starts: f"no room for {starts} starts.", raising=False)
    monkeypatch.setattr(gain, "material", lambda *args, **more: replace(MADE_OF, encode=list))
    made = Settings(attention="strided", lengths=(777,), out=tmp_path / "out", engine_python=sys.executable)
    with pytest.raises(SettingsError, match="connector embedded: no room for 12 starts"):
        gain.gain(made, wanted(specs=("embedded", "example"), rounds=3))
    assert not list(tmp_path.iterdir())
