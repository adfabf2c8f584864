"""Runs one arm: journals what must happen, then what is sent, then what came back."""

from __future__ import annotations

import random
import threading
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass

from e2e.base.errors import EngineAnswer, EngineError, EngineTimeout
from e2e.base.event import Record
from e2e.base.program import Hit, Text
from e2e.replay.client import EngineClient
from e2e.replay.prompts import Encode, Prompt, build_prompts, least_length
from e2e.replay.stream import Completion

#: What ``request.failed`` calls it when the client went away as it was told.
GONE = "ClientGone"
#: Output tokens of a warm-up answer: enough for the shapes of a decode step.
_WARM_TOKENS = 4


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How one Send goes out. ``cell`` None: it belongs to every cell of the engine key. ``params``: the cell's
    kv_transfer_params. ``salt``: equal for what may share KV. ``limit_s``: for one request. ``gone_s``,
    ``gone_tokens``: the client goes away after so many seconds or tokens, None: it waits for its answers. ``spread_s``:
    those at once go out within so many seconds, at moments that the Send's name decides. ``model``: who answers, None:
    the engine's own. ``forgives``: a request that fails so ends nothing, since something was broken on purpose."""

    engine: str
    cell: str | None
    arm: str
    params: Mapping[str, object] | None
    salt: str | None
    at_once: int = 1
    limit_s: float = 120.0
    max_tokens: int = 8
    gone_s: float | None = None
    spread_s: float = 0.0
    gone_tokens: int | None = None
    model: str | None = None
    forgives: Callable[[EngineError], bool] = lambda error: False

    @property
    def goes(self) -> bool:
        return self.gone_s is not None or self.gone_tokens is not None

    @property
    def place(self) -> dict[str, object]:
        return {"engine": self.engine, "cell": self.cell, "arm": self.arm}


def run_arm(
    client: EngineClient, how: Sending, *, prompts: Sequence[Prompt], hits: Sequence[Hit], record: Record
) -> list[Completion | None]:
    """Sends every prompt once and returns the answers in their order, None for a request that failed as it might.

    ``hits``: what each is to be served. The first EngineError ends the arm: requests on their way are waited for, no
    further one is sent, there is no arm.end.
    """
    if len(hits) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts, but {len(hits)} predictions")
    left: list[str] = []

    def send(prompt: Prompt, hit: Hit) -> Completion | None:
        request = f"{how.engine}.{how.cell or 'baseline'}.{how.arm}.{prompt.index}.{uuid.uuid4().hex[:8]}"
        _expect(how, prompt, hit, record)
        record(
            "request.sent", request=request, **how.place, prompt=prompt.index, params=how.params, salt=how.salt,
            **({"model": how.model} if how.model else {}),
        )  # fmt: skip
        try:
            answer = client.complete(
                prompt.token_ids,
                request_id=request,
                max_tokens=how.max_tokens,
                cache_salt=how.salt,
                model=how.model,
                kv_transfer_params=dict(how.params) if how.params is not None else None,
                limit_s=how.limit_s if how.gone_s is None else how.gone_s,
                most_tokens=how.gone_tokens,
            )
        except EngineError as error:
            gone = how.goes and isinstance(error, EngineTimeout)
            left.extend([request] if gone else [])
            told = GONE if gone else type(error).__name__
            status = getattr(error, "status", None)
            record("request.failed", request=request, error=told, message=str(error), status=status)
            error.recorded = True
            if gone or how.forgives(error):
                return None
            raise
        # prompt_tokens equals what was sent, else the client would have raised
        done = {key: value for key, value in asdict(answer).items() if key != "prompt_tokens"}
        record("request.done", request=request, **done)
        return answer

    record("arm.begin", **how.place)
    jobs = list(zip(prompts, hits, strict=True))
    answers = [send(*job) for job in jobs] if how.at_once == 1 else _at_once(send, jobs, how)
    if how.goes:
        record("step.seen", **how.place, what="gone", count=len(left))
    record("arm.end", **how.place)
    return answers


def _expect(how: Sending, prompt: Prompt, hit: Hit, record: Record) -> None:
    least = {"least_local": hit.local.least, "least_external": hit.external.least}
    loose = hit.local.least < hit.local.most or hit.external.least < hit.external.most
    record(
        "expect.hit",
        **how.place, prompt=prompt.index, tokens=len(prompt), local=hit.local.most, external=hit.external.most,
        digest=prompt.digest, **(least if loose else {}),
    )  # fmt: skip


def _at_once(send: Callable[..., Completion | None], jobs: Sequence[tuple], how: Sending) -> list[Completion | None]:
    failed = threading.Event()

    def run(job: tuple, after_s: float) -> Completion | None:
        if failed.wait(after_s):
            return None
        try:
            return send(*job)
        except BaseException:
            failed.set()
            raise

    threads = ThreadPoolExecutor(max_workers=how.at_once, thread_name_prefix="replay")
    try:
        after = moments(how.arm, len(jobs), how.spread_s)
        futures = [threads.submit(run, *both) for both in zip(jobs, after, strict=True)]
        wait(futures)
    except BaseException:  # a signal: what is on its way ends with the engine
        failed.set()
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    threads.shutdown()
    return [future.result() for future in futures]


def moments(name: str, number: int, spread_s: float) -> list[float]:
    """When each of so many goes out, in seconds: the same under the same name."""
    seeded = random.Random(name)
    return [seeded.uniform(0, spread_s) for _ in range(number)]


def forget(client: EngineClient, *, place: Mapping[str, object], record: Record, limit_s: float = 30.0) -> bool:
    """Empties vLLM's own prefix cache. False when that was refused: some block is in use, by a store in flight or by
    somebody else. vLLM up to 0.25 does not tell whether it did; what the next Send was served then does. An engine
    that can't (no dev mode) is recorded with ok false; a dead one raises."""
    try:
        ok, tries = client.reset_prefix_cache(limit_s)
    except EngineAnswer as error:
        record("note", text=str(error), engine=place["engine"])
        ok, tries = False, 1
    record("reset.local", **place, ok=ok, tries=tries)
    return ok is not False


def scribble(
    client: EngineClient, *, place: Mapping[str, object], record: Record, free: bool, at_work: Callable[[], int],
    limit_s: float = 30.0,
) -> None:  # fmt: skip
    """Writes random values over all blocks, so that a load which writes nothing can't find the right bytes still lying
    there. Not unless blocks are ``free`` (the reset was not refused) nor while the engine is ``at_work`` on so many
    requests: the rig must not spoil what it judges. Without the worker extension it is recorded with ok false."""
    seed, blocks = zlib.crc32("/".join(map(str, place.values())).encode()), None
    if free:
        if busy := at_work():
            text = f"Blocks were not overwritten: {busy} requests of others are at work."
            record("note", text=text, engine=place["engine"])
        else:
            blocks = _overwrite(client, engine=str(place["engine"]), record=record, seed=seed, limit_s=limit_s)
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


def warm_up_prompts(
    documents: Sequence[str], encode: Encode, *, step: int | None, longest: int, more: Sequence[int] = (), nonce: str
) -> list[Prompt]:  # fmt: skip
    """One a little longer than one prefill step of ``step`` tokens, so that a full and a last step get warm, and one of
    each of ``more`` lengths; never longer than the ``longest`` that is replayed, for which the engine was made."""
    least = least_length(encode)
    first = min((step or 0) + least, longest)
    lengths = dict.fromkeys([first, *(length for length in more if least <= length <= longest)])
    return build_prompts(documents, encode, texts=[*map(Text, lengths)], nonce=f"{nonce}/warm-up")


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
