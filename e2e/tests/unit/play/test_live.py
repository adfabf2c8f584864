"""The real world around a launcher that starts nothing: what is recorded of a start that fails, and kept to itself."""

from __future__ import annotations

import io
import sys
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake import own

from e2e.base.cell import Cell
from e2e.base.connector import ConnectorConfig, ServiceSpec
from e2e.base.errors import EngineAnswer, EngineCrashed, EngineRefused
from e2e.base.program import Cold, Happened, Program, Send, Site, Text
from e2e.material import Material
from e2e.play import live
from e2e.play.live import LiveWorld
from e2e.play.prompting import Prompts
from e2e.play.site import LONGEST_SALT, LiveEngine, salted
from e2e.play.world import Scene
from e2e.recording.journal import Journal, read
from e2e.report.progress import Progress
from e2e.settings.settings import Settings
from e2e.stack.ledger import Ledger
from e2e.stack.owned import RunFile
from e2e.stack.spec import EngineSpec

NAME, KEY, SITE = "HND.connector.1.1", "tok-1234567890abcdef", Site("connector")


@pytest.fixture
def world(tmp_path, monkeypatch):
    (tmp_path / "pools").mkdir()
    monkeypatch.setattr(live, "shared_memory", lambda: tmp_path / "pools")
    made_of = Material("python", "model", None, None, (), None)
    with (
        Ledger(run_id=f"t{tmp_path.name[-30:]}", state_dir=tmp_path / "state") as ledger,
        Journal(tmp_path / "recording.jsonl") as journal,
    ):
        prompts = Prompts((), None, run="r/1")
        yield LiveWorld(Settings(out=tmp_path), made_of, journal.record, prompts, "r", 1, ledger, None)


def scene(connector, program=None):
    spec = EngineSpec(name=NAME, engine_key="HND", role="connector", model="m", connector=connector)
    part = SimpleNamespace(key="HND", spec=lambda site, name, model, pool_dir: replace(spec, name=name, model=model))
    return Scene(part, program or own())


def server(code, **more):
    return ServiceSpec(name="pool", argv=(sys.executable, "-c", code), cure="give it one", **more)


class Launcher:
    @contextmanager
    def start(self, spec, *, log_path, record):
        log_path.parent.mkdir(parents=True)
        log_path.write_text(f"args: {spec.connector.extra} {spec.connector.env}\n")
        (state,) = (log_path.parents[1] / "state").glob("*.json")
        assert RunFile.read(state).logs == [str(log_path.with_suffix(""))], "it is known before the engine starts"
        yield SimpleNamespace(wait_ready=self.refuse, stop=lambda limit_s: None)

    def refuse(self, limit_s):
        raise EngineRefused("it ended")


def test_what_an_engine_that_never_got_ready_was_told_in_confidence_stays_in_no_log(world, tmp_path, monkeypatch):
    monkeypatch.setattr(LiveWorld, "_launcher", lambda self: Launcher())
    screen = io.StringIO()
    told = scene(ConnectorConfig("Mine", env={"MY_TOKEN": KEY}, extra={"db_password": f"of-{KEY}"}))
    with pytest.raises(EngineRefused), world.store(told.part, NAME) as store, world.engine(told, SITE, NAME, store):
        pass
    with Progress(screen, {}) as progress:
        progress.say(world.without_secrets(f"the engine said {KEY}"))
    assert (tmp_path / "logs" / f"{NAME}.log").read_text().count("(redacted)") == 2
    assert KEY not in screen.getvalue()


def test_logs_of_a_store_that_engines_share_are_known_to_whoever_cleans_up(world, monkeypatch):
    known = []

    class Peeking(Launcher):
        def start(self, spec, *, log_path, record):
            known.extend(RunFile.read(world.ledger.path).logs)
            raise EngineRefused("it ended")

    monkeypatch.setattr(LiveWorld, "_launcher", lambda self: Peeking())
    told = scene(ConnectorConfig("Mine", env={"MY_TOKEN": KEY}))
    with (
        pytest.raises(EngineRefused),
        world.store(told.part, "HND.store.1") as store,
        world.engine(told, SITE, NAME, store),
    ):
        pass
    assert [path.rpartition("/")[2] for path in known] == [NAME, "HND.store.1"]
    assert RunFile.read(world.ledger.path).logs == []


def test_a_server_that_does_not_start_fails_the_engine(world, tmp_path):
    told = scene(ConnectorConfig("Mine", services=(server("raise SystemExit('no pool')", ready="never"),)))
    with (
        pytest.raises(EngineRefused, match="pool is of no use"),
        world.store(told.part, NAME) as store,
        world.engine(told, SITE, NAME, store),
    ):
        pass
    began, failed = [event for event in read(tmp_path / "recording.jsonl") if event.kind != "note"]
    assert (began.kind, began["launcher"], began["engine"]) == ("engine.start", "service", NAME)
    assert began["log"] == str(tmp_path / "logs" / f"{NAME}.pool.log")
    assert (failed.kind, failed["stage"], failed["log_tail"]) == ("engine.failed", "start", "no pool")
    assert list((tmp_path / "pools").glob("*/*/*")) == []


def test_a_server_that_died_fails_the_engine_that_runs(world, tmp_path):
    client = SimpleNamespace(metrics=None, collective_rpc=None)
    settings = Settings(out=tmp_path, digests=False)
    about = {"role": "connector", "attempt": 1, "argv": [], "launcher": "process", "log": None}
    world.record("engine.start", engine=NAME, engine_key="HND", **about)
    with world.store(None, NAME) as store:
        engine = LiveEngine(NAME, SITE, None, client, None, store, {}, None, settings, None, world.record, "r.1")
        store.serve([server("print('up', flush=True); import time; time.sleep(0.1)", ready="up")])
        store.services[0].child.handle.wait(30)
        with pytest.raises(EngineCrashed):
            engine.check()
    failed = read(tmp_path / "recording.jsonl")[-1]
    assert (failed.kind, failed["engine"], failed["stage"]) == ("engine.failed", NAME, "run")
    assert failed["cause"] == "pool ended with exit code 0 under a running engine"
    assert (failed["log"], failed["log_tail"]) == (str(tmp_path / "logs" / f"{NAME}.pool.log"), "up")


def test_an_engine_is_given_the_weights_and_adapters_that_its_site_needs(world, monkeypatch):
    given = []

    class Looking(Launcher):
        def start(self, spec, *, log_path, record):
            given.append(spec)
            raise EngineRefused("it ended")

    monkeypatch.setattr(LiveWorld, "_launcher", lambda self: Looking())
    monkeypatch.setattr(live, "other_weights", lambda model, seed, python: f"{model} {seed}")
    monkeypatch.setattr(live, "adapter", lambda model, seed, python: f"adapter {seed} of {model}")
    sites = (SITE, Site("other", weights=3))
    sends = (
        Send("cold", "connector", (0,), (Cold(),), lora=7),
        Send("cold", "other", (0,), (Cold(),)),
    )  # fmt: skip
    told = scene(ConnectorConfig("Mine"), Program(sites, (Text(9),), sends))
    with world.store(told.part, "HND.store.1") as store:
        for site in sites:
            with pytest.raises(EngineRefused), world.engine(told, site, f"HND.{site.name}.1", store):
                pass
    assert [(spec.model, dict(spec.adapters)) for spec in given] == [
        ("model", {"lora-7": "adapter 7 of model"}),
        ("model 3", {}),
    ]


def test_what_else_runs_or_ran_on_its_store_is_counted_where_it_is_claimed(world, tmp_path):
    gone, beside, mine = (SimpleNamespace(alive=lambda alive=alive: alive) for alive in (False, True, True))
    claims = (Cold(), Happened("engines_beside"), Happened("engines_ended"), Happened("preemptions"))
    program = Program((SITE,), (Text(9),), (Send("cold", "connector", (0,), claims),))
    told, settings = Scene(SimpleNamespace(key="K"), program), Settings(digests=False)
    world.record("engine.start", engine=NAME, engine_key="K", role="connector", attempt=1, argv=[], launcher="", log="")
    client = SimpleNamespace(metrics=None, collective_rpc=None)
    with world.store(None, NAME) as store:
        store.users += [gone, beside, mine]
        engine = LiveEngine(NAME, SITE, mine, client, None, store, {}, None, settings, None, world.record, "r.1")
        engine._tell(told, program.sends[0])
    seen = [event for event in read(tmp_path / "recording.jsonl") if event.kind == "step.seen"]
    assert [(event["what"], event["count"]) for event in seen] == [("engines_beside", 1), ("engines_ended", 1)]


def test_who_is_killed_amid_its_work_tells_how_much_of_it_was_cut_short(world, tmp_path):
    """The blow falls once its connector has begun, and what it never ended is counted when it is gone."""
    did = []
    store = SimpleNamespace(under_way=lambda engine, work="": did.append((engine, work)) or {"load": 0, "store": 2})
    mine = SimpleNamespace(kill=lambda: did.append("kill"))
    client, settings = SimpleNamespace(metrics=None, collective_rpc=None), Settings(digests=False)
    world.record("engine.start", engine=NAME, engine_key="K", role="connector", attempt=1, argv=[], launcher="", log="")
    engine = LiveEngine(
        NAME, SITE, mine, client, None, store, {"engine_id": "e"}, None, settings, None, world.record, "r.1",
        _place={"engine": NAME, "cell": None, "arm": "storing"},
    )  # fmt: skip
    engine.end(killed=True, amid="store")
    assert did == [("e", "store"), "kill", ("e", "")]
    seen = [event for event in read(tmp_path / "recording.jsonl") if event.kind == "step.seen"]
    assert [(event["arm"], event["what"], event["count"]) for event in seen] == [
        ("storing", "loads_cut_short", 0), ("storing", "stores_cut_short", 2),
    ]  # fmt: skip


class Gone:
    """Every request fails so."""

    def __init__(self, error):
        self.error = error

    def complete(self, *args, **more):
        raise self.error


@pytest.mark.parametrize("ended", [False, True])
def test_where_something_is_broken_a_refusal_is_forgiven_and_a_crash_only_of_an_engine_that_was_ended(
    world, tmp_path, ended
):
    made, settings = Prompts([" ".join(map(str, range(900)))], lambda text: text.split(), run="r/1"), Settings()
    program, adapter = own(), SimpleNamespace(request_params=lambda cell: None)
    made.build("K", program)
    told = Scene(SimpleNamespace(key="K", cells=()), program, None)
    cold = program.send(("one", "cold"))

    def sent(error):
        process = SimpleNamespace(kill=lambda: None)
        settings_ = settings.model_copy(update={"digests": False})
        client = Gone(error)
        client.metrics = client.collective_rpc = None
        engine = LiveEngine(NAME, SITE, process, client, None, None, {}, adapter, settings_, made, world.record, "r.1")
        if ended:
            engine.end(killed=True)
        engine.send(told, cold, forgiving=True)

    world.record("engine.start", engine=NAME, engine_key="K", role="connector", attempt=1, argv=[], launcher="", log="")
    sent(EngineAnswer("no", status=500))
    if ended:
        sent(EngineCrashed("gone"))
    else:
        with pytest.raises(EngineCrashed):
            sent(EngineCrashed("gone"))
    failed = [event["error"] for event in read(tmp_path / "recording.jsonl") if event.kind == "request.failed"]
    assert failed == ["EngineAnswer"] * 2 + ["EngineCrashed"] * (2 if ended else 1)


def test_a_send_may_bring_along_what_its_site_has_otherwise():
    asked = []
    adapter = SimpleNamespace(request_params=lambda cell: asked.append((cell.id, dict(cell.settings))))
    site = Site("one", settings={"placement": "index", "overlap": "off"})
    settings = Settings(digests=False)
    client = SimpleNamespace(metrics=None, collective_rpc=None)
    engine = LiveEngine(NAME, site, None, client, None, None, {}, adapter, settings, None, None, "r.1")
    cell = Cell({"placement": "kernel"})
    engine.params(cell, Send("other", "one", (0,), (Cold(),), settings={"overlap": "on"}))
    assert asked == [(cell.id, {"placement": "index", "overlap": "on"})]


def test_a_salt_is_as_long_as_vllm_takes_and_differs_where_its_words_do():
    assert salted("r.1", "cell", "") == "r.1.cell"
    long = "HND-" + "x" * LONGEST_SALT
    made = [salted("r.1", long, more) for more in ("", "own", "other")]
    assert {len(salt) for salt in made} == {LONGEST_SALT}
    assert len({*made}) == 3
    assert made[1] == salted("r.1", long, "own")
