"""One GET of an engine; an engine on this machine is never asked through a proxy."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import requests

#: Longer than this is no answer. Seconds.
LIMIT_S = 5.0


def get(url: str) -> requests.Response:
    """Raises requests.RequestException."""
    with requests.Session() as session:
        session.trust_env = not is_loopback(url)
        return session.get(url, timeout=LIMIT_S)


def is_healthy(url: str) -> bool:
    """``url``: the engine's base address."""
    try:
        return get(f"{url}/health").status_code == 200
    except requests.RequestException:
        return False


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
