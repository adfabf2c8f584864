"""Runs one arm: journals what must happen, then what is sent, then what came back."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict

from e2e.base.errors import EngineAnswer, EngineError
from e2e.base.event import ARMS, Record
from e2e.replay.client import EngineClient
from e2e.replay.prompts import Encode, Prompt, build_prompts, least_length
from e2e.replay.stream import Completion

#: Output tokens of a warm-up answer: enough for the shapes of a decode step.
_WARM_TOKENS = 4


def run_arm(
    client: EngineClient,
    *,
    engine: str,
    cell: str | None,
    arm: str,
    prompts: Sequence[Prompt],
    predictions: Sequence[tuple[int, int]],
    params: Mapping[str, object] | None,
    salt: str | None,
    record: Record,
    concurrency: int = 1,
    limit_s: float = 120.0,
    max_tokens: int = 8,
) -> list[Completion]:
    """Sends every prompt once and returns the answers in their order.

    ``cell`` is None for the baseline engine. ``predictions``: (local, external) tokens per prompt. ``params``: the
    cell's kv_transfer_params. ``salt``: equal for the arms of one cell, new for every cell. ``limit_s`` is for one
    request. The first EngineError ends the arm: requests on their way are waited for, no further one is sent, there is
    no arm.end.
    """
    if arm not in ARMS or (cell is None and arm not in ARMS[:2]):
        raise ValueError(f"{'the baseline' if cell is None else 'a cell'} has no arm {arm!r}")
    if len(predictions) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts, but {len(predictions)} predictions")
    place = {"engine": engine, "cell": cell, "arm": arm}

    def send(prompt: Prompt, prediction: tuple[int, int]) -> Completion:
        request = f"{engine}.{cell or 'baseline'}.{arm}.{prompt.index}.{uuid.uuid4().hex[:8]}"
        local, external = prediction
        record(
            "expect.hit",
            **place, prompt=prompt.index, tokens=len(prompt), local=local, external=external, digest=prompt.digest,
        )  # fmt: skip
        record("request.sent", request=request, **place, prompt=prompt.index, params=params, salt=salt)
        try:
            answer = client.complete(
                prompt.token_ids,
                request_id=request,
                max_tokens=max_tokens,
                cache_salt=salt,
                kv_transfer_params=dict(params) if params is not None else None,
                limit_s=limit_s,
            )
        except EngineError as error:
            status = getattr(error, "status", None)
            record("request.failed", request=request, error=type(error).__name__, message=str(error), status=status)
            error.recorded = True
            raise
        # prompt_tokens equals what was sent, else the client would have raised
        done = {key: value for key, value in asdict(answer).items() if key != "prompt_tokens"}
        record("request.done", request=request, **done)
        return answer

    record("arm.begin", **place)
    if concurrency == 1:
        answers = [send(*job) for job in zip(prompts, predictions, strict=True)]
    else:
        answers = _at_once(send, list(zip(prompts, predictions, strict=True)), concurrency)
    record("arm.end", **place)
    return answers


def _at_once(send: Callable[..., Completion], jobs: Sequence[tuple], concurrency: int) -> list[Completion]:
    failed = threading.Event()

    def run(job: tuple) -> Completion | None:
        if failed.is_set():
            return None
        try:
            return send(*job)
        except BaseException:
            failed.set()
            raise

    threads = ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="replay")
    try:
        futures = [threads.submit(run, job) for job in jobs]
        wait(futures)
    except BaseException:  # a signal: what is on its way ends with the engine
        failed.set()
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    threads.shutdown()
    return [future.result() for future in futures]


def between_arms(
    client: EngineClient,
    *,
    engine: str,
    cell: str | None,
    arm: str,
    record: Record,
    seed: int,
    limit_s: float = 30.0,
    at_work: Callable[[], int] = lambda: 0,
) -> None:
    """Before an external ``arm``: empties vLLM's own prefix cache, then writes random values over all blocks, so that a
    load which writes nothing can't find the right bytes still lying there.

    Nothing is overwritten after a refused reset, nor while the engine is ``at_work`` on so many requests: some block is
    in use, by a store in flight or by somebody else, and the rig must not spoil what it judges. vLLM up to 0.25 does
    not tell whether it did reset; what the arm was served then does. An engine that can do neither (no dev mode, no
    worker extension) is recorded with ok false; a dead one raises.
    """
    place = {"engine": engine, "cell": cell, "arm": arm}
    try:
        ok, tries = client.reset_prefix_cache(limit_s)
    except EngineAnswer as error:
        record("note", text=str(error), engine=engine)
        ok, tries = False, 1
    record("reset.local", **place, ok=ok, tries=tries)
    blocks = None
    if ok is not False:
        if busy := at_work():
            record("note", text=f"Blocks were not overwritten: {busy} requests of others are at work.", engine=engine)
        else:
            blocks = _overwrite(client, engine=engine, record=record, seed=seed, limit_s=limit_s)
    record("overwrite.free", **place, ok=blocks is not None, blocks=blocks or 0, seed=seed)


def _overwrite(client: EngineClient, *, engine: str, record: Record, seed: int, limit_s: float) -> int | None:
    """Overwritten blocks of the first rank; None when a rank did not do it."""
    try:
        results = client.collective_rpc("rig_overwrite_free_blocks", seed, timeout=limit_s)
    except EngineAnswer as error:
        record("note", text=str(error), engine=engine)
        return None
    counts = [result.get("blocks") if isinstance(result, dict) else None for result in results]
    return counts[0] if counts and all(isinstance(count, int) for count in counts) else None


def warm_up_prompt(documents: Sequence[str], encode: Encode, *, step: int | None, longest: int, nonce: str) -> Prompt:
    """A prompt a little longer than one prefill step of ``step`` tokens, so that a full and a last step get warm; never
    longer than the ``longest`` that is replayed, for which the engine was made."""
    length = min((step or 0) + least_length(encode), longest)
    return build_prompts(documents, encode, lengths=[length], nonce=f"{nonce}/warm-up")[0]


def warm_up(client: EngineClient, prompt: Prompt, *, limit_s: float = 300.0) -> None:
    """Sends a prompt twice, with logprobs and a salt of its own: the first request with logprobs costs a compile
    (docs/vllm.md#warm-up), and the second warms the path of a local hit. ``limit_s``: of the first, the second may take
    as long as any request. Not journaled: nothing of it is evidence."""
    salt = f"warm-up.{uuid.uuid4().hex}"
    for turn in ("cold", "local"):
        client.complete(
            prompt.token_ids,
            request_id=f"warm-up.{turn}.{uuid.uuid4().hex[:8]}",
            max_tokens=_WARM_TOKENS,
            cache_salt=salt,
            limit_s=limit_s if turn == "cold" else None,
        )
