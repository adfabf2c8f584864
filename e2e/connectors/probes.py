"""How a server beside an engine is asked whether it works, where its protocol is not known here."""

from __future__ import annotations

import socket

from e2e.base.connector import ServiceSpec
from e2e.base.errors import EngineTimeout


def probe_tcp(spec: ServiceSpec, address: str) -> None:
    """All that can be asked then: does it listen? Raises EngineTimeout when it doesn't."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3.0).close()
    except OSError as error:
        cause = f"nothing listens at {address} ({error.strerror or error})"
        raise EngineTimeout(f"{spec.name}: {cause}.", cause=cause) from error
