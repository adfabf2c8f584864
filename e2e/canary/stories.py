"""Stories of probes, as programs for the judge. Nothing is reset or overwritten; every text begins with a nonce.

cross    one engine computes and stores, another one of the same store loads
later    an engine is asked for what was stored long ago, beside the same text under a fresh salt
local    an engine's own prefix cache
alike    two engines compute the same text: do they agree bit for bit?
again    a second look at a finding, with nothing loaded

To be exact, what is loaded is held against an answer that was served as many tokens and computes the same rest. Where
whole blocks end elsewhere than whole chunks, a ``front`` puts just as many tokens into the local cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from e2e.base.program import Cold, Hit, Like, Program, Send, Served, Site, Span, Text, Where

SCENARIO = "canary"
#: Salts of a story, by what stands behind the probe's own: what was stored, and what nobody asks for again.
STORED, FRESH = "", "fresh"


@dataclass(frozen=True)
class Units:
    """Tokens: of a block of vLLM's, of a chunk of the store's and of a prefill step, where known; as they were given,
    or as what was served tells."""

    block: int = 16
    chunk: int = 256
    step: int | None = None

    def external(self, tokens: int) -> int:
        """What a store has of so many; the last token is never served."""
        return (tokens - 1) // self.chunk * self.chunk

    def local(self, tokens: int) -> int:
        return (tokens - 1) // self.block * self.block

    def front(self, tokens: int) -> int | None:
        """The text in front of which a local cache serves what the store would; None where it does so anyway."""
        served = self.external(tokens)
        needed = 0 < served != self.local(tokens) and served % self.block == 0
        return served + 1 if needed else None


def site(name: str, units: Units) -> Site:
    return Site(name, in_use=True, step=units.step)


def cross(home: str, away: str, tokens: int, units: Units) -> Program:
    """``home`` computes and stores, ``away`` never saw it: what it is served comes from the store."""
    texts, fronts = _texts(tokens, units)
    cold = Send("cold", home, (0,), (Cold(),))
    before, local = _local(home, fronts, cold)
    hit = Hit(Span(0, 0), Span(1, tokens))
    external = Send("external", away, (0,), (Served(True, (hit,)), Like((cold.where, local.where))))
    return Program((site(home, units), site(away, units)), texts, (cold, *before, local, external), SCENARIO)


def later(name: str, tokens: int, units: Units) -> Program:
    """What was stored under the first salt is asked for again; computed anew under another one, it is the reference.
    Has the engine it still in its own cache, that is seen by vLLM's counters."""
    texts, fronts = _texts(tokens, units)
    cold = Send("cold", name, (0,), (Cold(),), salt=FRESH)
    before, local = _local(name, fronts, cold)
    hit = Hit(Span(0, tokens), Span(1, tokens))
    old = Send("old", name, (0,), (Served(True, (hit,)), Like((cold.where, local.where))), salt=STORED)
    return Program((site(name, units),), texts, (cold, *before, local, old), SCENARIO)


def local(name: str, tokens: int, units: Units) -> Program:
    """Asked twice of the prefix cache, so that equal steps can be compared."""
    cold = Send("cold", name, (0,), (Cold(),))
    once = _served("local", name, tokens, (cold.where,))
    again = _served("local_again", name, tokens, (cold.where, once.where))
    return Program((site(name, units),), (Text(tokens),), (cold, once, again), SCENARIO)


def anew(names: tuple[str, ...], tokens: int, units: Units) -> Program:
    """Each computes it, twice where it is alone, under salts that nobody else has: stories ``alike`` and ``again``."""
    asked = names if len(names) > 1 else names * 2
    sends = (Send(f"anew{n}", name, (0,), (Cold(),), salt=f"{FRESH}{n}") for n, name in enumerate(asked))
    return Program(tuple(site(name, units) for name in names), (Text(tokens),), tuple(sends), SCENARIO)


def cost(program: Program, answer: int) -> dict[str, int]:
    """Prompt and output tokens by site."""
    spent: dict[str, int] = {}
    for send in program.sends:
        asked = sum(program.texts[text].tokens + (send.answer or answer) for text in send.texts)
        spent[send.site] = spent.get(send.site, 0) + asked
    return spent


def stored(program: Program) -> dict[str, int]:
    """Tokens of KV by site that are computed and so may be stored."""
    found: dict[str, int] = {}
    for send in program.sends:
        if send.claim(Cold):
            found[send.site] = found.get(send.site, 0) + sum(program.texts[text].tokens for text in send.texts)
    return found


def _texts(tokens: int, units: Units) -> tuple[tuple[Text, ...], bool]:
    front = units.front(tokens)
    texts = (Text(tokens),) if front is None else (Text(tokens), Text(front, like=0, shared=front))
    return texts, front is not None


def _local(name: str, front: bool, cold: Send) -> tuple[tuple[Send, ...], Send]:
    """The answer out of the prefix cache, and what must be sent before it."""
    if not front:
        return (), _served("local", name, None, (cold.where,), salt=cold.salt)
    first = Send("front", name, (1,), (Cold(),), answer=1, salt="front")
    return (first,), _served("local", name, None, (cold.where,), salt=first.salt)


def _served(name: str, on: str, tokens: int | None, like: tuple[Where, ...], salt: str = STORED) -> Send:
    hits = (Hit(Span(1, tokens), Span(0, 0)),) if tokens else ()
    return Send(name, on, (0,), (Served(False, hits), Like(like)), salt=salt)
