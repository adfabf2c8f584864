"""What can go wrong before a container runs, without a Docker engine: each is one sentence with cause and cure."""

from __future__ import annotations

import pytest
from docker.errors import APIError, ImageNotFound

from e2e.base.connector import ConnectorConfig, ServiceSpec
from e2e.base.errors import EngineRefused, SettingsError
from e2e.stack import container
from e2e.stack.container import ContainerLauncher
from e2e.stack.containers import connect
from e2e.stack.owned import RunFile, here
from e2e.stack.reaper import reap
from e2e.stack.spec import EngineSpec

SPEC = EngineSpec(name="HND.baseline.1", engine_key="HND", role="baseline", model="none/such")
NOWHERE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


class FakeDocker:
    """Stands for ``client``, ``client.images`` and ``client.containers``; raises ``error`` at the named call."""

    def __init__(self, call: str = "", error: Exception | None = None) -> None:
        self.images = self.containers = self
        self.call, self.error = call, error
        self.removed: list[str] = []
        self.created: dict = {}

    def _maybe(self, call: str) -> None:
        if call == self.call:
            raise self.error

    def get(self, name: str) -> None:
        self._maybe("get")

    def list(self, **_: object) -> list:
        return []

    def create(self, image: str, **options: object) -> FakeDocker:
        self._maybe("create")
        self.created = {"image": image, **options}
        return self

    def start(self) -> None:
        self._maybe("start")

    def reload(self) -> None:
        self._maybe("reload")

    attrs = {"State": {"Status": "exited", "ExitCode": 1}}  # noqa: RUF012
    ports = {"8000/tcp": [{"HostPort": "4711"}]}  # noqa: RUF012

    def remove(self, **options: object) -> None:
        self.removed.append(str(options))

    def logs(self, **_: object) -> list[bytes]:
        return [b"hello\n"]


@pytest.fixture
def launch(ledger, monkeypatch):
    def launch(fake: FakeDocker, environ=None) -> ContainerLauncher:
        monkeypatch.setattr(container, "connect", lambda environ: fake)
        return ContainerLauncher(ledger=ledger, image="engine:1", environ=environ or {})

    return launch


def _refusal(words: str) -> APIError:
    return APIError("500 Server Error for http+docker://localhost", explanation=words)


def test_no_docker_engine():
    with pytest.raises(SettingsError) as refused:
        connect(NOWHERE)
    assert str(refused.value) == (
        "no Docker engine at unix:///nowhere/docker.sock: nobody answers there; start one (or join the group docker), "
        "or use --launcher process."
    )


def test_no_image(launch):
    with pytest.raises(SettingsError, match=r"image engine:1 is not here; build it"):
        launch(FakeDocker("get", ImageNotFound("none")))


def test_servers_beside_the_engine_are_refused(launch, tmp_path, recorded):
    config = ConnectorConfig("Some", services=(ServiceSpec(name="maru-server"),))
    spec = EngineSpec(name="x", engine_key="x", role="connector", model="none/such", connector=config)
    with pytest.raises(SettingsError, match="use --launcher process"):
        launch(FakeDocker()).start(spec, log_path=tmp_path / "x.log", record=recorded)
    assert recorded == []


@pytest.mark.parametrize(
    ("call", "words", "cure"),
    [
        ("create", "mkdir /x: no space left on device", "make room"),
        ("create", "invalid mount: bind source path does not exist: /m", "must see this machine's files"),
        ("start", "driver failed: Bind for 127.0.0.1:1 failed: port is already allocated", "start again"),
        ("start", 'could not select device driver "" with capabilities: [[gpu]]', "NVIDIA container toolkit"),
        ("start", "something new", "look at the Docker engine's log"),
    ],
)
def test_docker_refuses(launch, tmp_path, recorded, call, words, cure):
    fake = FakeDocker(call, _refusal(words))
    with pytest.raises(EngineRefused) as refused:
        launch(fake).start(SPEC, log_path=tmp_path / "x.log", record=recorded)
    assert refused.value.cause == words
    assert cure in str(refused.value)
    assert "http+docker" not in str(refused.value)
    assert len(fake.removed) == (call == "start")
    assert "engine.failed" in recorded.kinds()


def test_what_a_container_gets(launch, tmp_path, recorded, ledger):
    model, added = tmp_path / "model", tmp_path / "added"
    model.mkdir()
    added.mkdir()
    config = ConnectorConfig("Some", env={"PYTHONPATH": str(added)})
    spec = EngineSpec(name="x", engine_key="x", role="connector", model=str(model), connector=config, layout="HND")
    fake = FakeDocker()
    environ = {"HF_TOKEN": "t", "HOME": "/home/me", "PYTHONPATH": "/mine", "AWS_SECRET_ACCESS_KEY": "s"}
    engine = launch(fake, environ).start(spec, log_path=tmp_path / "x.log", record=recorded)
    engine.stop()
    assert engine.url == "http://127.0.0.1:4711"
    assert fake.created["command"] == spec.argv(8000, python="python", host="0.0.0.0")
    env = fake.created["environment"]
    assert (env["HF_TOKEN"], env["HOME"], env["PYTHONPATH"]) == ("t", "/tmp", str(added))
    assert env["VLLM_KV_CACHE_LAYOUT"] == "HND"
    assert "AWS_SECRET_ACCESS_KEY" not in env
    assert [(m["Source"], m["Target"], m["ReadOnly"]) for m in fake.created["mounts"]] == [
        (str(added), str(added), True),
        (str(model), str(model), True),
    ]
    assert fake.created["labels"]["maru-e2e.run"] == ledger.run_id
    assert fake.removed == ["{'force': True, 'v': True}"]
    assert (tmp_path / "x.log").read_text() == "hello\n"


def test_a_run_whose_containers_can_t_be_asked_for_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", NOWHERE["DOCKER_HOST"])
    path = tmp_path / "dead.json"
    RunFile(run_id="dead", where=here(), owner={"pid": 4194304, "created": 0}, containers=True).write(path)
    reap(state_dir=tmp_path)
    assert path.exists()
