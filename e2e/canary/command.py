"""``maru-e2e canary``: from flags to a loop that runs, and to its exit code."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from e2e.attempt import machine, versions
from e2e.base import redact
from e2e.base.errors import EXIT_CORRUPT, EXIT_INCONCLUSIVE, EXIT_PASS, Stopped, UsageError
from e2e.canary import odds
from e2e.canary.budget import Bucket, Pauses, Share
from e2e.canary.choice import Choice
from e2e.canary.exported import Exported, served
from e2e.canary.lengths import Lengths
from e2e.canary.memory import Memory
from e2e.canary.prober import Prober
from e2e.canary.segments import Segments
from e2e.canary.stories import Units
from e2e.canary.target import Target
from e2e.canary.watch import Watch
from e2e.replay.client import EngineClient
from e2e.replay.prompts import documents
from e2e.report.escape import one_line
from e2e.settings.commands import CanaryFlags
from e2e.settings.world import program, secrets_beside

#: Holds nonce, secret and question of any tokenizer, and a default chunk.
LEAST = 256


def canary(flags: CanaryFlags, *, argv: tuple[str, ...]) -> int:
    """Probes until it is stopped. Exit codes: 0 loads were seen and none was wrong, 1 one was, 3 none was seen."""
    check(flags)
    segments = Segments(
        flags.out, keeps=flags.keeps, begin=lambda: _begin(flags, argv), secrets=secrets_beside(flags.key or "")
    )
    with closing(segments):
        memory = Memory(Units(flags.block, flags.chunk, flags.step))
        for _, events in segments.before():
            for event in events:
                if event.kind == "canary.probe":
                    memory.took(event)
        watch = watch_of(flags, segments, memory)
        wrong = memory.wrong
        try:
            with served(watch.exported, *flags.listen) as port:
                watch.say(f"/metrics and /healthz at {flags.listen[0] or '*'}:{port}, recordings in {flags.out}")
                watch.run()
        except Stopped as stopped:
            _tell(memory)
            if memory.wrong > wrong:
                stopped.exit_code = EXIT_CORRUPT
            raise
        _tell(memory)
    if memory.wrong > wrong:
        return EXIT_CORRUPT
    return EXIT_PASS if watch.loads else EXIT_INCONCLUSIVE


def check(flags: CanaryFlags) -> None:
    """Raises UsageError for flags that don't go together."""
    if not flags.targets:
        raise UsageError("a canary needs an engine in use; give --target http://HOST:PORT, once or more.")
    if len({*flags.targets}) != len(flags.targets):
        raise UsageError("--target names one engine twice; name each once.")
    if len(flags.targets) > 26:
        raise UsageError(
            f"--target names {len(flags.targets)} engines; one canary watches 26 at most, so start another."
        )
    if flags.api_key and flags.api_key_file:
        raise UsageError("--api-key and --api-key-file both give a key; give one.")
    if flags.chunk % flags.block:
        raise UsageError(f"--chunk {flags.chunk} is no multiple of --block {flags.block}; chunks hold whole blocks.")
    if flags.store is not None and flags.token_bytes is None:
        raise UsageError("--store says nothing without --token-bytes; give the bytes of a token's KV, such as 128K.")
    if flags.longest <= flags.chunk:
        raise UsageError(
            f"--longest {flags.longest} holds no chunk of {flags.chunk} and a token more; give a longer one."
        )


def watch_of(flags: CanaryFlags, segments: Segments, memory: Memory) -> Watch:
    targets = {name: _target(flags, name, url) for name, url in named(flags.targets).items()}

    def shared(one: str, other: str) -> bool:
        """Of one model. Whether they do share a store, hits tell."""
        models = [identity.model for name in (one, other) if (identity := targets[name].identity)]
        return len(models) == 2 and models[0] == models[1]

    prober = Prober(
        targets, segments, memory, documents=documents(flags.prompts_dir), answer=flags.max_tokens,
        limit_s=flags.request_limit_s, invariant=flags.batch_invariant, locates=flags.locates,
    )  # fmt: skip
    lengths = Lengths(min(LEAST, flags.longest), flags.longest)
    choice = Choice([*targets], lengths, memory, shared, resets=flags.resets)
    exported = Exported(targets.values(), token_bytes=flags.token_bytes, store=flags.store)
    return Watch(
        [*targets.values()], prober, choice, exported, flags.out, flags.max_tokens,
        seconds=flags.for_s, probes=flags.probes, say=_saying(secrets_beside(flags.key or "")),
    )  # fmt: skip


def _saying(hidden: frozenset[str]) -> Callable[[str], None]:
    """One line to whoever looks on, whatever a target brought into it."""

    def say(text: str) -> None:
        print(redact.without(one_line(text), hidden), file=sys.stderr, flush=True)

    return say


def named(urls: tuple[str, ...]) -> Mapping[str, str]:
    """``a``, ``b`` ... in the order in which they were given."""
    return {chr(ord("a") + number): url for number, url in enumerate(urls)}


def _target(flags: CanaryFlags, name: str, url: str) -> Target:
    per_s, stores = flags.tokens_a_minute / 60, may_store(flags)
    return Target(
        name, url, EngineClient(url, timeout_s=min(10.0, flags.request_limit_s), api_key=flags.key),
        Bucket(per_s, holds=float(flags.tokens_a_minute)),
        Bucket(stores / 3600, holds=stores / 4, level=stores / 4),
        Share(flags.share), Pauses(jitter=lambda: random.uniform(0.5, 1.5)),
    )  # fmt: skip


def may_store(flags: CanaryFlags) -> float:
    """Tokens of KV an hour, of each target. They may have one store, so its part is shared between them."""
    if flags.store is None or flags.token_bytes is None:
        return flags.store_tokens
    return min(flags.store_tokens, flags.store_share * flags.store / flags.token_bytes / len(flags.targets))


def _begin(flags: CanaryFlags, argv: tuple[str, ...]) -> dict[str, object]:
    asked = flags.model_dump(mode="json", exclude={"api_key", "api_key_file", "config"})
    return {
        "command": ["maru-e2e", *argv], "versions": versions(), "machine": machine(), "settings": asked,
        "wall_time": datetime.now(timezone.utc).isoformat(timespec="seconds"), "program": program(),
        "folder": str(Path.cwd()),
    }  # fmt: skip


def _tell(memory: Memory) -> None:
    number, every_s = memory.recent(time.time())
    for line in odds.sentences(number, memory.wrong, every_s):
        print(line, file=sys.stderr)
