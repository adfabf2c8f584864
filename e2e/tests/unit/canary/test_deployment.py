"""The manifests are what Kubernetes takes, and run a command line that there is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from e2e import cli
from e2e.settings.parsers import toml

kubernetes_validate = pytest.importorskip("kubernetes_validate")
DEPLOYMENT = Path(__file__).parents[4] / "docker" / "canary" / "deployment.yaml"


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict]:
    return {each["kind"]: each for each in yaml.safe_load_all(DEPLOYMENT.read_text())}


def test_kubernetes_takes_them(manifests):
    assert {"Deployment", "ConfigMap", "PersistentVolumeClaim"} <= manifests.keys()
    for each in manifests.values():
        kubernetes_validate.validate(each, "1.31", strict=True)


def test_the_check_is_strict(manifests):
    wrong = yaml.safe_load(yaml.safe_dump(manifests["Deployment"]))
    wrong["spec"]["template"]["spec"]["securityContext"]["runAsGroop"] = 1000
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.31", strict=True)


def test_its_command_line_and_its_file_are_read(manifests, tmp_path, monkeypatch, capfd):
    """All but the address, which is not there: it is listened at first."""
    (container,) = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    path = tmp_path / "canary.toml"
    path.write_text(manifests["ConfigMap"]["data"]["canary.toml"])
    words = [word.replace("/etc/maru-canary/canary.toml", str(path)) for word in container["args"]]
    words = [word.replace("/var/lib/maru-canary", str(tmp_path / "out")) for word in words]
    monkeypatch.setenv("MARU_E2E_API_KEY", "")
    assert cli.execute([*words, "--listen", "192.0.2.1:9464"]) == 2
    assert "192.0.2.1:9464 can't be had" in capfd.readouterr().err
    assert toml(path)["listen"].endswith(f":{container['ports'][0]['containerPort']}")
