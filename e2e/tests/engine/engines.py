"""Real engines for tests, without the flow around them; see the fixture ``engine``."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from e2e.base.connector import ConnectorConfig
from e2e.base.event import Event
from e2e.base.program import Text
from e2e.connectors.table import load
from e2e.grid.cells import expand
from e2e.grid.selection import Selection
from e2e.replay.client import EngineClient
from e2e.replay.prompts import build_prompts, folder_tokenizer, read_documents
from e2e.stack.ledger import Ledger
from e2e.stack.model import prepare_model
from e2e.stack.process import ProcessLauncher
from e2e.stack.spec import EngineSpec
from e2e.stack.store import Store
from e2e.stack.zygote import Zygote

PROMPTS = Path(__file__).resolve().parents[2] / "prompts"


def prompts(lengths: list[int]) -> list[list[int]]:
    encode = folder_tokenizer(Path(prepare_model("smollm2")))
    texts = [*map(Text, lengths)]
    built = build_prompts(read_documents(PROMPTS.glob("*.txt")), encode, texts=texts, nonce=uuid.uuid4().hex)
    return [list(prompt.token_ids) for prompt in built]


@dataclass(frozen=True)
class Engines:
    """``environ``: one for all, since an engine in another one than its zygote's is no fork."""

    ledger: Ledger
    zygote: Zygote
    logs: Path
    environ: dict[str, str]

    @contextmanager
    def __call__(self, *, start: str = "fork", **settings) -> Iterator[EngineClient]:
        """``settings`` of EngineSpec. Stopped at the end; what it started is gone."""
        spec = {
            "name": f"test.{uuid.uuid4().hex[:12]}", "engine_key": "test",
            "model": settings.get("model") or prepare_model("smollm2"),
            "role": "connector" if settings.get("connector") else "baseline", "layout": "HND", "block_size": 16,
            "dtype": "float32", "max_num_batched_tokens": 512, "max_model_len": 2048,
            "kv_cache_memory_bytes": 256 << 20, "attention": "strided", **settings,
        }  # fmt: skip
        launcher = ProcessLauncher(
            ledger=self.ledger, environ=self.environ, zygote=self.zygote if start == "fork" else None
        )

        def record(kind: str, **data: object) -> Event:
            assert data.get("started", start) == start
            assert kind != "note", data
            return Event(kind, data)

        with launcher.start(EngineSpec(**spec), log_path=self.logs / f"{spec['name']}.log", record=record) as started:
            started.wait_ready(240)
            yield EngineClient(started.url, timeout_s=120)

    def store(self, name: str, folder: Path, *, pools: Path | None = None) -> Store:
        """Its logs are in ``folder``, and so is its pool unless ``pools`` says where."""
        return Store(
            name, parent=pools or folder, ledger=self.ledger, environ=self.environ, log_dir=folder / "logs",
            record=lambda kind, **data: None,
        )  # fmt: skip


def embedded_on(store: Store, pool_bytes: int, **more: object) -> ConnectorConfig:
    """The embedded connector of an engine on this store. ``more``: keys of its configuration."""
    adapter = load("embedded", pool_bytes=pool_bytes)
    config = adapter.config(expand(Selection(), adapter).cells[0], pool_dir=str(store.folder), block_size=16)
    return store.give(replace(config, extra={**config.extra, **more}))


@contextmanager
def engines_of(folder: Path) -> Iterator[Engines]:
    """``folder``: of their logs and of the run's ledger."""
    with (
        Ledger(run_id=f"test-{uuid.uuid4().hex[:12]}", state_dir=folder / "state") as ledger,
        Zygote(ledger=ledger) as zygote,
    ):
        yield Engines(ledger, zygote, folder / "logs", dict(os.environ))


def ask(client: EngineClient, token_ids: list[int], *, salt: str = "s", params=None, max_tokens: int = 16):
    return client.complete(
        token_ids, request_id=uuid.uuid4().hex, max_tokens=max_tokens, cache_salt=salt, kv_transfer_params=params
    )
