"""What a resumed run takes over from the attempts before it. Pure functions of the events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from e2e.base.errors import UsageError
from e2e.base.event import Event
from e2e.base.program import program_of


def next_attempt(events: Iterable[Event]) -> int:
    """Attempts count from 1; a kill before ``run.end`` uses up its number too, so every attempt has its own nonce."""
    return max((int(event["attempt"]) for event in events if event.kind == "run.begin"), default=0) + 1


def finished(events: Sequence[Event]) -> frozenset[str]:
    """Ids of the cells that need not run again: ended in some attempt, and with it, where its program is lent a plain
    engine, what that was sent for its engine key: another attempt has another nonce, so its answers are to other
    prompts."""
    plans = {(e["cell"], e["attempt"]): e for e in events if e.kind == "plan.cell"}
    baselines = {(e["engine_key"], e["attempt"]) for e in events if e.kind == "baseline.end"}
    ended = ((e["cell"], e["attempt"]) for e in events if e.kind == "cell.end")
    return frozenset(
        str(cell)
        for cell, attempt in ended
        if (plan := plans.get((cell, attempt)))
        and (not _is_lent_a_plain_one(plan) or (plan["engine_key"], attempt) in baselines)
    )


def _is_lent_a_plain_one(plan: Event) -> bool:
    """A recording from before there were programs holds reruns only."""
    try:
        return bool(program_of(plan["program"]).shared)
    except (KeyError, ValueError):
        return bool(plan["baseline"])


def settings_of(events: Iterable[Event]) -> Mapping[str, object]:
    """The settings of the first attempt, which later ones continue. Raises UsageError when no attempt began."""
    for event in events:
        if event.kind == "run.begin":
            return dict(event["settings"])  # type: ignore[call-overload]
    raise UsageError("there is nothing to resume: the recording holds no run; start it without --resume")


def check_same(before: Mapping[str, object], now: Mapping[str, object], *, ignore: Iterable[str] = ()) -> None:
    """Raises UsageError when a resumed run would measure something else than the attempts before it."""
    if changed := differing(before, now, ignore=ignore):
        key = changed[0]
        raise UsageError(
            f"--resume can't change {', '.join(changed)} ({key}: {before.get(key)!r} before, {now.get(key)!r} now); "
            "leave it out, or start a new run in another --out"
        )


def differing(one: Mapping[str, object], other: Mapping[str, object], *, ignore: Iterable[str] = ()) -> list[str]:
    """Names of the settings that two runs have not alike."""
    skip = set(ignore)
    return sorted(key for key in one.keys() | other.keys() if key not in skip and one.get(key) != other.get(key))
