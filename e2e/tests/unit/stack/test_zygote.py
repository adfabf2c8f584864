"""Forks of a zygote, on a stand-in for vLLM's server: they are what engines started anew are, and die with it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import requests

from e2e.stack.owned import ENGINE_MARK, MARK, marked
from e2e.stack.process import ProcessLauncher
from e2e.stack.spec import EngineSpec
from e2e.stack.zygote import Zygote
from e2e.waits import Outcome, wait

pytestmark = pytest.mark.parametrize("zygote", ["fork"], indirect=True)


@pytest.fixture
def launch(ledger, zygote, stand_in_path, tmp_path, recorded):
    """launch(zygote or None, **spec) -> an engine, stopped at the end of the test."""
    engines = []

    def launch(by, **spec):
        environ = {**os.environ, "PYTHONPATH": stand_in_path, "STAND_IN": "ready"}
        launcher = ProcessLauncher(ledger=ledger, environ=environ, zygote=by)
        settings = {
            "engine_key": "HND",
            "role": "baseline",
            "model": "none/such",
            "name": f"HND.{len(engines)}",
            **spec,
        }
        one = EngineSpec(**settings)
        engines.append(launcher.start(one, log_path=tmp_path / "logs" / f"{one.name}.log", record=recorded))
        return engines[-1]

    yield launch
    for engine in engines:
        engine.stop(1)


def _told(engine) -> dict:
    """What the engine says it was started with, with what differs from engine to engine by name."""
    engine.wait_ready(20)
    text = requests.get(f"{engine.url}/self", timeout=5).text
    for own, name in ((str(engine._tmp), "TMP"), (str(engine.port), "PORT"), (str(engine.log_path), "LOG")):
        text = text.replace(own, name)
    return json.loads(text.replace(f'"{engine.name}"', '"NAME"'))


def _how(recorded) -> list[str]:
    return [event["started"] for event in recorded if event.kind == "engine.start"]


def test_a_fork_has_what_a_start_anew_has(launch, zygote, recorded):
    first, *rest = [launch(by, layout=layout) for by, layout in ((zygote, "HND"), (None, "NHD"), (zygote, "NHD"))]
    anew, fork = map(_told, rest)
    assert _how(recorded) == ["fork", "stock", "fork"]
    assert fork["environ"].pop("VLLM_KV_CACHE_LAYOUT") == anew["environ"].pop("VLLM_KV_CACHE_LAYOUT") == "NHD"
    assert _told(first)["environ"]["VLLM_KV_CACHE_LAYOUT"] == "HND"
    assert fork == anew
    assert (fork["leads"], fork["main"], fork["cwd"], fork["tmp"]) == (True, "__main__", "TMP", "TMP")
    assert (fork["input"], fork["output"]) == ("/dev/null", ["LOG", "LOG"])


def test_each_fork_carries_its_own_mark_and_title(launch, zygote, run_id):
    pytest.importorskip("setproctitle")
    engines = [launch(zygote, name=name) for name in ("HND.connector.1.1", "HND.baseline." + "x" * 230)]
    for engine in engines:
        (process,) = marked(ENGINE_MARK, engine.name)
        assert process.pid == engine._child.handle.pid
        engine.wait_ready(20)
        assert "-m vllm.entrypoints.openai.api_server --host" in " ".join(process.cmdline())
    forks = {each._child.handle.pid for each in engines}
    assert {each.pid for each in marked(MARK, run_id)} == {zygote._popen.pid, *forks}


@pytest.mark.parametrize(
    "spec",
    [
        {"env": {"VLLM_LOGGING_CONFIG_PATH": "/x.json"}},
        {"env": {"OMP_NUM_THREADS": "7"}},
        {"env": {"PYTHONPATH": "/elsewhere"}},
        {"env": {"VLLM_CPU_OMP_THREADS_BIND": "auto"}},
        {"env": {"MY_CONNECTOR": "x"}},
        {"device": "cuda"},
    ],
)
def test_what_the_imports_have_read_can_t_change_in_a_fork(launch, zygote, recorded, spec):
    launch(zygote)
    engine = launch(zygote, **spec)
    assert _how(recorded) == ["fork", "stock"]
    told = _told(engine)["environ"]
    assert all(told[name].startswith(value) for name, value in spec.get("env", {}).items())


def test_another_interpreter_starts_its_engines_anew(launch, zygote):
    engine = launch(zygote)
    assert zygote.fits(engine._environment(), python=engine._launcher.python)
    assert not zygote.fits(engine._environment(), python="/elsewhere/python")


def test_a_killed_zygote_takes_its_engines_along_and_is_replaced(launch, zygote, recorded, run_id):
    engine = launch(zygote)
    engine.wait_ready(20)
    first = zygote._popen.pid
    os.kill(first, signal.SIGKILL)
    assert wait(lambda: not engine.alive(), limit_s=5) is Outcome.READY
    assert wait(lambda: not list(marked(MARK, run_id)), limit_s=5) is Outcome.READY
    assert engine._child.ended_with() == "SIGKILL (out of memory?)"
    again = launch(zygote)
    again.wait_ready(20)
    assert zygote._popen.pid != first
    assert _how(recorded) == ["fork", "fork"]


def test_nothing_is_left_when_it_is_closed(launch, zygote, run_id):
    engine = launch(zygote)
    engine.wait_ready(20)
    zygote.close()
    assert not engine.alive()
    assert wait(lambda: not list(marked(MARK, run_id)), limit_s=5) is Outcome.READY


def test_imports_that_fail_are_told_and_the_engine_starts_anew(launch, ledger, stand_in_path, recorded):
    broken = Path(stand_in_path.partition(os.pathsep)[0]) / "broken.py"
    broken.write_text("raise ValueError('these imports refuse')")
    with Zygote(ledger=ledger, modules=["broken"]) as other:
        launch(other).wait_ready(20)
    (note,) = [event["text"] for event in recorded if event.kind == "note"]
    assert note == "engine HND.0 is started anew: the zygote ended (ValueError: these imports refuse)"


def test_modules_that_this_vllm_lacks_are_left_out(launch, ledger, recorded):
    with Zygote(ledger=ledger, modules=["no.such.module", "vllm.entrypoints.openai.api_server"]) as other:
        launch(other).wait_ready(20)
    assert recorded.kinds() == ["engine.start", "engine.ready"]
