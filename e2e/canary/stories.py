"""Stories of probes, as programs for the judge. Nothing is reset or overwritten; every text begins with a nonce.

cross    one engine computes and stores, another one of the same store loads
later    an engine is asked for what was stored long ago, beside the same text under a fresh salt
local    an engine's own prefix cache
alike    two engines compute the same text: do they agree bit for bit?
again    a second look at a finding, with nothing loaded

To be exact, what is loaded is held against an answer that was served as many tokens of the same KV and computes the
same rest. Where whole blocks end elsewhere than whole chunks, another text than was stored is asked for, which begins
with its whole chunks: a local cache and a store have just as much of it.
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

    def shared(self, tokens: int) -> int | None:
        """What a text must share with the one that is stored, so that local cache and store serve as much of it; None
        where they do so anyway."""
        served = self.external(tokens)
        return served if 0 < served != self.local(tokens) and served % self.block == 0 else None


def site(name: str, units: Units) -> Site:
    return Site(name, in_use=True, step=units.step)


def cross(home: str, away: str, tokens: int, units: Units) -> Program:
    """``home`` computes and stores, ``away`` never saw it: what it is served comes from the store."""
    texts = texts_of(tokens, units)
    asked = len(texts) - 1
    cold = Send("cold", home, (0,), (Cold(),))
    local = _again("local", home, asked, (() if asked else (cold.where,)))
    hit = Hit(Span(0, 0), Span(1, tokens))
    like = Like((*(() if asked else (cold.where,)), local.where))
    external = Send("external", away, (asked,), (Served(True, (hit,)), like))
    return Program((site(home, units), site(away, units)), texts, (cold, local, external), SCENARIO)


def later(name: str, tokens: int, units: Units) -> Program:
    """What was stored under the first salt is asked for again; computed anew under another one, it is the reference.
    Has the engine it still in its own cache, that is seen by vLLM's counters."""
    cold = Send("cold", name, (0,), (Cold(),), salt=FRESH)
    local = _again("local", name, 0, (cold.where,), salt=FRESH)
    hit = Hit(Span(0, tokens), Span(1, tokens))
    old = Send("old", name, (0,), (Served(True, (hit,)), Like((cold.where, local.where))), salt=STORED)
    return Program((site(name, units),), (Text(tokens),), (cold, local, old), SCENARIO)


def local(name: str, tokens: int, units: Units) -> Program:
    """Asked twice of the prefix cache, so that equal steps can be compared."""
    cold = Send("cold", name, (0,), (Cold(),))
    once = _again("local", name, 0, (cold.where,))
    again = _again("local_again", name, 0, (cold.where, once.where))
    return Program((site(name, units),), (Text(tokens),), (cold, once, again), SCENARIO)


def anew(names: tuple[str, ...], texts: tuple[Text, ...], units: Units) -> Program:
    """Each computes what a probe of these texts stored, and asks its own cache for what was asked for; twice where it
    is alone, under salts that nobody else has: stories ``alike`` and ``again``."""
    sends: list[Send] = []
    for number, name in enumerate(names if len(names) > 1 else names * 2):
        salt = f"{FRESH}{number}"
        sends.append(Send(f"cold{number}", name, (0,), (Cold(),), salt=salt))
        sends.append(_again(f"local{number}", name, len(texts) - 1, (), salt=salt))
    return Program(tuple(site(name, units) for name in names), texts, tuple(sends), SCENARIO)


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


def texts_of(tokens: int, units: Units) -> tuple[Text, ...]:
    """What is stored, and what is asked for where that is another one."""
    shared = units.shared(tokens)
    return (Text(tokens),) if shared is None else (Text(shared + 1), Text(tokens, like=0, shared=shared))


def _again(name: str, on: str, text: int, like: tuple[Where, ...], salt: str = STORED) -> Send:
    """Of its own prefix cache; how much that has, it says."""
    claims = (Served(False), *((Like(like),) if like else ()))
    return Send(name, on, (text,), claims, salt=salt)
