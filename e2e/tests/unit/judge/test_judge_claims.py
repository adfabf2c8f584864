"""Rules hang on claims: whatever a program names its sites and Sends; and no claim of one can be lost unseen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from stories import CROWD, NEMESIS, PARTIAL, RESTART, STORED, STORIES
from synthetic_digests import add_digests
from synthetic_recording import CELL, Recording, recorded
from test_judge_rules import CASES, DROPPED

from e2e.base.event import Event
from e2e.base.judgement import CellJudgement
from e2e.base.program import Claim, Program, Send, Site, program_of
from e2e.base.verdict import Finding, Reason, Verdict
from e2e.judge import assemble, judge, merge
from e2e.judge.index import Index
from e2e.judge.lift import lift
from e2e.recording.journal import read

GOLDEN = Path(__file__).resolve().parents[2] / "recordings" / "golden"
#: Of these the judge asks nothing.
MEANINGLESS = ("note", "run.begin", "run.end", "engine.ready", "engine.stop")


def verdict(recording: Recording) -> CellJudgement:
    (cell,) = judge(recording.build()).cells
    return cell


def reasons(cell: CellJudgement) -> set[Reason]:
    return {finding.reason for finding in cell.findings}


def story(name: str, **options) -> Recording:
    return add_digests(Recording(program=STORIES[name], digests=True, **options))


def programmed(events: list[Event]) -> list[Event]:
    """A recording from before there were programs, with the ones that it is lifted to written into it."""
    return [
        replace(event, data={**event.data, **recorded(lift(event.data))})
        if event.kind == "plan.cell" and "program" not in event.data
        else event
        for event in events
    ]


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.jsonl.gz")))
def test_real_runs_are_judged_alike_with_their_program_and_without(name):
    events = read(GOLDEN / name)
    assert judge(programmed(events)) == judge(events)


@pytest.mark.parametrize("name", STORIES)
def test_a_healthy_story_passes(name):
    cell = verdict(story(name))
    assert (cell.verdict, cell.findings) == (Verdict.PASS, ())


@pytest.mark.parametrize("name", STORIES)
def test_no_event_of_a_story_can_be_left_out(name):
    events = story(name).build()
    for number, event in enumerate(events):
        left = judge([*events[:number], *events[number + 1 :]])
        green = left.verdict is Verdict.PASS
        assert green == (event.kind in MEANINGLESS), f"{event.kind} {event.data.get('arm')} {event.data.get('prompt')}"
        assert left.verdict is not Verdict.CORRUPT


def without(program: Program, where: tuple[str, str], number: int) -> dict[str, object]:
    """As recorded, one claim of one Send gone."""
    table = recorded(program)
    for step in table["program"]["steps"]:
        if (step.get("site"), step.get("name")) == where:
            del step["claims"][number]
    return table


@pytest.mark.parametrize(
    ("name", "where", "number"),
    [
        (name, send.where, number)
        for name, program in {**STORIES, "replay": Recording().program}.items()
        for send in program.sends
        for number in range(len(send.claims))
    ],
)
def test_no_claim_can_be_left_out(name, where, number):
    """Where its digest stays, the cell is not judged by what is left. Where somebody reckons that anew, what is left is
    refused when nothing would look at what was served."""
    program = STORIES.get(name) or Recording().program
    table = without(program, where, number)
    recording = add_digests(Recording(program=program, digests=True))
    cell = verdict(recording.change("plan.cell", lambda data: data.update(table)))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.NOT_RUN)
    try:
        left = program_of(table["program"])
    except ValueError:
        return
    send = left.send(where)
    assert send.claims
    assert not send.external or any(kind in {type(c).__name__ for c in send.claims} for kind in ("Like", "Loaded"))
    recording.change("plan.cell", lambda data: data.update(program_digest=left.digest))
    assert verdict(recording).verdict is not Verdict.CORRUPT


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data.update(program=None),
        lambda data: data.update(program={}),
        lambda data: data["program"]["steps"].pop(),
        lambda data: data["program"]["steps"].clear(),
        lambda data: data["program"].update(sites=[]),
        lambda data: data.update(program_digest=None),
        lambda data: data.update(program_digest="0" * 64),
        lambda data: data.update(scenario="replay"),
        lambda data: [data.pop(key) for key in ("program", "program_digest")],
    ],
)
def test_another_program_than_the_one_that_was_planned_is_not_judged(edit):
    cell = verdict(story("restart").change("plan.cell", edit))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.NOT_RUN)
    assert "program" in cell.findings[0].evidence["what"]


SITES = {"connector": "k", "baseline": "p"}
ARMS = {"cold": "one", "local": "two", "external": "three", "external_again": "four"}


def in_other_words(value, words):
    if isinstance(value, dict):
        kept = ("do", "claim")
        return {key: item if key in kept else in_other_words(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [in_other_words(item, words) for item in value]
    return words.get(value, value) if isinstance(value, str) else value


def renamed(recording: Recording) -> Recording:
    """The four arms under names that no rule can know."""
    for kind, data in recording.events:
        if kind == "plan.cell":
            data.update(recorded(program_of(in_other_words(data["program"], SITES | ARMS))))
        elif kind == "engine.start":
            data["role"] = SITES[data["role"]]
        elif "arm" in data:
            data["arm"] = ARMS[data["arm"]]
    return recording


@pytest.mark.parametrize(("kind", "where", "edit", "reason"), CASES)
def test_every_rule_sees_what_it_sees_whatever_the_names(kind, where, edit, reason):
    before = Recording().change(kind, edit, **where)
    expected = [(finding.rule, finding.reason) for finding in verdict(before).findings]
    cell = verdict(renamed(before))
    assert [(finding.rule, finding.reason) for finding in cell.findings] == expected
    assert reason in reasons(cell)


@pytest.mark.parametrize(("kind", "reason"), DROPPED)
def test_what_is_missing_is_missed_whatever_the_names(kind, reason):
    cell = verdict(renamed(Recording().drop(kind)))
    assert cell.verdict is Verdict.INCONCLUSIVE
    assert reason in reasons(cell)


class Quick(Claim, frozen=True, tag="quick"):
    """Its first token was there within so many seconds."""

    within_s: float


def test_a_new_claim_is_one_rule():
    def check(view):
        return [
            Finding("quick", Reason.SCENARIO_DID_NOT_HAPPEN, {**sent.place, "prompt": prompt})
            for sent in view.sent
            if (quick := sent.send.claim(Quick))
            for prompt, answer in sent.arm.answers.items()
            if answer.ttft_s > quick.within_s
        ]

    recording = Recording(program=RESTART)
    index = Index(recording.build())
    plan = assemble.plan(recording.plan, RESTART)

    def found(program: Program) -> list[Finding]:
        view = assemble.view(index, CELL, 1, replace(plan, program=program), strict=False)
        return merge.run_rules(view, {"quick": check})

    slow = msgspec.structs.replace(STORED, claims=(*STORED.claims, Quick(0.1)))
    steps = tuple(slow if step is STORED else step for step in RESTART.steps)
    assert [f.evidence for f in found(msgspec.structs.replace(RESTART, steps=steps))] == [
        {"engine": "one", "arm": "stored", "prompt": prompt} for prompt in (0, 1)
    ]
    assert found(RESTART) == []


def put(**values):
    return lambda data: data.update(values)


def count(**values):
    return lambda data: data["counters"].update(values)


def spoil(data) -> None:
    data["token_ids"][2] += 5


STORY_CASES = [
    ("crowd", "metrics.delta", {"arm": "hot"}, count(preemptions=1), Reason.SCENARIO_DID_NOT_HAPPEN),
    ("crowd", "metrics.delta", {"arm": "stored"}, count(preemptions=1), Reason.PREEMPTED),
    ("crowd", "metrics.delta", {"arm": "salted"}, count(local_cache_hit=16), Reason.NOT_ISOLATED),
    (
        "crowd",
        "metrics.delta",
        {"arm": "salted"},
        count(external_kv_transfer=256, external_hits=256),
        Reason.NOT_ISOLATED,
    ),
    ("crowd", "request.done", {"arm": "salted", "prompt": 1}, put(cached_tokens=256), Reason.NOT_ISOLATED),
    ("crowd", "reset.local", {"arm": "salted"}, put(ok=False), Reason.RESET_REFUSED),
    ("crowd", "overwrite.free", {"arm": "hot"}, put(ok=False), Reason.NOT_OVERWRITTEN),
    ("broken", "store.empty", {}, put(ok=False), Reason.NOT_RUN),
    ("partial", "metrics.delta", {"arm": "long"}, count(external_kv_transfer=0, external_hits=0), Reason.NO_HIT),
    (
        "partial",
        "metrics.delta",
        {"arm": "long"},
        count(external_kv_transfer=513, external_hits=513),
        Reason.PARTIAL_HIT,
    ),
    ("partial", "request.done", {"arm": "long"}, put(cached_tokens=255), Reason.PARTIAL_HIT),
    ("restart", "engine.config", {"engine": "HND.one.2"}, put(effective={"layout": "NHD"}), Reason.EFFECTIVE_DIFFERS),
    ("restart", "engine.config", {"engine": "HND.two.1"}, put(effective={}), Reason.EFFECTIVE_UNKNOWN),
    ("restart", "request.done", {"arm": "alone", "prompt": 1}, spoil, Reason.UNSTABLE_REFERENCE),
    ("restart", "request.done", {"arm": "stored", "prompt": 1}, spoil, Reason.FIRST_ANSWER_DIFFERS),
    ("restart", "request.done", {"arm": "warm", "prompt": 1}, spoil, Reason.TOKENS_DIFFER),
    ("restart", "request.done", {"arm": "theirs", "prompt": 1}, spoil, Reason.TOKENS_DIFFER),
]


@pytest.mark.parametrize(("name", "kind", "where", "edit", "reason"), STORY_CASES)
def test_a_story_that_went_wrong(name, kind, where, edit, reason):
    cell = verdict(story(name).change(kind, edit, **where))
    assert cell.reason is reason or reason in reasons(cell)
    assert cell.verdict.weight >= reason.verdict.weight


@pytest.mark.parametrize(("found", "passes"), [(255, False), (256, True), (300, True), (512, True), (513, False)])
def test_a_span_is_kept_at_both_ends(found, passes):
    """The request does not say what it was served, so counters alone do."""
    recording = Recording(program=PARTIAL, counters=False)
    recording.change("expect.hit", put(least_external=256), arm="long")
    recording.change("request.done", put(cached_tokens=found), arm="long")
    recording.change("metrics.delta", count(external_kv_transfer=found, external_hits=found), arm="long")
    off = {Reason.PARTIAL_HIT, Reason.NO_HIT, Reason.SOURCES_DISAGREE} & reasons(verdict(recording))
    assert (not off) is passes


@pytest.mark.parametrize(("arm", "prompt"), [("warm", 0), ("theirs", 1), ("long", 1), ("hot", 0)])
def test_wrong_bytes_are_found_in_every_load(arm, prompt):
    name = next(name for name, program in STORIES.items() if arm in {send.name for send in program.sends})
    recording = Recording(program=STORIES[name], digests=True)
    cell = verdict(add_digests(recording, edit={(arm, prompt): lambda values: values.__setitem__((1, 0, 1, 3), 9)}))
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.DIGEST_DIFFERS)


def test_without_digests_what_only_they_could_show_is_not_shown():
    """Nobody answers like it, and nothing says that it was loaded right."""
    steps = tuple(
        msgspec.structs.replace(step, claims=tuple(c for c in step.claims if type(c).__name__ != "Like"))
        if isinstance(step, Send) and step.external
        else step
        for step in RESTART.steps
    )
    program = msgspec.structs.replace(RESTART, steps=steps)
    assert verdict(add_digests(Recording(program=program, digests=True))).verdict is Verdict.PASS
    cell = verdict(Recording(program=program))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.NO_EXACT_REFERENCE)


def gone(program: Program) -> Recording:
    """The client of the last Send's first text goes away."""
    recording, where = Recording(program=program, counters=False), program.sends[-1]
    (sent,) = recording.find("request.sent", arm=where.name, prompt=0)
    recording.drop("request.done", arm=where.name, prompt=0)
    recording.add("request.failed", request=sent["request"], error="ClientGone", message="left", status=None)
    tokens = program.texts[0].tokens
    recording.change(
        "metrics.delta", lambda data: data["counters"].update(prompt_tokens=tokens * 0 + 1033), arm=where.name
    )
    return recording.change("metrics.delta", put(requests=1, ttft={"sum_s": 0.1, "count": 1}), arm=where.name)


def test_a_client_that_goes_away_fails_nothing_where_the_program_says_that_it_does():
    last = CROWD.sends[-1]
    leaving = msgspec.structs.replace(last, gone_s=0.5)
    steps = (*CROWD.steps[:-1], leaving)
    assert reasons(verdict(gone(msgspec.structs.replace(CROWD, steps=steps)))) == reasons(
        verdict(Recording(program=CROWD))
    )
    findings = verdict(gone(CROWD)).findings
    assert {"answer"} <= {finding.evidence.get("what") for finding in findings if finding.reason is Reason.NOT_RUN}


def test_what_happened_may_be_seen_by_the_connector_or_the_player():
    for where in ("connector.evidence", "step.seen"):
        recording = story("crowd").change("metrics.delta", count(preemptions=0), arm="hot")
        assert Reason.SCENARIO_DID_NOT_HAPPEN in reasons(verdict(recording))
        if where == "step.seen":
            place = {key: recording.find("arm.begin", arm="hot")[0][key] for key in ("engine", "cell", "arm")}
            for _ in range(2):
                recording.add("step.seen", **place, what="preemptions", count=1)
        else:
            recording.change(where, count(preemptions=2), arm="hot")
        assert verdict(recording).verdict is Verdict.PASS


def test_a_site_of_other_settings_is_asked_for_those_and_compared_by_bytes():
    other = Site("two", settings={"layout": "NHD"})
    sites = (*RESTART.sites[:2], other)
    program = msgspec.structs.replace(RESTART, sites=sites)
    recording = add_digests(Recording(program=program, digests=True))
    assert Reason.EFFECTIVE_DIFFERS in reasons(verdict(recording))
    recording.change("engine.config", lambda data: data["effective"].update(layout="NHD"), engine="HND.two.1")
    cell = verdict(recording)
    assert (cell.verdict, cell.findings) == (Verdict.PASS, ())
    add = {("theirs", 0): lambda values: values.__setitem__((0, 0, 0, 0), 1)}
    wrong = add_digests(Recording(program=program, digests=True), edit=add)
    wrong.change("engine.config", lambda data: data["effective"].update(layout="NHD"), engine="HND.two.1")
    assert verdict(wrong).reason is Reason.DIGEST_DIFFERS


def test_an_engine_that_a_program_started_and_that_failed_is_an_error():
    recording = story("restart").drop("cell.end")
    recording.add("engine.failed", engine="HND.two.1", stage="run", error="EngineCrashed", cause="boom", log_tail="")
    assert verdict(recording).reason is Reason.ENGINE_CRASHED


def test_what_no_plan_says_is_not_taken_for_evidence():
    recording = story("restart")
    place = recording.find("arm.begin", arm="theirs")[0]
    recording.add("arm.begin", **{**place, "arm": "more"})
    assert verdict(recording).reason is Reason.NOT_RUN


def test_figures_are_of_the_first_cold_and_the_first_external_send():
    cell = verdict(story("restart"))
    assert (cell.hits.predicted, cell.hits.engine, cell.replays) == (3072, 3072, 4)
    assert (cell.ttft.cold_s, cell.ttft.external_s) == (pytest.approx(0.4), pytest.approx(0.1))
    assert cell.first_generation == "identical"


class TestUnderLoad:
    """Several at once without batch-invariant mode: what each computed depends on its neighbours."""

    def crowd(self, **edits) -> Recording:
        """The first run's bytes are others than a plain engine's, and so are the answers; every load is right."""
        recording = Recording(at_once=8, digests=True)
        shaken = {(arm, p): self.shake for arm in ("cold", "local", "external", "external_again") for p in range(3)}
        recording.change("request.done", self.nudge, cell=CELL, arm="cold")
        return add_digests(recording, edit={**shaken, **edits.get("edit", {})})

    def shake(self, values) -> None:
        values[1, 0, 1] ^= 5

    def nudge(self, data) -> None:
        data["logprobs"][2] += 2**-20

    def test_a_load_that_digests_prove_passes_and_what_was_not_compared_is_said(self):
        recording = self.crowd()
        cell = verdict(recording)
        assert (cell.verdict, cell.findings, cell.first_generation) == (Verdict.PASS, (), "split noise")
        (spot,) = cell.blind
        assert spot["fault_class"] == "first answer"
        assert spot["why"].startswith("load exact by digests; first answer not comparable")
        (strict,) = judge(recording.build(), strict=True).cells
        assert strict.reason is Reason.BLIND_CELL

    def test_where_first_answers_have_the_same_bytes_nothing_is_hidden(self):
        recording = add_digests(Recording(at_once=8, digests=True))
        assert (verdict(recording).verdict, verdict(recording).blind) == (Verdict.PASS, ())

    def test_a_wrong_load_is_corrupt(self):
        def wrong(values):
            self.shake(values)
            values[0, 0, 0, 3] ^= 1

        cell = verdict(self.crowd(edit={("external", 1): wrong}))
        assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.DIGEST_DIFFERS)

    def test_without_digests_nothing_is_shown(self):
        assert verdict(Recording(at_once=8)).reason is Reason.NO_EXACT_REFERENCE

    def test_one_at_a_time_other_bytes_of_the_first_run_are_corrupt(self):
        recording = Recording(digests=True)
        shaken = {(arm, p): self.shake for arm in ("cold", "local", "external", "external_again") for p in range(3)}
        cell = verdict(add_digests(recording, edit=shaken))
        assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.FIRST_ANSWER_DIFFERS)


def batch_invariant(recording: Recording, **where) -> Recording:
    return recording.change("engine.config", lambda data: data["effective"].update(batch_invariant=True), **where)


class TestBatchInvariant:
    """Several at once in vLLM's batch-invariant mode, as the worker says: exact, split-matched, on one engine."""

    def test_what_was_split_alike_is_compared_to_the_bit(self):
        cell = verdict(batch_invariant(Recording(at_once=8)))
        assert (cell.verdict, cell.oracle.kind) == (Verdict.PASS, "split_matched")
        assert [spot["fault_class"] for spot in cell.blind] == ["first answer"]
        recording = batch_invariant(Recording(at_once=8)).change("request.done", spoil, arm="external", prompt=1)
        assert verdict(recording).reason is Reason.TOKENS_DIFFER

    def test_the_mode_of_one_engine_is_not_the_other_ones(self):
        cell = verdict(batch_invariant(Recording(at_once=8), engine="HND.connector.1"))
        assert cell.reason is Reason.EFFECTIVE_DIFFERS

    def test_a_reference_that_does_not_repeat_is_none(self):
        recording = batch_invariant(Recording(at_once=8)).change(
            "request.done", spoil, cell=CELL, arm="local", prompt=1
        )
        assert verdict(recording).verdict is not Verdict.PASS


class TestNemesis:
    """What a program breaks may fail, and nothing else."""

    def run(self, program: Program = NEMESIS) -> Recording:
        """The load of the first text fails and is computed again; the killed engine answers one, and can't be asked."""
        recording = add_digests(Recording(program=program, digests=True))
        recording.change("digest.taken", put(failed=True), arm="hurt", prompt=0)
        recording.change("connector.evidence", count(load_failures=1), arm="hurt")
        self.fail(recording, "last", 1)
        for kind in ("metrics.delta", "connector.evidence", "digest.taken"):
            recording.drop(kind, arm="last")
        return recording

    def fail(self, recording: Recording, arm: str, prompt: int) -> None:
        (sent,) = recording.find("request.sent", arm=arm, prompt=prompt)
        recording.drop("request.done", arm=arm, prompt=prompt)
        recording.add("request.failed", request=sent["request"], error="EngineCrashed", message="gone", status=None)

    def test_what_was_broken_may_fail(self):
        cell = verdict(self.run())
        assert (cell.verdict, cell.findings) == (Verdict.PASS, ())

    @pytest.mark.parametrize("arm", ["stored", "warm"])
    def test_what_was_not_broken_may_not(self, arm):
        recording = self.run()
        self.fail(recording, arm, 0)
        assert verdict(recording).verdict is Verdict.ERROR

    @pytest.mark.parametrize("arm", ["hurt", "warm"])
    def test_a_failure_that_is_swallowed_is_corrupt(self, arm):
        def wrong(values):
            values[0, 0, 0, 0] ^= 1

        recording = Recording(program=NEMESIS, digests=True)
        cell = verdict(add_digests(recording, edit={(arm, 1): wrong}))
        assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.DIGEST_DIFFERS)

    def test_a_failure_that_nobody_asked_for_is_a_finding(self):
        recording = self.run().change("connector.evidence", count(load_failures=1), arm="warm")
        assert verdict(recording).reason is Reason.LOAD_FAILED
        recording = self.run().change("digest.taken", put(failed=True), arm="warm", prompt=0)
        assert Reason.LOAD_FAILED in reasons(verdict(recording))

    def test_of_a_load_that_was_to_fail_vllm_may_take_back_what_it_believed(self):
        """It does of one between steps; of any other its sources must agree."""
        for arm, expected in (("hurt", False), ("warm", True)):
            recording = self.run().change("metrics.delta", count(external_kv_transfer=0), arm=arm)
            assert (Reason.SOURCES_DISAGREE in reasons(verdict(recording))) is expected, arm

    def test_what_did_not_happen_shows_nothing(self):
        recording = self.run().change("connector.evidence", count(load_failures=0), arm="hurt")
        assert Reason.SCENARIO_DID_NOT_HAPPEN in reasons(verdict(recording))

    @pytest.mark.parametrize("kind", ["nemesis.begin", "nemesis.end"])
    def test_what_was_not_broken_or_not_mended_is_not_run(self, kind):
        assert verdict(self.run().drop(kind, what="server")).reason is Reason.NOT_RUN

    def test_another_answer_of_an_engine_that_was_killed_is_corrupt(self):
        cell = verdict(self.run().change("request.done", spoil, arm="last", prompt=0))
        assert cell.verdict is Verdict.CORRUPT
