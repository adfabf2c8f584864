"""Plays one probe and says what became of it. The verdict is the judge's, of what was recorded."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from e2e.base.errors import EngineError
from e2e.base.judgement import CellJudgement
from e2e.base.program import Forget, Program, Send, plainly
from e2e.base.verdict import Reason, Verdict
from e2e.canary import stories
from e2e.canary.memory import Memory, Object
from e2e.canary.segments import Segments
from e2e.canary.target import Target, why
from e2e.judge import in_use
from e2e.judge.cells import judge_cell
from e2e.observe.digests import DigestWindow
from e2e.observe.metrics import MetricsWindow
from e2e.replay.arms import Sending, forget, run_arm
from e2e.replay.prompts import Prompt, build_prompts
from e2e.report.sentences import detail

ENGINE_KEY = "in-use"
#: Seconds that counters are waited for.
_COUNTED_S = 3.0


@dataclass(frozen=True)
class Probe:
    """``nonce``, ``salt``: of an older one, where that is asked for again."""

    story: str
    program: Program
    sites: tuple[str, ...]
    tokens: int
    nonce: str
    salt: str
    of: Object | None = None


@dataclass(frozen=True)
class Outcome:
    """``cell``: None where nothing could be sent. ``error``: of a target that could not be probed, and which.
    ``where``: what digests say of a wrong load; empty where nobody asked them, or they say nothing."""

    id: str
    cell: str | None
    verdict: str
    reason: str
    judged: CellJudgement | None
    seen: in_use.Seen | None
    told: str
    error: tuple[str, EngineError] | None = None
    where: str = ""

    @property
    def saw(self) -> str:
        """What of a load: a cell that did not come through shows nothing, but what it shows to be wrong."""
        if self.judged is None or not (self.verdict == "corrupt" or (self.verdict == "pass" and self.served)):
            return "nothing"
        return "exact" if self.seen and self.seen.exact else "coarse"

    @property
    def served(self) -> int | None:
        """External tokens of the load, where known; of several at once the least."""
        loads = [source.external for source in (self.seen.sources if self.seen else ()) if source.send in LOADS]
        return min(loads) if loads and None not in loads else None


#: Sends whose answer is to come from the store.
LOADS = ("external", "at_once", "old")


def fresh(story: str, program: Program, tokens: int) -> Probe:
    nonce, salt = uuid.uuid4().hex, f"canary.{uuid.uuid4().hex}"
    return Probe(story, program, tuple(site.name for site in program.sites), tokens, nonce, salt)


def of_old(story: str, program: Program, old: Object) -> Probe:
    return Probe(story, program, tuple(site.name for site in program.sites), old.tokens, old.nonce, old.salt, old)


class Prober:
    """``answer``: output tokens of a request. ``limit_s``: of one. ``invariant``: are targets batch-invariant?
    ``locates``: may their worker extension be asked where a load is wrong. ``alike``: does a pair of targets compute
    alike, so far as that was seen."""

    def __init__(
        self, targets: Mapping[str, Target], segments: Segments, memory: Memory, *, documents: Sequence[str],
        answer: int, limit_s: float, invariant: bool = False, locates: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.targets, self.segments, self.memory = targets, segments, memory
        self._documents, self._answer, self._limit_s = documents, answer, limit_s
        self._invariant, self._locates, self._clock = invariant, locates, clock
        self._introduced: dict[str, str] = {}
        self.alike: dict[frozenset[str], bool] = {}

    def renew(self) -> None:
        """Engines are introduced anew: a new segment, or one of them is another one now."""
        self.segments.turn()
        self._introduced.clear()

    def play(self, probe: Probe, *, of: str | None = None) -> Outcome:
        """Whatever happens, it is recorded and told. ``of``: the cell whose finding it looks at."""
        if not self.segments.events:
            self.renew()
        if of is None:
            self.segments.forget()
        cell = f"{of or format(self.memory.number + 1, '06')}-{probe.story}"
        try:
            encode = self.targets[probe.sites[0]].encode
            prompts = build_prompts(self._documents, encode, texts=probe.program.texts, nonce=probe.nonce)
        except EngineError as failed:
            return Outcome("", None, "error", why(failed), None, None, "", (probe.sites[0], failed))
        self._plan(probe, cell, of)
        self._introduce(probe)
        self.segments.record("cell.begin", cell=cell, engine=None, attempt=1)
        error = None
        with self._digests(probe) as digests:
            for number, step in enumerate(probe.program.steps):
                try:
                    if isinstance(step, Forget):
                        self._forget(cell, step, before=probe.program.steps[number + 1])
                    else:
                        self._send(probe, cell, step, prompts, digests.get(step.site))
                except EngineError as failed:
                    error = (step.site, failed)
                    self.segments.record("note", text=f"{cell}: {failed}")
                    break
        self.segments.record("cell.end", cell=cell, engine=None, attempt=1)
        return self._outcome(probe, cell, prompts[0].secret, error)

    def _outcome(self, probe: Probe, cell: str, told: str, error: tuple[str, EngineError] | None) -> Outcome:
        judged, seen = judge_cell(self.segments.events, cell), in_use.seen(self.segments.events, cell)
        verdict, reason = judged.verdict.value, _label(judged.reason) if judged.reason else "none"
        if error and judged.verdict is not Verdict.CORRUPT:
            verdict, reason = "error", why(error[1])
        return Outcome(f"{self.segments.name}/{cell}", cell, verdict, reason, judged, seen, told, error)

    def confirmed(self, probe: Probe, outcome: Outcome) -> Outcome:
        """The same after a second look: what was to be computed is computed anew by all that took part. Only an engine
        that is seen not to repeat itself takes the finding back."""
        program = stories.anew(probe.sites, probe.program.texts, self.memory.units())
        look = replace(probe, story="again", program=program, of=None, salt=f"canary.{uuid.uuid4().hex}")
        self.play(look, of=outcome.cell)
        self._pay(look)
        judged = judge_cell(self.segments.events, str(outcome.cell))
        if judged.verdict is Verdict.CORRUPT:
            self.segments.mark()
            return replace(outcome, judged=judged, where=self._where(probe, outcome) if self._locates else "")
        return replace(
            outcome, judged=judged, verdict="unconfirmed", reason=Reason.UNSTABLE_REFERENCE.slug.replace(" ", "_")
        )

    def _where(self, probe: Probe, outcome: Outcome) -> str:
        """What digests say of it, in words; empty where the target has none, or they are as they should be."""
        program = stories.located(probe.sites[0], probe.sites[-1], probe.program.texts, self.memory.units())
        look = replace(probe, story="located", program=program, of=None)
        found = self.play(look, of=outcome.cell)
        self._pay(look)
        wrong = [each for each in found.judged.findings if each.reason is Reason.DIGEST_DIFFERS] if found.judged else []
        return detail(wrong[0]) if wrong else ""

    @contextmanager
    def _digests(self, probe: Probe) -> Iterator[Mapping[str, DigestWindow]]:
        """Of those that take part, where they are to be located; where a target has none, a note says so."""
        if probe.story != "located":
            yield {}
            return
        record = self.segments.record
        windows = {
            name: DigestWindow(
                self.targets[name].client.collective_rpc, record, engine=self._introduced[name], in_use=True
            )
            for name in probe.sites
        }  # fmt: skip
        with ExitStack() as stack:
            for window in windows.values():
                with suppress(EngineError):
                    stack.callback(window.stop)
                    window.start()
            yield windows

    def settle(self, probe: Probe, outcome: Outcome) -> None:
        """Records what became of it, and lets the memory know."""
        now_s = self._clock()
        noise = outcome.seen.noise if outcome.seen else {}
        self.memory.took(
            self.segments.record(
                "canary.probe", cell=outcome.cell, story=probe.story, sites=list(probe.sites), tokens=probe.tokens,
                stored=probe.program.texts[0].tokens,
                verdict=outcome.verdict, reason=outcome.reason, saw=outcome.saw, noise=noise, served=outcome.served,
                nonce=probe.nonce, salt=probe.salt, told=outcome.told, wall_s=now_s,
                spent=stories.cost(probe.program, self._answer), of=probe.of.nonce if probe.of else None,
                age_s=now_s - probe.of.stored_s if probe.of else None,
                put=sum(stories.stored(probe.program).values()),
            )
        )  # fmt: skip
        self._pay(probe)

    def _pay(self, probe: Probe) -> None:
        now_s, stored = time.monotonic(), stories.stored(probe.program)
        for name, tokens in stories.cost(probe.program, self._answer).items():
            self.targets[name].paid(tokens, stored.get(name, 0), now_s)

    def _plan(self, probe: Probe, cell: str, of: str | None) -> None:
        program, units = probe.program, self.memory.units()
        noises = [self.memory.noise(name) for name in probe.sites]
        blind = {
            "fault_class": "load that writes nothing",
            "why": "free blocks of an engine in use are not overwritten",
        }
        self.segments.record(
            "plan.cell", cell=cell, attempt=1, settings={"scenario": probe.story}, engine_key=ENGINE_KEY,
            adapter="unknown", expect={}, oracle="split_matched", step=units.step,
            lengths=[text.tokens for text in program.texts], blind=[blind], counters=False, baseline=False,
            digests=probe.story == "located", fault=None, scenario=program.scenario, program=plainly(program),
            program_digest=program.digest, noise=None if None in noises else max(noises),
            foreign=[*self.memory.secrets], **({"again": of} if probe.story == "again" else {}),
        )  # fmt: skip

    def _introduce(self, probe: Probe) -> None:
        """Each target once a segment, after the first plan that names it."""
        for name in probe.sites:
            if name in self._introduced:
                continue
            target = self.targets[name]
            engine = f"in-use.{name}"
            self.segments.record(
                "engine.start", engine=engine, engine_key=ENGINE_KEY, role=name, attempt=1, argv=[],
                launcher=f"in use: {target.url}", log=None,
            )  # fmt: skip
            versions = {"vllm": target.identity.version} if target.identity else {}
            effective = {"versions": versions, "arithmetic": self._arithmetic(name)}
            if target.identity:
                effective["model"] = target.identity.model
            if self._invariant:
                effective["batch_invariant"] = True
            self.segments.record("engine.config", engine=engine, effective=effective)
            self._introduced[name] = engine

    def _arithmetic(self, name: str) -> str:
        """The first target that it was seen to compute like, else its own name."""
        like = [min(pair) for pair, alike in self.alike.items() if alike and name in pair]
        return min(like, default=name)

    def _forget(self, cell: str, step: Forget, before: Send) -> None:
        """Its own prefix cache is reset; where that is refused the probe shows nothing."""
        place = {"engine": self._introduced[step.site], "cell": cell, "arm": before.name}
        forget(self.targets[step.site].client, place=place, record=self.segments.record)

    def _send(
        self, probe: Probe, cell: str, send: Send, prompts: Sequence[Prompt], digests: DigestWindow | None
    ) -> None:  # fmt: skip
        target, engine = self.targets[send.site], self._introduced[send.site]
        window = MetricsWindow(
            target.client.metrics, self.segments.record, engine=engine, limit_s=_COUNTED_S, in_use=True
        )  # fmt: skip
        how = Sending(
            engine=engine, cell=cell, arm=send.name, params=None, salt=".".join(filter(None, (probe.salt, send.salt))),
            limit_s=self._limit_s, at_once=send.at_once, max_tokens=send.answer or self._answer,
            model=target.identity.model if target.identity else None,
        )  # fmt: skip
        with ExitStack() as windows:
            windows.enter_context(window.arm(cell=cell, arm=send.name, requests=len(send.texts)))
            if digests:
                windows.enter_context(digests.arm(cell=cell, arm=send.name))
            run_arm(
                target.client, how, prompts=[prompts[text] for text in send.texts], hits=probe.program.hits(send),
                record=self.segments.record,
            )  # fmt: skip


def _label(reason: Reason) -> str:
    return reason.name.lower()
