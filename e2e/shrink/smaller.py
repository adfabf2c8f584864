"""Programs that are smaller by one thing, the greatest first; pure. Each could be played and judged in place of its
own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from e2e.base.program import (
    Break,
    Empty,
    Forget,
    Hit,
    Mend,
    Program,
    Scribble,
    Send,
    Served,
    Site,
    Span,
    Start,
    Step,
    Stop,
    Text,
    Together,
)
from e2e.shrink.trimming import built, replaced, without

#: What was made smaller, in words, and the program.
Candidate = tuple[str, Program]


def smaller(program: Program, *, unit: int, answer: int) -> Iterator[Candidate]:
    """``unit``: tokens after which a block, a unit of the connector and a prefill step end, so that a prompt without
    so many is served as before. ``answer``: output tokens of a Send that names none."""
    made = (
        *_sites(program), *_sends(program), *_texts(program), *_others(program), *_at_once(program),
        *_tokens(program, unit), *_answers(program, answer), *_usual_sites(program),
    )  # fmt: skip
    for what, candidate in made:
        if candidate is not None:
            yield what, candidate


def halves(count: int) -> Iterator[range]:
    """Places, from the halves to each alone, what stands last first."""
    size = (count + 1) // 2
    while size:
        for begin in range((count - 1) // size * size, -1, -size):
            if size < count:
                yield range(begin, min(begin + size, count))
        size = 0 if size == 1 else (size + 1) // 2


def _sites(program: Program) -> Iterator[tuple[str, Program | None]]:
    """Engines are dear, and those without the connector hardly ever needed."""
    for site in sorted(program.sites, key=lambda site: site.connector):
        yield f"without the engine {site.name}", without(_answered_elsewhere(program, site), sites=(site.name,))


def _answered_elsewhere(program: Program, site: Site) -> Program:
    """Prompts go on from what another one answers to the same text, where there is such a one."""

    def one(text: Text) -> Text:
        if not text.follows or text.follows[0] != site.name:
            return text
        others = (send.where for send in program.sends if send.site != site.name and text.like in send.texts)
        return replaced(text, follows=next(others, text.follows))

    return built(program, texts=tuple(map(one, program.texts))) or program


def _sends(program: Program) -> Iterator[tuple[str, Program | None]]:
    flat = list(program.flat)
    places = [place for place, step in enumerate(flat) if isinstance(step, Send)]
    for some in halves(len(places)):
        gone = [places[number] for number in some]
        names = ", ".join(" ".join(flat[place].where) for place in gone)
        yield f"without {names}", without(program, steps=gone)


def _texts(program: Program) -> Iterator[tuple[str, Program | None]]:
    for some in halves(len(program.texts)):
        yield f"without text {', '.join(map(str, some))}", without(program, texts=some)


def _others(program: Program) -> Iterator[tuple[str, Program | None]]:
    """What is broken and mended, emptied, restarted and cut off."""
    flat = list(program.flat)
    for place, step in enumerate(flat):
        if isinstance(step, (Break, Empty)):
            what = f"without {step.how} {step.target}" if isinstance(step, Break) else f"without emptying {step.store}"
            yield what, without(program, steps=(place, *_mends(flat, place)))
        elif isinstance(step, Stop) and (start := _started_again(flat, place)):
            yield f"without a restart of {step.site}", without(program, steps=(place, start))
        elif isinstance(step, Stop):
            yield f"without stopping {step.site}", without(program, steps=(place,))
        elif isinstance(step, (Forget, Scribble)):
            yield f"without {step.__struct_config__.tag} {step.site}", without(program, steps=(place,))
    yield "without a client that goes", changed(program, lambda send: replaced(send, gone_s=None))
    yield "sent at one time", changed(program, lambda send: replaced(send, spread_s=0.0))


def _mends(flat: Sequence[Step], place: int) -> list[int]:
    step = flat[place]
    if not isinstance(step, Break):
        return []
    mend = Mend(step.what, step.how, step.target)
    return [later for later in range(place, len(flat)) if flat[later] == mend][:1]


def _started_again(flat: Sequence[Step], place: int) -> int | None:
    later = range(place, len(flat))
    return next((at for at in later if isinstance(flat[at], Start) and flat[at].site == flat[place].site), None)


def changed(program: Program, change: Callable[[Send], Send], **parts: object) -> Program | None:
    """With every Send changed, and other ``parts``."""

    def one(step: Step) -> Step:
        if isinstance(step, Together):
            return replaced(step, steps=tuple(map(one, step.steps)))
        return change(step) if isinstance(step, Send) else step

    return built(program, steps=tuple(map(one, program.steps)), **parts)


def _at_once(program: Program) -> Iterator[tuple[str, Program | None]]:
    most = max((send.at_once for send in program.sends), default=1)
    for least in dict.fromkeys((1, *_halved(most, 1))):
        limit = {send.where: min(send.at_once, least) for send in program.sends}
        what = f"{least} at once"
        yield what, changed(program, lambda send, limit=limit: replaced(send, at_once=limit[send.where]))


def _answers(program: Program, answer: int) -> Iterator[tuple[str, Program | None]]:
    """Not where the next prompt goes on from one: its places would move."""
    if any(text.follows for text in program.texts):
        return
    most = max((send.answer or answer for send in program.sends), default=1)
    for least in dict.fromkeys((1, *_halved(most, 1))):
        if least < most:
            limit = {send.where: min(send.answer or answer, least) for send in program.sends}
            yield (
                f"answers of {least}",
                changed(program, lambda send, limit=limit: replaced(send, answer=limit[send.where])),
            )


def _halved(most: int, unit: int) -> list[int]:
    """Multiples of ``unit`` below ``most``, each about half of the one before."""
    found, now = [], most // 2 // unit * unit
    while now >= unit:
        found.append(now)
        now = now // 2 // unit * unit
    return found


def _usual_sites(program: Program) -> Iterator[tuple[str, Program | None]]:
    for number, site in enumerate(program.sites):
        for axis in site.settings:
            left = {name: value for name, value in site.settings.items() if name != axis}
            yield f"{site.name} without {axis}", _with_site(program, number, settings=left)
        if site.kv_tokens:
            yield f"{site.name} with all the room that it needs", _with_site(program, number, kv_tokens=None)


def _with_site(program: Program, number: int, **parts: object) -> Program | None:
    sites = list(program.sites)
    sites[number] = replaced(sites[number], **parts)
    return built(program, sites=tuple(sites))


# tokens


def _tokens(program: Program, unit: int) -> Iterator[tuple[str, Program | None]]:
    """Cuts whole units off the front of texts that share something: what lies behind keeps its places."""
    families = _families(program)
    for family in ({*range(len(program.texts))}, *families) if len(families) > 1 else families:
        most = min(_room(text) for index, text in enumerate(program.texts) if index in family) // unit * unit
        for cut in dict.fromkeys((most, *_halved(most, unit))):
            if cut:
                texts = ", ".join(map(str, sorted(family)))
                yield f"text {texts} {cut} tokens shorter", _cut(program, family, cut)


def _room(text: Text) -> int:
    """What can go and still leave something of it, and of what it shares."""
    return min(n for n in (text.tokens, text.shared) if n) - 1


def _families(program: Program) -> list[set[int]]:
    families: list[set[int]] = []
    for index, text in enumerate(program.texts):
        kin = [family for family in families if {text.like, text.body} & family]
        families = [family for family in families if family not in kin] + [{index}.union(*kin)]
    return families


def _cut(program: Program, family: set[int], cut: int) -> Program | None:
    """None where nothing would be left to serve."""
    texts = tuple(
        replaced(text, tokens=text.tokens - cut, shared=max(text.shared - cut, 0)) if index in family else text
        for index, text in enumerate(program.texts)
    )

    def send(send: Send) -> Send:
        served = send.claim(Served)
        if served is None:
            return send
        pairs = zip(send.texts, served.hits, strict=False)  # those of no hits named are whole
        hits = tuple(_shifted(hit, cut) if text in family else hit for text, hit in pairs)
        claims = tuple(replaced(claim, hits=hits) if claim is served else claim for claim in send.claims)
        return replaced(send, claims=claims)

    made = changed(program, send, texts=texts)
    if made is None:
        return None
    both = zip(program.sends, made.sends, strict=True)
    hits = ((was, now) for old, new in both for was, now in zip(program.hits(old), made.hits(new), strict=True))
    lost = any((was.external.most and not now.external.most) or (_sum(was) and not _sum(now)) for was, now in hits)
    return None if lost else made


def _sum(hit: Hit) -> int:
    return hit.local.most + hit.external.most


def _shifted(hit: Hit, cut: int) -> Hit:
    """vLLM's own cache serves the front, the connector what lies behind that."""
    local, external = hit.local, hit.external
    return Hit(
        Span(max(local.least - cut, 0), max(local.most - cut, 0)),
        Span(
            max(external.least - max(cut - local.least, 0), 0), max(external.most - max(cut - local.most, 0), 0)
        ),
    )  # fmt: skip
