"""Shares of a run on nodes that come and go: what was recorded is kept, and the whole is judged as one."""

from __future__ import annotations

import signal
import socket
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from e2e.base.errors import EngineError, SettingsError, Stopped, UsageError
from e2e.base.event import Event
from e2e.fleet import cluster
from e2e.fleet.command import LOSSES, needed, play
from e2e.fleet.node import Told
from e2e.fleet.share import Need, Share
from e2e.fleet.whole import Whole
from e2e.judge import judge
from e2e.recording.journal import encode, read
from e2e.settings.settings import Settings

sys.path.insert(0, str(Path(__file__).parent.parent / "golden"))
import golden
from shards import parted


@pytest.fixture(scope="module")
def real() -> list[Event]:
    return read(golden.recording("grid"))


@pytest.fixture(scope="module")
def recorded(real) -> dict[str, bytes]:
    """Engine key -> what a node records of it."""
    shares = parted(real)
    return {key: b"".join(encode(event, seq) for seq, event in enumerate(of)) for key, of in shares.items()}


@pytest.fixture
def whole(tmp_path, real, recorded) -> Iterator[Whole]:
    with Whole(Settings.recorded({"out": tmp_path / "run"})) as made:
        for number, key in enumerate(recorded, start=1):
            cells = [e["cell"] for e in real if e.kind == "plan.cell" and e["engine_key"] == key]
            made.add((number, len(recorded)), key, cells, Need(1))
        yield made


class Nodes:
    """``scripts``: engine key -> for each task that is started, what it tells; a number of bytes is so much of its
    recording from where the last one ended."""

    def __init__(self, recorded: dict[str, bytes], scripts: dict[str, Sequence[Sequence]]) -> None:
        self._recorded, self._scripts = recorded, {key: [*tasks] for key, tasks in scripts.items()}
        self.begun: dict[str, list[bytes]] = defaultdict(list)
        self._at: dict[Share, list] = {}

    @property
    def busy(self) -> bool:
        return bool(self._at)

    def start(self, share: Share) -> None:
        self.begun[share.key].append(share.begin())
        self._at[share] = [*self._scripts[share.key].pop(0)]

    def end(self, share: Share) -> None:
        del self._at[share]

    def answers(self, *, limit_s: float) -> Iterator[tuple[Share, Told]]:
        for share, tasks in [*self._at.items()]:
            told = tasks.pop(0)
            if isinstance(told, int):
                told = Told(self._recorded[share.key][share.recorded : share.recorded + told], b"on the way\n")
            yield share, told


ALL = 1 << 30


def lines(content: bytes, share: float) -> int:
    """Bytes of about so much of it, in whole lines."""
    return content.rfind(b"\n", 0, int(len(content) * share)) + 1


def assert_is_the_whole(whole: Whole, real: list[Event]) -> None:
    said, before = ([asdict(cell) for cell in judge(of).cells] for of in (read(whole.recording), real))
    for cell, was in zip(said, before, strict=True):
        cell.pop("attempt"), was.pop("attempt")
        assert cell == was


def test_what_two_nodes_record_is_the_run(whole, real, recorded, capsys):
    first, second = recorded
    play(whole, Nodes(recorded, {first: [[ALL, Told(code=0)]], second: [[2000, ALL, Told(code=0)]]}))
    assert whole.report() == 0
    assert_is_the_whole(whole, real)
    captured = capsys.readouterr()
    assert "16 of 16 pass" in captured.out
    assert f"{first}: on the way\n" in captured.err


def test_what_a_lost_node_recorded_is_gone_on_with(whole, real, recorded, capsys):
    first, second = recorded
    half = lines(recorded[second], 0.5)
    scripts = {first: [[ALL, Told(code=0)]], second: [[half, Told(lost="its node died")], [ALL, Told(code=0)]]}
    nodes = Nodes(recorded, scripts)
    play(whole, nodes)
    assert nodes.begun == {first: [b""], second: [b"", recorded[second][:half]]}
    whole.write()
    assert_is_the_whole(whole, real)
    assert f"{second}: lost (its node died); another task goes on with it" in capsys.readouterr().err


def test_a_run_that_is_killed_on_its_node_is_lost_too(whole, recorded):
    first, second = recorded
    nodes = Nodes(recorded, {first: [[ALL, Told(code=-9)], [Told(code=0)]], second: [[ALL, Told(code=1)]]})
    play(whole, nodes)
    assert nodes.begun[first] == [b"", recorded[first]]


def test_what_is_lost_too_often_is_told_after_the_rest_has_ended(whole, recorded):
    first, second = recorded
    part, gone = lines(recorded[first], 0.3), Told(lost="gone")
    scripts = {first: [[part, gone], *[[gone]] * LOSSES], second: [[0] * 9 + [ALL, Told(code=0)]]}
    with pytest.raises(EngineError, match=rf"{first} was lost {LOSSES + 1} times \(gone\); --resume goes on with it"):
        play(whole, Nodes(recorded, scripts))
    whole.write()
    assert judge(read(whole.recording)).exit_code == 3, "what was planned and did not end is no pass"


def test_what_every_node_would_refuse_is_told_in_its_words(whole, recorded):
    first, second = recorded
    refused = [Told(said=b"maru-e2e: no vLLM is installed here; run maru-e2e setup.\n", code=2)]
    with pytest.raises(SettingsError, match=f"^engine key {first}: no vLLM is installed here; run maru-e2e setup.$"):
        play(whole, Nodes(recorded, {first: [refused], second: [[ALL, Told(code=0)]]}))
    assert whole.write(), "the other share is kept"


def test_a_later_driver_starts_what_is_not_whole(whole, recorded):
    first, second = recorded
    half = recorded[second][: len(recorded[second]) // 2]
    for share, content in zip(whole.shares, (recorded[first], half), strict=True):
        share.folder.mkdir()
        share.recording.write_bytes(content)
    nodes = Nodes(recorded, {second: [[ALL, Told(code=0)]]})
    play(whole, nodes)
    assert nodes.begun == {second: [half[: lines(half, 1)]]}
    whole.write()
    assert judge(read(whole.recording)).exit_code == 0


def test_two_drivers_share_no_folder(whole):
    other = Whole(Settings.recorded({"out": whole.recording.parent}))
    with pytest.raises(UsageError, match=r"another run is writing .*; wait for it or choose another --out"):
        other.__enter__()


def test_nothing_recorded_is_no_report(whole):
    with pytest.raises(UsageError, match="nothing was recorded in"):
        whole.report()


def key(name: str, ranks: int = 1) -> SimpleNamespace:
    return SimpleNamespace(key=name, ranks=ranks)


def test_a_task_takes_as_many_gpus_as_it_has_ranks():
    nodes = [Need(4), Need(16, 2)]
    assert needed([key("one"), key("two", 2)], nodes, cuda=True) == {"one": Need(1, 1), "two": Need(1, 2)}
    with pytest.raises(SettingsError, match=r"four takes 4 GPUs and 1 CPU of one node, and no node .* has as much"):
        needed([key("four", 4)], nodes, cuda=True)


def test_a_task_on_a_cpu_takes_a_node():
    assert needed([key("one")], [Need(0), Need(4), Need(8)], cuda=False) == {"one": Need(4)}
    with pytest.raises(SettingsError, match=r"one takes 1 CPU of one node"):
        needed([key("one")], [Need(0)], cuda=False)


def test_without_ray_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    found = cluster.cluster(None, None, address=None, runtime_env=None)
    with pytest.raises(SettingsError, match=r"needs Ray; pip install maru-e2e\[ray\], or leave it out"):
        found.__enter__()


def test_a_signal_that_ray_s_own_handler_took_ends_the_run_as_ours_would(monkeypatch):
    def init(**_: object) -> None:
        sys.exit(signal.SIGTERM)

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with pytest.raises(Stopped) as stopped, cluster.cluster(None, None, address="auto", runtime_env=None):
        pass
    assert stopped.value.exit_code == 128 + signal.SIGTERM


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "nobody.invalid:{}"])
def test_a_cluster_that_is_not_there_is_one_sentence_before_ray_is_asked(address, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = address.format(taken.getsockname()[1])
        why = rf"^--executor ray: no Ray cluster answers at RAY_ADDRESS={address} \(.+\); start it, or unset"
        with pytest.raises(SettingsError, match=why), cluster.cluster(None, None, address=address, runtime_env=None):
            pass
