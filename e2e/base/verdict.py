"""Verdicts, their closed list of reasons, and findings: evidence as data; prose comes last, in report/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Verdict(str, Enum):
    PASS = "pass"
    CORRUPT = "corrupt"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"

    @property
    def weight(self) -> int:
        """Worst wins: corrupt > error > inconclusive > pass."""
        return {"pass": 0, "inconclusive": 1, "error": 2, "corrupt": 3}[self.value]


class Reason(Enum):
    """The closed list: name -> (verdict it leads to, one sentence that says what it means)."""

    # corrupt
    TOKENS_DIFFER = ("corrupt", "the external rerun produced other tokens than the engine computes")
    LOGPROBS_DIFFER = ("corrupt", "same tokens, but other logprobs than the engine computes")
    BEYOND_NOISE = ("corrupt", "the first differing token is no near tie within the noise of the baseline engine")
    DIGEST_DIFFERS = ("corrupt", "the KV that attention read after the load is not the KV that the engine had computed")
    FIRST_ANSWER_DIFFERS = ("corrupt", "the connector's mere presence changed the first generation")
    FOREIGN_SECRET = ("corrupt", "the answer tells the secret of another prompt, which the engine does not compute")
    # error
    ENGINE_REFUSED = ("error", "the engine refused to start")
    ENGINE_CRASHED = ("error", "the engine crashed")
    ENGINE_HUNG = ("error", "the engine did not answer within the limit")
    REQUEST_FAILED = ("error", "the engine answered a request with an error")
    # inconclusive
    NO_HIT = ("inconclusive", "the rerun was not served from the external cache at all")
    PARTIAL_HIT = ("inconclusive", "the rerun was served fewer or more external tokens than predicted")
    COLD_NOT_COLD = ("inconclusive", "the cold arm was served cached tokens")
    NOT_ISOLATED = ("inconclusive", "a prompt was served what belongs to another identity")
    LOCAL_HIT_DIFFERS = ("inconclusive", "vLLM's own prefix cache served another number of tokens than predicted")
    SOURCES_DISAGREE = ("inconclusive", "the prediction, vLLM and the connector count different hits")
    COUNTERS_MISSING = ("inconclusive", "a counter that should prove the hits could not be read")
    EFFECTIVE_DIFFERS = ("inconclusive", "the effective setting differs from the requested one")
    EFFECTIVE_UNKNOWN = ("inconclusive", "the effective setting could not be read in the worker")
    NO_OVERLAP = ("inconclusive", "overlap did not happen: no layer was waited for during the forward")
    PLACEMENT_NOT_USED = ("inconclusive", "the requested placement was not the one that placed the load")
    UNSTABLE_REFERENCE = ("inconclusive", "the reference itself does not repeat, so nothing can be compared with it")
    NO_BASELINE = ("inconclusive", "there is no answer of an engine without a connector to compare with")
    ANSWER_INCOMPLETE = ("inconclusive", "an answer lacks tokens or logprobs, so it can't be compared exactly")
    NO_EXACT_REFERENCE = ("inconclusive", "no arm computed the same steps, so nothing could be compared exactly")
    NOT_OVERWRITTEN = ("inconclusive", "free blocks were not overwritten, so a load that writes nothing could pass")
    RESET_REFUSED = ("inconclusive", "vLLM did not reset its local cache within the limit")
    PREEMPTED = ("inconclusive", "a request was preempted, so hits can't be attributed")
    METRICS_RESET = ("inconclusive", "the engine's counters went backwards: it was restarted during an arm")
    STORE_FAILED = ("inconclusive", "the connector could not store a prompt whole")
    LOAD_FAILED = ("inconclusive", "the connector reported a failed load")
    LOSSY_BY_DECLARATION = ("inconclusive", "the connector stores with loss, as its adapter says")
    BLIND_CELL = ("inconclusive", "the cell can't see a class of fault that it should see (--strict)")
    NOT_TRIED = ("inconclusive", "the run left scenarios out (--strict)")
    SCENARIO_DID_NOT_HAPPEN = ("inconclusive", "what the scenario is to provoke did not happen")
    FAULT_NOT_FIRED = ("inconclusive", "the planted fault did not fire")
    DIGEST_MISSING = ("inconclusive", "digests were asked for, but some are missing")
    NOT_RUN = ("inconclusive", "the cell was not run to its end")
    RULE_FAILED = ("inconclusive", "a rule of the judge could not read the recording")

    def __init__(self, verdict: str, sentence: str) -> None:
        self.verdict = Verdict(verdict)
        self.sentence = sentence

    @property
    def slug(self) -> str:
        """How the reason stands in report.json, e.g. ``no hit``."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class Finding:
    """One thing that one rule saw. ``evidence`` holds JSON values only."""

    rule: str
    reason: Reason
    evidence: Mapping[str, object] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        return self.reason.verdict
