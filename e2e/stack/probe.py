"""One question to an engine, answered within a limit; an engine on this machine is never asked through a proxy."""

from __future__ import annotations

import ipaddress
import json
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

#: Longer than this is no answer. Seconds.
LIMIT_S = 5.0
#: More than this is no answer of an engine. Bytes.
MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    def fields(self) -> dict[str, object]:
        """The JSON object that it is, or {}."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def ask(
    url: str, *, verb: str = "GET", content: object = None, api_key: str | None = None, limit_s: float = LIMIT_S
) -> Answer:
    """``content``: sent as JSON. Raises requests.RequestException; Timeout also for an answer that does not end."""
    deadline_s = time.monotonic() + limit_s
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with requests.Session() as session:
        session.trust_env = not is_loopback(url)
        with session.request(verb, url, json=content, headers=headers, timeout=limit_s, stream=True) as response:
            body = b""
            try:  # as it comes: requests' own iterators wait for a full buffer
                while piece := response.raw.read1(1 << 16, decode_content=True):
                    body += piece
                    if time.monotonic() > deadline_s or len(body) > MOST_BYTES:
                        raise requests.Timeout(f"{url} did not come to an end")
            except HTTPError as error:
                raise requests.ConnectionError(f"{url} was lost on the way") from error
            return Answer(response.status_code, body)


def is_healthy(url: str, *, api_key: str | None = None) -> bool:
    """``url``: the engine's base address."""
    try:
        return ask(f"{url}/health", api_key=api_key).status == 200
    except requests.RequestException:
        return False


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
