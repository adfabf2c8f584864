"""The rerun: the four arms, and what costs little beside them."""

from __future__ import annotations

from collections.abc import Iterator

from e2e.base.program import Cold, Hit, Like, Loaded, Missed, Program, Send, Served, Span, Step, Text
from e2e.scenarios.arms import COLD, CONNECTOR, FourArms, forgotten
from e2e.scenarios.sized import Scenario, Sized

#: Output tokens of what is asked beside the four arms: one of a prefill step, one of a decode step.
_ANSWER = 2


class Replay(Scenario):
    """A prompt that was stored is served again, whole, in part and a third time, and nothing else is served or hurt."""

    name = "replay"

    def program(self, cell: Sized) -> Program:
        return _Grown(cell).program(self.name)


class _Grown:
    """``short``: index of the text that is the beginning of the longest one; ``mixed``: of that which goes on with
    another's body; ``foreign``: of that which is sent under another salt only. None where there is none."""

    def __init__(self, cell: Sized) -> None:
        lengths = uneven(cell)
        self.cell, self.arms, self.texts = cell, FourArms(cell, lengths), [*map(Text, lengths)]
        self.first, self.answer = self.arms.sites[0].name, min(_ANSWER, cell.answer)
        self.short = self._add(beginning(cell, cell.step or cell.unit))
        self.mixed = self._add(other_body(cell))
        self.foreign = self._add(beginning(cell, cell.unit)) if cell.abilities.salted else None

    def _add(self, text: Text | None) -> int | None:
        self.texts += [text] if text else []
        return len(self.texts) - 1 if text else None

    def program(self, name: str) -> Program:
        arms = self.arms
        steps = (
            *arms.first(), *self._references(), *arms.again("external"), *arms.again("external_again"),
            *self._third(), self._afterwards(), *self._other_salt(),
        )  # fmt: skip
        return Program(arms.sites, tuple(self.texts), steps, name)

    def _local(self, name: str, text: int, tokens: int | None = None, *, salt: str = "") -> Send:
        """So many tokens of it from the cache of an engine to which nothing was loaded yet, by default all that this
        has."""
        tokens = self.cell.local(self.texts[text].tokens) if tokens is None else tokens
        return Send(name, self.first, (text,), (Served(False, (_only(tokens),)),), answer=self.answer, salt=salt)

    def _references(self) -> Iterator[Step]:
        """What is computed of the additions, also in the steps that a wrong hit would leave."""
        if self.short is not None:
            yield self._local("beginning_local", self.short)
        if self.foreign is not None:
            yield self._local("foreign_local", self.foreign)
        if self.mixed is not None:
            yield self._local("mixed", self.mixed, self.texts[self.mixed].shared)
            yield Send("mixed_cold", self.first, (self.mixed,), (Cold(),), answer=self.answer, salt="apart")
            yield self._local("mixed_local", self.mixed, salt="apart")

    def _third(self) -> Iterator[Step]:
        """A third time from the connector, the longest prompt partly from vLLM's own cache."""
        yield from forgotten()
        hits = [*map(self.cell.hit, self.arms.lengths)]
        if self.short is not None:
            text = self.texts[self.short]
            claims = (Served(True, (self.cell.hit(text.tokens),)), self._like("beginning_local"), Loaded(COLD))
            yield Send("beginning", CONNECTOR.name, (self.short,), claims, answer=self.answer)
            hits[text.like] = self.cell.hit(self.texts[text.like].tokens, local=self.cell.local(text.tokens))
        claims = (Served(True, tuple(hits)), self.arms.every, Loaded(COLD))
        yield self.arms.send("external_third", CONNECTOR, *claims, answer=self.answer)

    def _afterwards(self) -> Send:
        """Everything once more from vLLM's own cache, where a load for somebody else may have written."""
        sent, hits, like = tuple(range(len(self.arms.lengths))), self.arms.local(CONNECTOR), self.arms.every.steps
        if self.mixed is not None:
            sent, hits = (*sent, self.mixed), (*hits, _only(self.texts[self.mixed].shared))
            like += self._like("mixed", "mixed_cold", "mixed_local").steps
        claims = (Served(False, hits), Like(like), Loaded(COLD))
        return Send("afterwards", CONNECTOR.name, sent, claims, at_once=self.cell.at_once, answer=self.answer)

    def _other_salt(self) -> Iterator[Step]:
        """What is stored for one salt is nobody else's."""
        if not self.cell.abilities.salted:
            return
        text, like = self.foreign, self._like("foreign_local")
        if text is None:
            text, like = self.cell.lengths.index(min(self.cell.lengths)), self.arms.every
        claims = (Missed(), like, Loaded(COLD))
        yield Send("other_salt", CONNECTOR.name, (text,), claims, answer=self.answer, salt="other")

    def _like(self, *names: str) -> Like:
        return Like(tuple((self.first, name) for name in names))


def _only(local: int) -> Hit:
    return Hit(Span(local, local), Span(0, 0))


def uneven(cell: Sized) -> tuple[int, ...]:
    """The lengths; of three or more that were solved, one in the middle ends within a block and within a unit of the
    connector. All as they are where nobody could judge that one."""
    middle = len(cell.lengths) // 2
    tokens = cell.lengths[middle] // cell.unit * cell.unit + cell.block_size + max(cell.block_size // 3, 1)
    served = cell.rule.external(tokens)
    aligned = cell.step is not None and served % cell.step == 0 and cell.at_once == 1
    judged = cell.digests or aligned or served == cell.local(tokens)
    if not (cell.solved and len(cell.lengths) > 2 and served and judged and cell.takes(tokens)):
        return cell.lengths
    return (*cell.lengths[:middle], tokens, *cell.lengths[middle + 1 :])


def beginning(cell: Sized, shared: int) -> Text | None:
    """The first ``shared`` tokens of the longest text and what the connector holds back. It serves all of them, so that
    vLLM's own cache then has them as they were stored. None where it does not, or has no more of the longest text."""
    longest, rule = max(cell.lengths), cell.rule
    tokens = shared + max(rule.hold_back, 1)
    whole = rule.least(tokens) == rule.external(tokens) == cell.local(tokens) == shared
    if not (whole and rule.external(longest, shared) and cell.abilities.prefixes and cell.takes(tokens)):
        return None
    return Text(tokens, like=cell.lengths.index(longest), shared=tokens)


def other_body(cell: Sized) -> Text | None:
    """The longest text's first unit, and the shortest one's second. Each is stored, the second behind another first
    one. None without a plain engine, which has to say what comes of it."""
    longest, shortest = max(cell.lengths), min(cell.lengths)
    tokens = 2 * cell.unit + max(cell.rule.hold_back, 1)
    if not (cell.baseline and tokens <= shortest < longest and cell.takes(tokens)):
        return None
    like, body = map(cell.lengths.index, (longest, shortest))
    return Text(tokens, like=like, shared=cell.unit, body=body)
