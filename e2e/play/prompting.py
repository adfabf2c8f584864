"""Prompts of an attempt: token lists for the texts of a program, those that go on from an answer once it is known."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from e2e.base.errors import EngineError
from e2e.base.program import Program, Send, Where
from e2e.replay.prompts import Encode, Prompt, build_prompts, going_on
from e2e.replay.stream import Completion


class Prompts:
    """``run``: what no other attempt at any run is called; ``encode``: None where only an engine can tell. Several
    threads may share them."""

    def __init__(self, documents: Sequence[str], encode: Encode | None, *, run: str) -> None:
        self._documents, self._encode, self._run = documents, encode, run
        self._building = threading.Lock()
        self._built: dict[str, list[Prompt]] = {}
        #: (engine key, cell or None, Send, text) -> tokens
        self._answers: dict[tuple[str, str | None, Where, int], tuple[int, ...]] = {}

    def build(self, key: str, program: Program, encode: Encode | None = None) -> None:
        """Those of an engine key, unless they are there, or nobody tells tokens yet."""
        with self._building:
            if (encode := self._encode or encode) and key not in self._built:
                nonce = f"{self._run}/{key}"
                self._built[key] = build_prompts(self._documents, encode, texts=program.texts, nonce=nonce)

    def of(self, key: str, cell: str | None, program: Program, send: Send) -> list[Prompt]:
        """Of one Send, in the order of its texts. ValueError for an answer that leaves no room."""
        return [self._of(key, cell, program, text) for text in send.texts]

    def _of(self, key: str, cell: str | None, program: Program, text: int) -> Prompt:
        recipe, prompt = program.texts[text], self._built[key][text]
        if recipe.follows is None or recipe.like is None:
            return prompt
        known = (self._answers.get((key, of, recipe.follows, recipe.like)) for of in (cell, None))
        answer = next((tokens for tokens in known if tokens is not None), None)
        if answer is None:
            raise EngineError(
                f"the answer of {' '.join(recipe.follows)} that the next prompt goes on from is not there"
            )
        return going_on(self._of(key, cell, program, recipe.like), prompt, shared=recipe.shared, answer=answer)

    def answered(self, key: str, cell: str | None, send: Send, answers: Sequence[Completion | None]) -> None:
        for text, answer in zip(send.texts, answers, strict=True):
            if answer is not None:
                self._answers[key, cell, send.where, text] = answer.token_ids
