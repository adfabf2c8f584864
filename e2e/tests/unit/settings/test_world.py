"""What the rig knows of itself."""

import subprocess
import sys

from e2e.settings import world
from e2e.settings.settings import Settings
from e2e.settings.world import commit, program, secrets


def git(folder, *words):
    done = subprocess.run(
        ["git", "-C", folder, "-c", "user.name=n", "-c", "user.email=n@example.invalid", *words],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_the_commit_of_a_clone_and_whether_it_was_changed(tmp_path):
    assert commit(tmp_path) is None
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("a")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "first")
    git(tmp_path, "tag", "v1")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit(tmp_path) == head
    (tmp_path / "file").write_text("b")
    assert commit(tmp_path) == f"{head}-dirty"


def test_the_program_is_named_so_that_any_folder_can_start_it(tmp_path, monkeypatch):
    (tmp_path / "maru-e2e").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["maru-e2e", "run"])
    assert program() == [str(tmp_path / "maru-e2e")]
    monkeypatch.setattr(sys, "argv", ["/somewhere/cli.py", "run"])
    assert program() == [sys.executable, "-m", "maru_e2e"]


def test_engines_and_services_never_see_the_key(monkeypatch):
    monkeypatch.setenv("MARU_E2E_API_KEY", "sk-secret")
    monkeypatch.setenv("MARU_E2E_MODEL", "smollm2")
    for inherited in (world.environment(), world.engine_environment(sys.executable)):
        assert "sk-secret" not in inherited.values()
        assert inherited["MARU_E2E_MODEL"] == "smollm2"


def test_the_working_folder_is_no_secret(monkeypatch):
    """A report's command to run a cell again begins with it."""
    for name, value in (("PWD", "/srv/maru-e2e"), ("OLDPWD", "/srv/other"), ("DB_PWD", "/srv/hunter22")):
        monkeypatch.setenv(name, value)
    assert {word for word in secrets(Settings()) if word.startswith("/srv/")} == {"/srv/hunter22"}
