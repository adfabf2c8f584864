"""Stories told one after the other, as one: engines that are alike are one engine, and what is stored stays there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec
from msgspec import structs

from e2e.base.program import (
    Break,
    Claims,
    Empty,
    Like,
    Mend,
    Pool,
    Program,
    Send,
    Site,
    Start,
    Step,
    Stop,
    Text,
    Together,
    Where,
)

#: A lent engine has so much more room than any one story needs, since blocks of the one before go one by one.
SPARE = 1.5
#: Tokens of KV that a store is left with at most; then it is emptied.
LEFT = 20_000


def mixed(stories: Sequence[Program], *, block_size: int, answer: int, scenario: str) -> Program:
    """``answer``: output tokens of a Send that says nothing else. Names of what is sent end with their story's number.
    An engine of peculiar room or speed is started for its story, and what a story leaves running is stopped behind
    it."""
    mix = _Mix(block_size, answer)
    for number, story in enumerate(stories, start=1):
        mix.take(story, number)
    return Program(tuple(mix.roomy()), tuple(mix.texts), tuple(mix.steps), scenario)


@dataclass
class _Mix:
    """``sites``: by what they are, whatever their stories call them. ``stores``: name and room -> name. ``needs``: KV
    tokens that one story sends a site at most. ``stored``: tokens that lie in a store."""

    block_size: int
    answer: int
    texts: list[Text] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    sites: dict[tuple[bytes, bool, int], Site] = field(default_factory=dict)
    stores: dict[tuple[str, Pool | None], str] = field(default_factory=dict)
    needs: dict[str, int] = field(default_factory=dict)
    stored: Counter[str] = field(default_factory=Counter)

    def take(self, story: Program, number: int) -> None:
        lent = {site.name for site in story.sites if story.lent(site) and not _peculiar(site)}
        sites: dict[str, Site] = {}
        for site in story.sites:
            sites[site.name] = self._site(site, lent=site.name in lent, beside=sites.values())
        told = _Story(story, number, len(self.texts), sites)
        for site in story.sites:
            name = sites[site.name].name
            self.needs[name] = max(self.needs.get(name, 0), self._needs(story, site))
        own = [Start(site.name) for site in story.sites if story.lent(site) and site.name not in lent]
        steps = [told.step(step) for step in (*own, *story.steps)]
        self.texts += map(told.text, story.texts)
        self.steps += [*self._room(told, steps), *map(Stop, _left_running(steps))]

    def _site(self, site: Site, *, lent: bool, beside: Collection[Site]) -> Site:
        """``beside``: others of its story, which it is none of, however alike they are."""
        store = self._store(site.store, site.pool) if site.connector and site.store else None
        like = msgspec.json.encode(structs.replace(site, name="", store=store), order="sorted")
        what = next(key for nth in count() if self.sites.get(key := (like, lent, nth)) not in beside)
        if what not in self.sites:
            names = {other.name for other in self.sites.values()}
            self.sites[what] = structs.replace(site, name=_unused(site.name, names), store=store)
        return self.sites[what]

    def _store(self, name: str, pool: Pool | None) -> str:
        return self.stores.setdefault((name, pool), _unused(name, set(self.stores.values())))

    def _needs(self, story: Program, site: Site) -> int:
        block = max(self.block_size, int(site.settings.get("block_size", 0)))
        return sum(-(-span // block) * block + block for span in story.spans(site, self.answer)) + block

    def _room(self, told: _Story, steps: list[Step]) -> list[Step]:
        """``steps``, and among them a store is emptied that would hold too much with what they leave there."""
        made = list(steps)
        for store, tokens in told.stored.items():
            self.stored[store] += tokens
            if self.stored[store] > max(LEFT, tokens):
                self.stored[store] = tokens
                users = {site.name for site in told.sites.values() if site.store == store}
                starts = (at for at, step in enumerate(made, 1) if isinstance(step, Start) and step.site in users)
                made.insert(next(starts, 0), Empty(store))
        return made

    def roomy(self) -> list[Site]:
        """Those that a story gave no room of its own hold any one of their stories."""
        return [
            site if site.kv_tokens else structs.replace(site, kv_tokens=int(self.needs[site.name] * SPARE))
            for site in self.sites.values()
        ]


def _peculiar(site: Site) -> bool:
    """Would no other story want its engine?"""
    return site.connector and structs.replace(site, name="", store="pool") != Site("")


@dataclass(frozen=True)
class _Story:
    """One story's words -> those of the mix. ``first``: index of its first text there."""

    program: Program
    number: int
    first: int
    sites: dict[str, Site]

    @property
    def stored(self) -> Counter[str]:
        """Store -> tokens that are left there, at most."""
        sent = {
            (self.sites[send.site].store, text, send.salt)
            for send in self.program.sends
            if self.sites[send.site].store
            for text in send.texts
        }
        stored: Counter[str] = Counter()
        for store, text, _ in sent:
            stored[str(store)] += self.program.texts[text].tokens
        return stored

    def where(self, where: Where) -> Where:
        return self.sites[where[0]].name, self._named(where[1])

    def _named(self, send: str) -> str:
        return f"{send}_{self.number}"

    def text(self, text: Text) -> Text:
        moved = {name: index + self.first for name in ("like", "body") if (index := getattr(text, name)) is not None}
        follows = {"follows": self.where(text.follows)} if text.follows else {}
        return structs.replace(text, **moved, **follows)

    def step(self, step: Step) -> Step:
        if isinstance(step, Together):
            return structs.replace(step, steps=tuple(map(self.step, step.steps)))
        if isinstance(step, Send):
            return structs.replace(
                step, name=self._named(step.name), site=self.sites[step.site].name,
                texts=tuple(text + self.first for text in step.texts), claims=tuple(map(self._claim, step.claims)),
            )  # fmt: skip
        if isinstance(step, (Break, Mend)):
            return structs.replace(step, target=self._target(step))
        if isinstance(step, Empty):
            return structs.replace(step, store=self._stores[step.store])
        return structs.replace(step, site=self.sites[step.site].name)

    def _claim(self, claim: Claims) -> Claims:
        if isinstance(claim, Like):
            return structs.replace(claim, steps=tuple(map(self.where, claim.steps)))
        return structs.replace(claim, step=self.where(claim.step)) if hasattr(claim, "step") else claim

    @property
    def _stores(self) -> dict[str, str]:
        return {site.store: str(self.sites[site.name].store) for site in self.program.sites if site.store}

    def _target(self, step: Break | Mend) -> str:
        """A server is that of a store: of the one that is named, or of the story's first."""
        if step.what == "engine":
            return self.sites[step.target].name
        if step.what != "server":
            return self._stores[step.target]
        store, _, server = step.target.rpartition("/")
        return f"{self._stores[store or next(iter(self._stores))]}/{server}"


def _left_running(steps: Sequence[Step]) -> list[str]:
    running: list[str] = []
    for step in steps:
        if isinstance(step, Start):
            running.append(step.site)
        for each in step.steps if isinstance(step, Together) else (step,):
            if isinstance(each, Stop):
                running.remove(each.site)
    return running


def _unused(name: str, names: set[str]) -> str:
    number, found = 1, name
    while found in names:
        number += 1
        found = f"{name}{number}"
    return found
