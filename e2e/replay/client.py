"""The HTTP client of one engine. The only room that knows ``requests``; its exceptions end here:

connection refused, reset or cut short     EngineCrashed
no answer within the limit                 EngineTimeout
an HTTP error, an error inside a stream,
an answer without its end                  EngineAnswer
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import requests
from urllib3.exceptions import HTTPError, NewConnectionError, ReadTimeoutError

from e2e.base.errors import EngineAnswer, EngineCrashed, EngineTimeout, SettingsError
from e2e.replay.stream import Completion, StreamReader, error_message, events
from e2e.waits import until

_CONNECT_S = 10.0
#: vLLM up to 0.25 answers /reset_prefix_cache with an empty body whether it did or not; asked so often, in case a block
#: was still held by a store in flight.
_BLIND_RESETS = 4
_RESET_PAUSE_S = 0.25
Field = TypeVar("Field")


class EngineClient:
    """``url``: without path, such as http://127.0.0.1:8000. ``timeout_s``: limit of one call unless it names its own.
    ``api_key``: sent with every call. ``why_late``: asked when a call is late, for what the engine's log says of it.
    Usable from several threads."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 120.0,
        api_key: str | None = None,
        why_late: Callable[[], str] = lambda: "",
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise SettingsError(f"The engine's address {url!r} is no URL; use http://HOST:PORT.")
        self.url = url.rstrip("/")
        self.timeout_s, self._why_late = timeout_s, why_late
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy or netrc from the environment: settings/ alone reads that
        # A kept connection that the server drops just as it is used looks like a crash; a new one costs 0.1 ms.
        self._session.headers["Connection"] = "close"
        if api_key:
            self._session.headers["Authorization"] = f"Bearer {api_key}"

    def complete(
        self,
        token_ids: Sequence[int],
        *,
        request_id: str,
        max_tokens: int,
        logprobs: int | None = 5,
        cache_salt: str | None = None,
        model: str | None = None,
        kv_transfer_params: dict[str, object] | None = None,
        limit_s: float | None = None,
        most_tokens: int | None = None,
    ) -> Completion:
        """Greedy answer of exactly ``max_tokens`` tokens to a prompt given as token ids. ``logprobs``: top entries per
        token, None for none. ``model``: who answers, None: the engine's own. ``limit_s``: for the whole answer.
        ``most_tokens``: when so many have come the connection is closed, and EngineTimeout raised."""
        limit_s = self.timeout_s if limit_s is None else limit_s
        body: dict[str, object] = {
            "prompt": list(token_ids),
            "max_tokens": max_tokens,
            "temperature": 0,
            "seed": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        optional = {
            "model": model,
            "logprobs": logprobs,
            "cache_salt": cache_salt,
            "kv_transfer_params": kv_transfer_params,
        }
        body |= {key: value for key, value in optional.items() if value is not None}
        reader = StreamReader(request_id, len(token_ids), wants_logprobs=logprobs is not None)
        sent_ns = time.monotonic_ns()
        what = f"answering request {request_id}"
        with self._answer(
            "POST", "/v1/completions", what, limit_s, json=body, headers={"X-Request-Id": request_id}, stream=True
        ) as response:
            for payload in events(_as_it_comes(response)):
                now_ns = time.monotonic_ns()
                if now_ns - sent_ns > limit_s * 1e9:
                    raise self._late(what, limit_s)
                reader.take(payload, now_ns=now_ns)
                if most_tokens is not None and len(reader.token_ids) >= most_tokens:
                    raise EngineTimeout(f"{what.capitalize()} was left after {most_tokens} tokens.")
            return reader.finish(sent_ns=sent_ns, done_ns=time.monotonic_ns())

    def tokenize(self, text: str) -> list[int]:
        """Token ids without special tokens, by the engine's own tokenizer."""
        body = {"prompt": text, "add_special_tokens": False}
        with self._answer("POST", "/tokenize", "tokenizing", self.timeout_s, json=body) as response:
            return _field(response, "tokens", list)

    def reset_prefix_cache(self, limit_s: float = 30.0, *, external: bool = False) -> tuple[bool | None, int]:
        """Empties vLLM's own prefix cache (with ``external`` the connector's store too), asked again until it says
        success: it refuses while blocks are held. Returns (ok, tries); ok is None when vLLM does not tell (up to 0.25).
        True with ``external`` proves nothing: a connector without a reset counts as success."""
        path = "/reset_prefix_cache" + ("?reset_external=true" if external else "")
        tries = 0

        def ask() -> bool | None:
            nonlocal tries
            tries += 1
            with self._answer("POST", path, "resetting its prefix cache", self.timeout_s) as response:
                return _field(response, "success", bool) if response.content.strip() else None

        def enough(ok: bool | None) -> bool:
            return bool(ok) or (ok is None and tries >= _BLIND_RESETS)

        return until(ask, enough, limit_s=limit_s, every_s=_RESET_PAUSE_S), tries

    def collective_rpc(self, method: str, *args: object, timeout: float | None = None) -> list:
        """Calls a method of the worker extension; one JSON result per rank. ``timeout`` in seconds. EngineAnswer when
        the engine has no such method or runs without VLLM_SERVER_DEV_MODE=1."""
        limit_s = self.timeout_s if timeout is None else timeout
        body = {"method": method, "args": list(args), "kwargs": {}, "timeout": limit_s}
        with self._answer("POST", "/collective_rpc", f"calling {method}", limit_s + 5, json=body) as response:
            return [] if _json(response).get("results") is None else _field(response, "results", list)

    def server_info(self) -> dict[str, object]:
        """vLLM's configuration as the API process sees it; needs VLLM_SERVER_DEV_MODE=1."""
        with self._answer(
            "GET", "/server_info?config_format=json", "reading its configuration", self.timeout_s
        ) as response:
            return _json(response)

    def version(self) -> str:
        with self._answer("GET", "/version", "reading its version", self.timeout_s) as response:
            return _field(response, "version", str)

    def models(self) -> list[str]:
        """Names that it serves, its own before adapters'. EngineAnswer when it names none."""
        with self._answer("GET", "/v1/models", "naming its models", self.timeout_s) as response:
            listed = _field(response, "data", list)
            names = [each.get("id") for each in listed if isinstance(each, dict)]
            if not names or not all(isinstance(name, str) for name in names):
                raise _other(response)
            return names

    def metrics(self) -> str:
        """The text of /metrics."""
        with self._answer("GET", "/metrics", "reading its metrics", self.timeout_s) as response:
            return response.text

    @contextmanager
    def _answer(
        self, verb: str, path: str, what: str, limit_s: float, **options: object
    ) -> Iterator[requests.Response]:
        """The response while it is read. Every failure on the way, also while the body is read, becomes one of ours."""
        timeout = (min(_CONNECT_S, limit_s), limit_s)
        try:
            with self._session.request(verb, self.url + path, timeout=timeout, **options) as response:
                if response.status_code >= 400:
                    raise _refusal(response, what)
                yield response
        except requests.exceptions.InvalidURL as error:
            raise SettingsError(f"The engine's address {self.url!r} can't be used; use http://HOST:PORT.") from error
        except (requests.RequestException, HTTPError, OSError) as error:
            raise self._lost(error, what, limit_s) from error

    def _lost(self, error: Exception, what: str, limit_s: float) -> EngineTimeout | EngineCrashed:
        inner = error.args[0] if error.args else None
        if isinstance(error, (requests.Timeout, ReadTimeoutError)) or isinstance(inner, ReadTimeoutError):
            return self._late(what, limit_s)
        if isinstance(getattr(inner, "reason", None), NewConnectionError):
            return EngineCrashed(f"Nothing answers at {self.url}; see whether the engine runs, and its log.")
        return EngineCrashed(f"The connection to {self.url} was lost while it was {what}; see the engine's log.")

    def _late(self, what: str, limit_s: float) -> EngineTimeout:
        why = self._why_late()
        says = f": {why}." if why else "; see its log or raise the limit."
        return EngineTimeout(f"The engine did not finish {what} within {limit_s:g} s{says}")


def _as_it_comes(response: requests.Response) -> Iterator[bytes]:
    """The body as it arrives. requests' own iterators wait for a full buffer when the body is not chunked."""
    return iter(lambda: response.raw.read1(1 << 16, decode_content=True), b"")


def _refusal(response: requests.Response, what: str) -> EngineAnswer:
    status = response.status_code
    try:
        cause = error_message(response.json())
    except ValueError:
        cause = response.text[:200].strip() or response.reason
    dev_route = response.url.split("?")[0].endswith(("/collective_rpc", "/reset_prefix_cache", "/server_info"))
    cure = "start it with VLLM_SERVER_DEV_MODE=1" if status == 404 and dev_route else "see its log"
    message = f"The engine failed at {what} with HTTP {status} ({cause.rstrip('.')}); {cure}."
    return EngineAnswer(message, status=status, cause=cause)


def _json(response: requests.Response) -> dict:
    try:
        body = response.json()
    except (ValueError, RecursionError) as error:
        raise _other(response) from error
    if not isinstance(body, dict):
        raise _other(response)
    return body


def _field(response: requests.Response, name: str, kind: type[Field]) -> Field:
    found = _json(response).get(name)
    if not isinstance(found, kind):
        raise _other(response)
    return found


def _other(response: requests.Response) -> EngineAnswer:
    message = f"{response.url} answered something else than vLLM does; is it a vLLM server?"
    return EngineAnswer(message, status=response.status_code)
