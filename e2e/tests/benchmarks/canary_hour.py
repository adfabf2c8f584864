"""A canary beside two real engines on one store and their users: quiet while all is well, then a fault in one load in
ten, and an alert through Prometheus and Alertmanager. Do users notice the canary?

python -m e2e.tests.benchmarks.canary_hour [--minutes 60] [--probes 1000] [--out DIR]

The users' requests are asked twice, on engines of their own each time: with a canary, at their times, and meanwhile
without one, one right after the other. What they must not notice: their answers, token for token, and how much of each
came from a cache; with what the canary had itself, that is what vLLM's counters of hits say.
Figures go to DIR/hour.json, recordings to DIR/with/canary. Exit code 1 where anything is not as it must be.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue

from e2e.canary.odds import a_time, bound, needed
from e2e.observe.metrics import Snapshot
from e2e.recording.journal import read
from e2e.replay.client import EngineClient
from e2e.replay.stream import Completion
from e2e.settings.commands import CanaryFlags
from e2e.stack.cores import usable_cores
from e2e.tests.engine.engines import engines_of
from e2e.tests.engine.watched import ONE_IN, Canary, Request, Users, ending, on_one_store, requests, spending, users
from e2e.tests.unit.canary.watchers import MISSING, PULSE_S, free_port, watched

SEED, BUDGET = 14, 0.2
WORDS = spending(f"{BUDGET:.0%}", longest=600)
ALERT = "MaruCanaryCorrupt"
#: vLLM's counters of hits.
HITS = ("local_hits", "external_hits")
#: From a counter to a webhook: a scrape, a look at the rules, and as long again for a loaded machine. Seconds.
ALERTING_S = 4 * PULSE_S
#: How often the stated time the alert is waited for; and how much longer than asked for the clean part may take.
PATIENCE, LONGER = 3, 0.1


def hits(*clients: EngineClient) -> dict[str, float]:
    """Both engines' together."""
    counted = [Snapshot.parse(client.metrics()).counters for client in clients]
    return {name: sum(each.get(name, 0.0) for each in counted) for name in HITS}


def without(folder: Path, asked: Sequence[Request]) -> tuple[list[Completion | None], dict[str, float]]:
    with engines_of(folder) as engines, on_one_store(engines, folder) as (both, _):
        return Users(both, paced=False).play(asked), hits(*both)


def of_users(answers: Sequence[Completion | None]) -> dict[str, object]:
    there = [answer for answer in answers if answer]
    return {
        "requests": len(answers), "failed": len(answers) - len(there),
        "prompt_tokens": sum(answer.prompt_tokens for answer in there),
        "hit_tokens": sum(answer.cached_tokens or 0 for answer in there),
        "ttft_median_s": statistics.median((answer.first_ns - answer.sent_ns) / 1e9 for answer in there),
    }  # fmt: skip


def compared(alone: Sequence[Completion | None], beside: Sequence[Completion | None]) -> dict[str, object]:
    """``other_tokens``, ``other_hits``: numbers of requests that were answered, or served, otherwise."""
    pairs = [*enumerate(zip(alone, beside, strict=False))]
    both = [(number, one, other) for number, (one, other) in pairs if one and other]
    return {
        "compared": len(both),
        "other_tokens": [number for number, one, other in both if one.token_ids != other.token_ids],
        "other_hits": [number for number, one, other in both if one.cached_tokens != other.cached_tokens],
    }


def of_canary(out: Path) -> dict[str, float]:
    """Hits of its own, by its recordings; and what a load takes of one target, in tokens and in tokens of KV."""
    events = [event for path in sorted(out.glob("*/recording.jsonl")) for event in read(path)]
    probes = [event.data for event in events if event.kind == "canary.probe"]
    loads = [probe for probe in probes if probe["saw"] != "nothing"]
    spent = sum(sum(probe["spent"].values()) for probe in probes)
    done = [event.data for event in events if event.kind == "request.done"]
    return {
        "probes": len(probes), "loads": len(loads), "exact": sum(probe["saw"] == "exact" for probe in loads),
        "spent_a_load": spent / max(len(loads), 1),
        "stored_a_load": sum(probe["stored"] for probe in probes) / max(len(loads), 1),
        "hit_tokens": sum(data["cached_tokens"] or 0 for data in done),
    }  # fmt: skip


def by_default(own: dict[str, float], served_a_s: float) -> list[str]:
    """What such loads would take with default settings. ``served_a_s``: tokens that both engines serve users."""
    flags = CanaryFlags()
    limits = {
        "--tokens-a-minute": 2 * flags.tokens_a_minute / 60 / own["spent_a_load"],
        "--store-tokens": 2 * flags.store_tokens / 3600 / own["stored_a_load"],
        "--share": flags.share * served_a_s / (1 - flags.share) / own["spent_a_load"],
    }
    name, a_s = min(limits.items(), key=lambda each: each[1])
    lines = [f"by default settings {a_s * 3600:.0f} loads an hour beside these users; {name} binds"]
    for share in (1 / ONE_IN, 0.01, 0.001):
        number = needed(share)
        lines.append(f"  a fault in {share:.1%} of loads: {number} loads, {a_time(number / a_s)}")
    return [*lines, f"  1000 loads: {a_time(1000 / a_s)}"]


def alerts(arrived: Queue) -> list[tuple[str, str, str]]:
    found = []
    while not arrived.empty():
        found.append(arrived.get())
    return found


def clean(canary: Canary, at_work: Users, asked: Sequence[Request], probes: int) -> dict[str, object]:
    """The users' whole stream beside the canary, and on until so many probes were made. Then the canary is stopped."""
    began = time.monotonic()
    at_work.play(asked)
    played_s = time.monotonic() - began
    with users(*at_work.clients, seed=SEED + 1) as more:
        canary.until("probes", probes, LONGER * played_s)
    seconds = time.monotonic() - began
    told = {"corrupt": canary.total("corrupt"), "unconfirmed": canary.total("probes", "unconfirmed")}
    told |= {"tokens": canary.total("tokens"), "stored": canary.total("stored_tokens")}
    waits = {key[-2:]: value for key, value in canary.metrics().items() if key[0] == "maru_canary_waits_total"}
    told |= {"waits": {" ".join(key): value for key, value in waits.items()}, "code": canary.end()}
    own, counted = of_canary(canary.out), hits(*at_work.clients)
    theirs = sum(answer.cached_tokens or 0 for answer in (*at_work.answers, *more.answers) if answer)
    return {
        "seconds": seconds, "of_users_s": played_s, **told, **own, **counted,
        "hits_of_nobody": sum(counted.values()) - theirs - own["hit_tokens"],
    }  # fmt: skip


def struck(canary: Canary, flag: Path, arrived: Queue, stated_s: float) -> dict[str, object]:
    """From the fault to the alert, in seconds; None where it did not come."""
    began, until = time.monotonic(), time.monotonic() + PATIENCE * stated_s
    flag.touch()
    seen_s = canary.until("corrupt", 1, PATIENCE * stated_s)
    found = {"stated_s": stated_s, "seen_s": seen_s, "loads": canary.total("loads"), "arrived_s": None}
    while (left_s := max(until, began + seen_s + ALERTING_S) - time.monotonic()) > 0:
        try:
            name, _, _ = arrived.get(timeout=left_s)
        except Empty:
            break
        if name == ALERT:
            return {**found, "arrived_s": time.monotonic() - began}
    return found


def beside(folder: Path, asked: Sequence[Request], probes: int) -> dict[str, object]:
    """The hour, and the fault after it, which a canary sees that goes on where the first one was stopped."""
    port = free_port()
    with engines_of(folder) as engines, on_one_store(engines, folder) as (both, flag):
        about = {"out": folder / "canary", "words": WORDS, "port": port}
        with watched(port, folder) as arrived:
            urls = [client.url for client in both]
            with ending(Canary(*urls, **about)) as canary:
                at_work = Users(both, paced=True)
                quiet = clean(canary, at_work, asked, probes)
            said, came = canary.said, alerts(arrived)
            say(f"quiet: {json.dumps(quiet)}; alerts: {came}")
            stated_s = needed(1 / ONE_IN) * quiet["seconds"] / max(quiet["loads"], 1) + ALERTING_S
            say(f"{needed(1 / ONE_IN)} loads see one fault in {ONE_IN} with 95 %: {a_time(stated_s)} to the alert")
            with users(*both, seed=SEED + 2), ending(Canary(*urls, **about)) as canary:
                canary.until("loads", 1, PATIENCE * stated_s)
                fault = struck(canary, flag, arrived, stated_s)
            fault["code"] = canary.end()
    (folder / "said.txt").write_text("".join([*said, *canary.said]))
    return {"quiet": quiet, "alerts": came, "fault": fault, "answers": at_work.answers}


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=3.0, help="how long it is to be quiet")
    parser.add_argument(
        "--probes", type=int, default=0, help="go on until there were so many, a quarter longer at most"
    )
    parser.add_argument("--out", type=Path, default=None)
    flags = parser.parse_args(words)
    if MISSING:
        parser.error(f"{' and '.join(MISSING)} must be installed")
    out = flags.out or Path(tempfile.mkdtemp(prefix="canary-hour-"))
    asked = requests(flags.minutes * 60, SEED)
    for name in ("without", "with"):
        (out / name).mkdir(parents=True)
    say(f"{len(asked)} requests of users within {flags.minutes:g} min beside a canary, and elsewhere without one")
    with ThreadPoolExecutor(1) as elsewhere:
        other = elsewhere.submit(without, out / "without", asked)
        seen = beside(out / "with", asked, flags.probes)
        alone, counted = other.result()
    answers = seen.pop("answers")
    figures = {
        "cores": usable_cores(), "minutes": flags.minutes, **seen, "users": compared(alone, answers),
        "without": {**of_users(alone), **counted}, "with": of_users(answers),
    }  # fmt: skip
    (out / "hour.json").write_text(json.dumps(figures, indent=1))
    print(json.dumps(figures, indent=1))
    quiet = seen["quiet"]
    print("\n".join(by_default(quiet, figures["with"]["prompt_tokens"] / quiet["of_users_s"])))
    print(f"0 wrong of {quiet['loads']} loads: below {bound(quiet['loads']):.2%} at 95 %")
    wrong = [name for name, well in judged(figures).items() if not well]
    print(f"not as it must be: {', '.join(wrong)}" if wrong else "all is as it must be")
    return bool(wrong)


def judged(figures: dict) -> dict[str, bool]:
    quiet, fault, users_of = figures["quiet"], figures["fault"], figures["users"]
    return {
        "no alert": not figures["alerts"] and quiet["corrupt"] == 0,
        "loads": quiet["loads"] > 0,
        "alert in time": fault["arrived_s"] is not None and fault["arrived_s"] <= fault["stated_s"],
        "exit code": fault["code"] == 1,
        "answers": not users_of["other_tokens"] and not figures["with"]["failed"],
        "hits": not users_of["other_hits"],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
