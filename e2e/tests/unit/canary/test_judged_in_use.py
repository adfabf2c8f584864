"""What the judge says of probes on engines in use: exact where nobody was beside them, else coarse."""

from __future__ import annotations

import pytest
from played import RIGHT, WRONG, Recorded, Said

from e2e.base.program import Program
from e2e.base.verdict import Reason, Verdict
from e2e.canary import stories
from e2e.canary.stories import Units
from e2e.judge import in_use
from e2e.judge.cells import judge, judge_cell

UNITS = Units(block=16, chunk=256)
TOKENS = 256 + 9
CROSS = stories.cross("a", "b", TOKENS, UNITS)
GOOD = {"cold": Said(), "local": Said(cached=256), "external": Said(cached=256)}


def judged(said: dict[str, Said], program: Program = CROSS, **more):
    recorded = Recorded()
    recorded.cell("p", program, said, arithmetic="a", **more)
    return judge_cell(recorded.events, "p"), in_use.seen(recorded.events, "p")


def test_an_idle_pair_is_compared_bit_for_bit():
    cell, seen = judged(GOOD)
    assert (cell.verdict, cell.oracle.kind) == (Verdict.PASS, "split_matched")
    assert seen.exact
    assert [(s.site, s.send, s.local, s.external) for s in seen.sources] == [
        ("a", "cold", 0, 0), ("a", "local", 256, 0), ("b", "external", 0, 256),
    ]  # fmt: skip


def test_other_bits_are_corrupt():
    cell, _ = judged({**GOOD, "external": Said(cached=256, shift=1e-7)})
    assert cell.reason is Reason.LOGPROBS_DIFFER


def test_with_others_beside_it_only_the_coarse_rule_holds():
    crowd = {name: Said(cached=said.cached, others=50) for name, said in GOOD.items()}
    cell, seen = judged({**crowd, "external": Said(cached=256, others=50, shift=0.01)}, noise=0.05)
    assert (cell.verdict, cell.oracle.kind) == (Verdict.PASS, "coarse")
    assert not seen.exact
    cell, _ = judged({**crowd, "external": Said(WRONG, cached=256, others=50)}, noise=0.05)
    assert cell.reason is Reason.BEYOND_NOISE
    near = {name: Said(cached=said.cached, others=50, lead=0.08) for name, said in GOOD.items()}
    cell, _ = judged({**near, "external": Said(WRONG, cached=256, others=50)}, noise=0.05)
    assert cell.verdict is Verdict.PASS, "a near tie"


def test_with_others_beside_batch_invariant_engines_it_is_bit_for_bit_all_the_same():
    crowd = {**GOOD, "external": Said(cached=256, others=50)}
    cell, seen = judged(crowd, batch_invariant=True)
    assert (cell.verdict, cell.oracle.kind, seen.exact) == (Verdict.PASS, "split_matched", True)
    cell, _ = judged({**crowd, "external": Said(cached=256, others=50, shift=1e-7)}, batch_invariant=True)
    assert cell.reason is Reason.LOGPROBS_DIFFER
    crowd["local"] = Said(cached=240, others=50, shift=1e-7)
    cell, seen = judged(crowd, batch_invariant=True, noise=0.05)
    assert (cell.verdict, cell.oracle.kind, seen.exact) == (Verdict.PASS, "coarse", False), "another part was computed"


def test_a_request_of_others_that_was_given_up_is_seen_too():
    aborted = Said(cached=256, shift=0.01, counters={"finished": 2})
    cell, seen = judged({**GOOD, "external": aborted}, noise=0.05)
    assert (cell.verdict, cell.oracle.kind) == (Verdict.PASS, "coarse")
    assert not seen.exact
    cell, _ = judged({**GOOD, "external": Said(cached=256, shift=0.01, counters={"finished": 1})}, noise=0.05)
    assert cell.reason is Reason.LOGPROBS_DIFFER


def test_without_known_noise_nothing_is_green():
    crowd = {name: Said(cached=said.cached, at_work=1) for name, said in GOOD.items()}
    cell, _ = judged(crowd)
    assert cell.reason is Reason.NO_EXACT_REFERENCE


@pytest.mark.parametrize(
    ("external", "reason"),
    [
        (Said(cached=0), Reason.NO_HIT),
        (Said(cached=None, others=9), Reason.COUNTERS_MISSING),
        (Said(cached=None, metrics=False), Reason.COUNTERS_MISSING),
    ],
)
def test_what_saw_no_hit_is_inconclusive(external, reason):
    silent = external.cached is None
    said = {name: Said(cached=None if silent else said.cached, others=9) for name, said in GOOD.items()}
    cell, seen = judged({**(said if silent else GOOD), "external": external}, noise=0.05)
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, reason)
    assert not seen.sources[-1].external


def test_an_engine_that_tells_no_cached_tokens_is_believed_by_its_counters_when_idle():
    by_source = {
        "cold": {},
        "local": {"local_cache_hit": 256},
        "external": {"external_kv_transfer": 256, "external_hits": 256},
    }
    said = {name: Said(cached=None, counters=counted) for name, counted in by_source.items()}
    cell, seen = judged(said)
    assert cell.verdict is Verdict.PASS, cell.findings
    assert seen.sources[-1].external == 256


def test_engines_that_were_not_seen_to_compute_alike_are_not_compared_bit_for_bit():
    recorded = Recorded()
    recorded.cell("p", CROSS, {**GOOD, "external": Said(cached=256, shift=1e-7)}, noise=0.01)
    assert judge_cell(recorded.events, "p").verdict is Verdict.PASS
    recorded = Recorded()
    recorded.cell("p", stories.anew(("a", "b"), CROSS.texts, UNITS), {"cold0": Said(), "cold1": Said()})
    assert in_use.seen(recorded.events, "p").alike is True
    recorded = Recorded()
    recorded.cell("p", stories.anew(("a", "b"), CROSS.texts, UNITS), {"cold0": Said(), "cold1": Said(shift=1e-7)})
    assert in_use.seen(recorded.events, "p").alike is False
    recorded = Recorded()
    recorded.cell("p", stories.anew(("a", "b"), CROSS.texts, UNITS), {"cold0": Said(), "cold1": Said(others=3)})
    assert in_use.seen(recorded.events, "p").alike is None


def test_a_foreign_secret_is_the_kv_of_another_request():
    text = (" the ", "secret ", "is ", "271828")
    told = {name: Said(cached=said.cached, text=(*text[:3], "314159")) for name, said in GOOD.items()}
    cell, _ = judged({**told, "external": Said(cached=256, text=text)}, foreign=("271828",))
    assert cell.reason is Reason.FOREIGN_SECRET
    guessed = {name: Said(cached=said.cached, text=text) for name, said in GOOD.items()}
    assert judged(guessed, foreign=("271828",))[0].verdict is Verdict.PASS


BAD = {**GOOD, "external": Said(cached=256, shift=1e-7)}
LOOK = stories.anew(("a", "b"), CROSS.texts, UNITS)


class TestAgain:
    """A finding is taken back only by an engine that is seen not to repeat itself."""

    def judged(self, anew: dict[str, Said], bad=None, **more):
        recorded = Recorded()
        recorded.cell("p", CROSS, bad or BAD, arithmetic="a", **more)
        recorded.cell("p-again", LOOK, anew, again="p")
        cells = {cell.id: cell for cell in judge(recorded.events).cells}
        assert cells["p"] == judge_cell(recorded.events, "p")
        return cells["p"]

    def test_it_stands_where_the_engines_repeat_themselves(self):
        assert self.judged({"cold0": Said(), "cold1": Said()}).reason is Reason.LOGPROBS_DIFFER

    def test_it_falls_where_they_do_not(self):
        cell = self.judged({"cold0": Said(shift=1e-7), "cold1": Said()})
        assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.UNSTABLE_REFERENCE)
        assert all(finding.verdict is not Verdict.CORRUPT for finding in cell.findings)

    @pytest.mark.parametrize("anew", [{}, {"cold0": Said()}, {"cold0": Said(shift=1e-7, others=5)}])
    def test_what_can_not_be_compared_takes_nothing_back(self, anew):
        assert self.judged(anew).verdict is Verdict.CORRUPT

    def test_coarse_findings_fall_by_tokens(self):
        bad = {name: Said(cached=said.cached, others=5) for name, said in GOOD.items()}
        bad["external"] = Said(WRONG, cached=256, others=5)
        stands = {"cold0": Said(others=5, shift=0.01), "cold1": Said(others=5)}
        assert self.judged(stands, bad, noise=0.05).reason is Reason.BEYOND_NOISE
        assert self.judged({"cold0": Said(WRONG, others=5)}, bad, noise=0.05).verdict is Verdict.INCONCLUSIVE


def test_what_the_local_cache_still_had_is_no_look_at_the_store():
    later = stories.later("a", TOKENS, UNITS)
    old = {"local_cache_hit": 256, "external_kv_transfer": 0, "external_hits": 0}
    said = {"cold": Said(), "local": Said(cached=256), "old": Said(cached=256, counters=old)}
    assert judged(said, later)[0].reason is Reason.NO_HIT
    cell, seen = judged({**said, "old": Said(cached=256)}, later, noise=0.01)
    assert cell.verdict is Verdict.PASS
    assert not seen.exact, "its KV was computed at another time, beside whomever"
    crowd = {**said, "old": Said(cached=256, others=4)}
    assert judged(crowd, later, noise=0.01)[0].reason is Reason.COUNTERS_MISSING


CROWD = stories.crowd("a", "b", TOKENS, UNITS, 3)
AT_ONCE = {"cold": Said(), "at_once": Said(cached=256, shift=0.01)}


class TestCrowd:
    """Several texts that are loaded at once: coarse, each against its own."""

    def test_it_is_coarse_even_where_nobody_is_beside_it(self):
        cell, seen = judged(AT_ONCE, CROWD, noise=0.05)
        assert (cell.verdict, cell.oracle.kind) == (Verdict.PASS, "coarse")
        assert not seen.exact
        assert [s.external for s in seen.sources if s.send == "at_once"] == [256] * 3

    def test_without_known_noise_nothing_is_green(self):
        assert judged(AT_ONCE, CROWD)[0].reason is Reason.NO_EXACT_REFERENCE

    @pytest.mark.parametrize("wrong", range(3))
    def test_one_wrong_answer_is_enough(self, wrong):
        answers = tuple(Said(WRONG if number == wrong else RIGHT, cached=256) for number in range(3))
        cell, _ = judged({**AT_ONCE, "at_once": answers}, CROWD, noise=0.05)
        assert cell.reason is Reason.BEYOND_NOISE

    def test_one_that_was_served_nothing_shows(self):
        answers = (Said(cached=256), Said(cached=0), Said(cached=256))
        _, seen = judged({**AT_ONCE, "at_once": answers}, CROWD, noise=0.05)
        assert min(s.external for s in seen.sources if s.send == "at_once") == 0


class TestReset:
    """One engine loads what it stored, once its own cache is empty."""

    RESET = stories.reset("a", TOKENS, UNITS)

    def judged(self, ok):
        recorded = Recorded()
        recorded.cell("p", self.RESET, GOOD)
        place = {"engine": "in-use.a", "cell": "p", "arm": "external"}
        if ok is not None:
            recorded.add("reset.local", **place, ok=ok, tries=1)
        return judge_cell(recorded.events, "p")

    def test_it_is_compared_bit_for_bit(self):
        cell = self.judged(True)
        assert (cell.verdict, cell.oracle.kind) == (Verdict.PASS, "split_matched")

    @pytest.mark.parametrize("ok", [False, None])
    def test_a_refused_one_shows_nothing(self, ok):
        assert self.judged(ok).reason is Reason.RESET_REFUSED
