"""One measurement of a comparison: vLLM's own cache is emptied, requests are sent at once, first tokens are timed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from e2e.replay.client import EngineClient
from e2e.replay.prompts import Prompt
from e2e.replay.stream import Completion

#: A first token needs no more; what follows would only cost time.
ONE_TOKEN = 1
#: What the id of every request here begins with; the cell's id comes next.
TIMED = "gain."


@dataclass
class Sender:
    """Requests of one cell on one engine, which its id names. ``params``: kv_transfer_params, ``salt``: equal for store
    and rerun."""

    client: EngineClient
    cell: str
    salt: str
    params: Mapping[str, object] | None
    limit_s: float
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(64, thread_name_prefix="gain"))

    def send(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """All at once; EngineError when one fails."""
        return list(self.threads.map(self._one, prompts))

    def store(self, prompts: Sequence[Prompt]) -> None:
        """A first run of each, one after the other, so that the connector has them."""
        for prompt in prompts:
            self._one(prompt)

    def forget_local(self) -> None:
        """Asks once: an engine that doesn't tell whether it did (vLLM up to 0.25) would be asked four times, a second
        in all. What the rerun was served is counted, so a reset that did not happen shows there."""
        self.client.reset_prefix_cache(0.0)

    def _one(self, prompt: Prompt) -> Completion:
        request_id = f"{TIMED}{self.cell}.{uuid.uuid4().hex[:12]}"
        return self.client.complete(
            prompt.token_ids, request_id=request_id, max_tokens=ONE_TOKEN, logprobs=None, cache_salt=self.salt,
            kv_transfer_params=dict(self.params) if self.params is not None else None, limit_s=self.limit_s,
        )  # fmt: skip


def timed_cell(request: str) -> str | None:
    """The cell whose timed request this is; None for any other request."""
    return request.removeprefix(TIMED).rpartition(".")[0] if request.startswith(TIMED) else None
