"""Stories of probes, as programs for the judge. Nothing is reset or overwritten; every text begins with a nonce.

cross    one engine computes and stores, another one of the same store loads
crowd    the same of several texts, which are loaded at once
reset    an engine stores, empties its own cache, and loads; only where it was told that it may
later    an engine is asked for what was stored long ago, beside the same text under a fresh salt
local    an engine's own prefix cache
alike    two engines compute the same text: do they agree bit for bit?
again    a second look at a finding, with nothing loaded
located  digests of what is wrong beside those of what is computed anew; only where it was told that it may

To be exact, what is loaded is held against an answer that was served as many tokens of the same KV and computes the
same rest. Where whole blocks end elsewhere than whole chunks, another text than was stored is asked for, which begins
with its whole chunks: a local cache and a store have just as much of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from e2e.base.program import (
    Cold,
    Forget,
    Hit,
    Like,
    Loaded,
    Program,
    Send,
    Served,
    Site,
    Span,
    Text,
    Where,
)

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
    texts, (*stored, load) = _loaded(home, away, tokens, units)
    return Program((site(home, units), site(away, units)), texts, (*stored, load), SCENARIO)


def reset(name: str, tokens: int, units: Units) -> Program:
    """One engine: what it stored it has to load once its own cache is empty."""
    texts, (*stored, load) = _loaded(name, name, tokens, units)
    return Program((site(name, units),), texts, (*stored, Forget(name), load), SCENARIO)


def _loaded(home: str, away: str, tokens: int, units: Units) -> tuple[tuple[Text, ...], tuple[Send, ...]]:
    texts = texts_of(tokens, units)
    asked = len(texts) - 1
    cold = Send("cold", home, (0,), (Cold(),))
    local = _again("local", home, asked, (() if asked else (cold.where,)))
    hit = Hit(Span(0, 0), Span(1, tokens))
    like = Like((*(() if asked else (cold.where,)), local.where))
    return texts, (cold, local, Send("external", away, (asked,), (Served(True, (hit,)), like)))


def crowd(home: str, away: str, tokens: int, units: Units, number: int) -> Program:
    """``number`` texts, which ``away`` is asked for at once: they share its steps, so that only the coarse rule holds.
    Each has a nonce of its own, so one that is given another one's KV answers otherwise."""
    texts, asked = (Text(tokens),) * number, tuple(range(number))
    cold = Send("cold", home, asked, (Cold(),))
    hits = (Hit(Span(0, 0), Span(1, tokens)),) * number
    load = Send("at_once", away, asked, (Served(True, hits), Like((cold.where,))), at_once=number)
    return Program((site(home, units), site(away, units)), texts, (cold, load), SCENARIO)


def later(name: str, tokens: int, units: Units, asked: int = 0) -> Program:
    """What was stored under the first salt is asked for again; computed anew under another one, it is the reference.
    Has the engine it still in its own cache, that is seen by vLLM's counters. ``asked``: how often it was before, since
    a store has what was computed anew then, too."""
    fresh = f"{FRESH}{asked}"
    cold = Send("cold", name, (0,), (Cold(),), salt=fresh)
    local = _again("local", name, 0, (cold.where,), salt=fresh)
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


def located(home: str, away: str, texts: tuple[Text, ...], units: Units) -> Program:
    """What ``away`` has of what was stored, in its own cache or in the store, beside what ``home`` computes anew."""
    asked = len(texts) - 1
    anew = Send("anew", home, (0,), (Cold(),), salt=FRESH)
    whole = Span(0, texts[asked].tokens)
    still = Send("still", away, (asked,), (Served(False, (Hit(whole, whole),)), Loaded(anew.where)), salt=STORED)
    sites = tuple(site(name, units) for name in dict.fromkeys((home, away)))
    return Program(sites, texts, (anew, still), SCENARIO)


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
