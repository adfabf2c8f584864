"""No secret reaches a recording, whatever it stands under and wherever it turns up again."""

from __future__ import annotations

import json

import pytest

from e2e.base.redact import HIDDEN, is_secret, redacted, secrets, text
from e2e.recording.journal import Journal, read
from e2e.stack.confided import hide

KEY = "s3cr3t-9f8e7d6c"


NAMES = """
api_key API_KEY HF_TOKEN HUGGING_FACE_HUB_TOKEN accessKey aws_secret_access_key x-api-key apikey DB_PASSWORD passwd
credential credentials Authorization token key clientSecret private_key db_pwd --api-key OPENAI_API_KEY_2 auth_tokens
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_names_of_secrets(name):
    assert is_secret(name, KEY)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", "8"), ("chunk_tokens", 256), ("--max-num-batched-tokens", "512"), ("eos_token", "</s>"),
        ("token_ids", "1"), ("tokenizer", KEY), ("keyboard", KEY), ("monkey", KEY), ("api_key", None), ("api_key", ""),
        ("password", True), ("key_len", KEY), ("cached_tokens", "None"), ("num_keys", "12"),
        ("PWD", "/work"), ("OLDPWD", "/work"), ("CREDENTIALS_FILE", "/run/secrets"), ("PASSWORD_STORE_DIR", "/root"),
    ],
)  # fmt: skip
def test_names_of_none(name, value):
    assert not is_secret(name, value)


EVENTS = {
    "environment": ("env", {"HF_TOKEN": KEY, "VLLM_USE_V1": "1"}),
    "a flag and its word": ("argv", ["vllm", "--api-key", KEY, "--port", "1"]),
    "a flag with =": ("argv", [f"--api-key={KEY}"]),
    "a word of docker": ("argv", ["-e", f"DB_PASSWORD={KEY}"]),
    "extra config as JSON": (
        "argv",
        ["--kv-transfer-config", json.dumps({"extra": {"auth_token": KEY, "chunk": 256}})],
    ),
    "URL": ("argv", ["--url", f"http://user:{KEY}@host:8000/v1"]),
    "user of a URL": ("argv", ["--url", f"https://{KEY}@host/x"]),
    "a table in a table": ("env", {"outer": {"list": [{"password": KEY}]}}),
    "a list of them": ("env", {"tokens": [KEY]}),
}


@pytest.mark.parametrize("where", EVENTS)
def test_a_real_journal_has_it_nowhere(tmp_path, where):
    key, value = EVENTS[where]
    path = tmp_path / "recording.jsonl"
    with Journal(path) as journal:
        journal.record("note", text="first", **{key: value})
        journal.record("note", text=f"the engine said: 401 for {KEY}, of all things")
    content = path.read_text()
    assert KEY not in content
    first, later = read(path)
    assert HIDDEN in json.dumps(first.data)
    assert later["text"] == f"the engine said: 401 for {HIDDEN}, of all things"


def test_the_rest_of_an_event_stays(tmp_path):
    told = {
        "env": {"HF_TOKEN": KEY, "VLLM_USE_V1": "1"}, "max_tokens": 8, "lengths": [513, 1033], "ok": True, "gone": None,
        "argv": ["--max-num-batched-tokens", "512", "--cell", "chunk_tokens=256", "--model", "/m", "--no-cache", "x"],
        "engine_key": "HND", "text": "prompt tokens: 5, key: value, max_tokens=None, KeyError: 'layout'",
    }  # fmt: skip
    clean, known = redacted(told)
    assert clean == {**told, "env": {"HF_TOKEN": HIDDEN, "VLLM_USE_V1": "1"}}
    assert known == {KEY}


def test_a_short_one_goes_where_it_was_given_and_nothing_else_is_spoiled():
    clean, known = redacted({"env": {"PASSWORD": "on"}, "overlap": "on"})
    assert clean == {"env": {"PASSWORD": HIDDEN}, "overlap": "on"}
    assert not known


def test_ids_of_the_rig_are_left_alone():
    clean, _ = redacted({"cell": "HND-chunkwise", "text": "HND-chunkwise", "env": {"TOKEN": "HND-chunkwise"}})
    assert (clean["cell"], clean["text"]) == ("HND-chunkwise", HIDDEN)


@pytest.mark.parametrize(
    "line",
    [
        f"Authorization: Bearer {KEY}", f'{{"Authorization": "Bearer {KEY}"}}', f"curl -H 'X-Api-Key: {KEY}' http://h",
        f"GET /v1?token={KEY}&n=1", f"GET /v1?n=1&key={KEY}", f"http://u:{KEY}@h/", f"HF_TOKEN={KEY} vllm serve",
        f"vllm serve --api-key {KEY} --port 1", f"{{'api_key': '{KEY}', 'port': 1}}", f"password = '{KEY}'",
        f"Bearer {KEY}",
    ],
)  # fmt: skip
def test_what_a_line_itself_calls_a_secret(line):
    assert KEY not in text(line)
    assert HIDDEN in text(line)
    assert text(text(line)) == text(line)


def test_known_ones_are_found_in_an_environment_and_a_command_line():
    assert secrets({"MARU_E2E_API_KEY": KEY, "HOME": "/root"}) == {KEY}
    assert secrets(["run", "--attach", f"http://u:{KEY}@h", "--api-key", "another-one"]) >= {KEY, "another-one"}


def test_what_is_known_beforehand_is_never_written(tmp_path):
    path = tmp_path / "recording.jsonl"
    with Journal(path, secrets=frozenset({KEY})) as journal:
        journal.record("note", text=f"a\ud800b {KEY}")
    assert read(path)[0]["text"] == f"a?b {HIDDEN}"


def test_logs_of_an_engine_that_has_ended_lose_what_it_was_told_in_confidence(tmp_path):
    said = f"args: {{'token': '{KEY}'}}\r\n\xff".encode("latin-1")
    for name in ("HND.connector.1.2.log", "HND.connector.1.2.store.log", "HND.connector.1.22.log"):
        (tmp_path / name).write_bytes(said)
    hide(tmp_path, "HND.connector.1.2", {KEY})
    assert (tmp_path / "HND.connector.1.2.log").read_bytes() == said.replace(KEY.encode(), HIDDEN.encode())
    assert KEY.encode() not in (tmp_path / "HND.connector.1.2.store.log").read_bytes()
    assert (tmp_path / "HND.connector.1.22.log").read_bytes() == said
