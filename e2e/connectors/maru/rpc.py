"""The few words of maru-server's RPC that the rig speaks, as any client would: ZeroMQ REQ, and per message a header of
16 bytes in network order (magic, version, type, flags, 3 reserved, sequence, length) with a MessagePack map behind it.

Needs pyzmq: the extra ``maru``.
"""

from __future__ import annotations

import itertools
import struct

from msgspec import msgpack

from e2e.base.errors import EngineTimeout, SettingsError

GET_STATS, GET_USAGE, HANDSHAKE = 0xF0, 0xF3, 0xFE
REQUEST_ALLOC, RETURN_ALLOC = 0x01, 0x03
#: So long may it take to answer whoever only asks whether it is of use. Seconds.
FIRST_S = 3.0
_HEADER = struct.Struct("!HBBBBBBII")
_MAGIC, _VERSION = 0xCF00, 1
_CURE = "see maru-server's log, and whether the resource manager that it needs still runs"


class MaruServer:
    """One maru-server at ``address`` (host:port). Every call opens a socket of its own, so a late answer to an earlier
    call is never taken for this one's. Raises EngineTimeout when it doesn't answer, SettingsError when what answers is
    no maru-server of this protocol."""

    def __init__(self, address: str, *, limit_s: float = 5.0) -> None:
        self.address, self.limit_s = address, limit_s
        self._sequence = itertools.count(1)

    def call(self, kind: int, **payload: object) -> dict[str, object]:
        try:
            import zmq
        except ModuleNotFoundError as error:
            raise SettingsError(f"asking maru-server needs {error.name}; pip install 'maru-e2e[maru]'.") from error
        with zmq.Context() as context, context.socket(zmq.REQ) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(f"tcp://{self.address}")
            socket.send(encode(kind, payload, sequence=next(self._sequence)))
            if not socket.poll(self.limit_s * 1000):
                raise EngineTimeout(
                    f"maru-server at {self.address} did not answer within {self.limit_s:g} s; {_CURE}.",
                    cause=f"maru-server at {self.address} does not answer",
                )
            return decode(socket.recv(), source=self.address)

    def handshake(self) -> dict[str, object]:
        return self.call(HANDSHAKE)

    def lends(self, size: int, *, instance: str) -> str | None:
        """Asks for a region of ``size`` bytes and gives it back: None when that works, else why not. The only question
        that covers the resource manager and its pool too: maru-server starts happily on an empty one."""
        given = self.call(REQUEST_ALLOC, instance_id=instance, size=size)
        if not given.get("success"):
            return str(given.get("error") or "it gave no reason")
        handle = given.get("handle")
        if isinstance(handle, dict) and "region_id" in handle:
            self.call(RETURN_ALLOC, instance_id=instance, region_id=handle["region_id"])
        return None

    def free_bytes(self) -> int | None:
        """Of the pool that it lends from; None from a server that keeps no such count."""
        usage = self.call(GET_USAGE)
        total, free = usage.get("pool_total"), usage.get("pool_free")
        return free if isinstance(total, int) and isinstance(free, int) and total > 0 else None

    def operations(self, instance: str) -> dict[str, dict[str, float]]:
        """``{"retrieve": {"count", "hit_count", "miss_count", "total_bytes", ...}, ...}`` of one client since it
        connected, as handlers with MARU_STAT=1 report them about once a second; empty before the first report."""
        stats = self.call(GET_STATS).get("stats_manager")
        clients = stats.get("clients", {}) if isinstance(stats, dict) else {}
        return dict(clients.get(instance, {}).get("operations", {}))


def encode(kind: int, payload: dict[str, object], *, sequence: int) -> bytes:
    body = msgpack.encode(payload)
    return _HEADER.pack(_MAGIC, _VERSION, kind, 0, 0, 0, 0, sequence, len(body)) + body


def decode(message: bytes, *, source: str) -> dict[str, object]:
    """Raises SettingsError for anything but a whole message of this protocol."""
    if len(message) >= _HEADER.size:
        magic, version, *_, length = _HEADER.unpack_from(message)
        body = message[_HEADER.size : _HEADER.size + length]
        if (magic, version) == (_MAGIC, _VERSION) and len(body) == length:
            payload = msgpack.decode(body)
            if isinstance(payload, dict):
                return payload
    raise SettingsError(f"what answers at {source} is no maru-server of a protocol known here; check MARU_SERVER_URL.")
