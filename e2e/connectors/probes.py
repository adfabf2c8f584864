"""How a server beside an engine is asked whether it works, where its protocol is not known here."""

from __future__ import annotations

import socket

from e2e.base.connector import ServiceSpec
from e2e.base.errors import EngineTimeout


def probe_tcp(spec: ServiceSpec, address: str) -> None:
    """All that can be asked then: does it listen? Raises EngineTimeout when it doesn't."""
    if cause := nobody_at(address):
        raise EngineTimeout(f"{spec.name}: {cause}.", cause=cause)


def nobody_at(address: str) -> str:
    """What is to be said when no connection to host:port can be made; that one can says nothing of who listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=3.0).close()
    except OSError as error:
        return f"nothing listens at {address} ({error.strerror or error})"
    return ""
