"""No answer tells a secret that stands in another prompt alone: that would be the KV of another request."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge import compare
from e2e.judge.view import Answer, CellView, Sent

RULE = "foreign"


def check(view: CellView) -> list[Finding]:
    """What a reference says too, the engine computes, such as by guessing."""
    return [
        Finding(RULE, Reason.FOREIGN_SECRET, {"prompt": prompt, **sent.place, "secret_of": secret})
        for sent in view.sent
        for prompt in sent.send.texts
        for secret in view.plan.foreign
        if _tells(sent.answer(prompt), secret) and _references(view, sent, prompt, secret)
    ]


def _references(view: CellView, sent: Sent, prompt: int, secret: str) -> bool:
    """Are there any, none of which tells it?"""
    answers = [other.answer(prompt) for other in compare.references(view, sent, prompt)]
    return bool(answers) and not any(_tells(answer, secret) for answer in answers)


def _tells(answer: Answer | None, secret: str) -> bool:
    return answer is not None and bool(secret) and secret in "".join(answer.text)
