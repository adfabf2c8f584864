"""One real engine for a test, without the flow around it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.base.event import Event
from e2e.replay.client import EngineClient
from e2e.replay.prompts import build_prompts, folder_tokenizer, read_documents
from e2e.stack.ledger import Ledger
from e2e.stack.model import prepare_model
from e2e.stack.process import ProcessLauncher
from e2e.stack.spec import EngineSpec

PROMPTS = Path(__file__).resolve().parents[2] / "prompts"


def prompts(lengths: list[int]) -> list[list[int]]:
    encode = folder_tokenizer(Path(prepare_model("smollm2")))
    built = build_prompts(read_documents(PROMPTS.glob("*.txt")), encode, lengths=lengths, nonce=uuid.uuid4().hex)
    return [list(prompt.token_ids) for prompt in built]


@contextmanager
def engine(tmp_path: Path, **settings) -> Iterator[EngineClient]:
    """``settings`` of EngineSpec. Stopped at the end; what it started is gone."""
    spec = {
        "name": "test", "engine_key": "test", "role": "connector" if settings.get("connector") else "baseline",
        "model": prepare_model("smollm2"), "layout": "HND", "block_size": 16, "dtype": "float32",
        "max_num_batched_tokens": 512, "max_model_len": 2048, "kv_cache_memory_bytes": 256 << 20,
        "attention": "strided", **settings,
    }  # fmt: skip
    run_id = f"test-{uuid.uuid4().hex[:12]}"
    with Ledger(run_id=run_id, state_dir=tmp_path / "state") as ledger:
        launcher = ProcessLauncher(ledger=ledger, environ=dict(os.environ))
        with launcher.start(EngineSpec(**spec), log_path=tmp_path / f"{run_id}.log", record=_record) as started:
            started.wait_ready(240)
            yield EngineClient(started.url, timeout_s=120)


def _record(kind: str, **data: object) -> Event:
    return Event(kind, data)


def ask(client: EngineClient, token_ids: list[int], *, salt: str = "s", params=None, max_tokens: int = 16):
    return client.complete(
        token_ids, request_id=uuid.uuid4().hex, max_tokens=max_tokens, cache_salt=salt, kv_transfer_params=params
    )
