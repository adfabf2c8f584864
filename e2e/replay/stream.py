"""Reads the stream of one /v1/completions answer; knows vLLM's chunks, no socket."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from e2e.base.errors import EngineAnswer


@dataclass(frozen=True)
class Completion:
    """One answer. ``logprobs``: natural logarithms as vLLM's floats, not rounded, one per output token; ``top``: per
    output token ``{"token_id:N": logprob}``; ``text``: per output token what became readable with it, together the
    whole answer. Times in monotonic ns: before the POST, at the first chunk that carries a token, at the end of the
    stream. ``cached_tokens`` is None when the engine does not tell (vLLM up to 0.23 leaves the field out for 0)."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    top: tuple[dict[str, float], ...]
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int | None
    sent_ns: int
    first_ns: int
    done_ns: int
    text: tuple[str, ...] = ()


@dataclass
class StreamReader:
    """Takes chunks as they come; ``finish`` gives the Completion, or EngineAnswer for what is no whole answer."""

    request_id: str
    prompt_tokens: int
    wants_logprobs: bool = True
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[dict[str, float]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict | None = None
    first_ns: int = 0

    def take(self, payload: str | bytes, *, now_ns: int) -> None:
        """One ``data:`` payload. EngineAnswer for an error inside the stream and for what is no JSON object."""
        try:
            chunk = json.loads(payload)
        except ValueError as error:
            raise self._bad(f"a chunk that is no JSON: {payload[:80]!r}") from error
        if not isinstance(chunk, dict):
            raise self._bad(f"a chunk that is no object: {payload[:80]!r}")
        if chunk.get("error") or chunk.get("object") == "error":
            raise self._bad(f"the error {error_message(chunk)!r} inside its stream", cause=error_message(chunk))
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices") or ():
            self._take_choice(choice, now_ns)

    def _take_choice(self, choice: dict, now_ns: int) -> None:
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        new = choice.get("token_ids") or ()
        if new and not self.first_ns:
            self.first_ns = now_ns
        self.token_ids += new
        self._take_text(str(choice.get("text") or ""), len(new))
        if logprobs := choice.get("logprobs"):
            self.logprobs += logprobs.get("token_logprobs") or ()
            self.top += logprobs.get("top_logprobs") or ()

    def _take_text(self, piece: str, tokens: int) -> None:
        """A chunk of several tokens has one text, which is readable with the last of them."""
        if tokens:
            self.text += [*[""] * (tokens - 1), piece]
        elif self.text:
            self.text[-1] += piece

    def finish(self, *, sent_ns: int, done_ns: int) -> Completion:
        if self.finish_reason is None or self.usage is None:
            missing = "finish_reason" if self.finish_reason is None else "usage"
            raise self._bad(f"a stream that ended without {missing}")
        if self.finish_reason not in ("length", "stop"):
            raise self._bad(f"finish_reason {self.finish_reason!r}")
        if not self.token_ids:
            raise self._bad("no token ids; it needs a vLLM that knows return_token_ids (0.14 or newer)")
        if self.wants_logprobs and not len(self.logprobs) == len(self.top) == len(self.token_ids):
            raise self._bad(f"{len(self.token_ids)} tokens, but {len(self.logprobs)} logprobs")
        if self.usage.get("prompt_tokens") != self.prompt_tokens:
            raise self._bad(f"{self.usage.get('prompt_tokens')} prompt tokens, but {self.prompt_tokens} were sent")
        details = self.usage.get("prompt_tokens_details") or {}
        return Completion(
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            top=tuple(self.top),
            finish_reason=self.finish_reason,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=details.get("cached_tokens"),
            sent_ns=sent_ns,
            first_ns=self.first_ns,
            done_ns=done_ns,
            text=tuple(self.text),
        )

    def _bad(self, what: str, *, cause: str = "") -> EngineAnswer:
        message = f"The engine answered request {self.request_id} with {what}; its log has the reason."
        return EngineAnswer(message, status=200, cause=cause)


def events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Server-sent events: the payload of each ``data:`` line, as soon as its line is whole, up to ``[DONE]``."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            payload = line.strip()
            if not payload.startswith(b"data:"):
                continue
            payload = payload[5:].strip()
            if payload == b"[DONE]":
                return
            yield payload


def error_message(body: object) -> str:
    """vLLM's own words out of an error body: ``{"error": {"message"}}``, or ``{"message"}`` in older versions."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    return str(inner.get("message", inner) if isinstance(inner, dict) else inner)
