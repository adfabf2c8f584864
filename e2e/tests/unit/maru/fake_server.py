"""Speaks maru-server's RPC as far as the rig does: fake_server.py PORT [refuse|mute|garbled|live]; says when ready.

"live" counts what its clients report, as totals; otherwise the counters are the recorded ones.
"""

import json
import sys
import time
from pathlib import Path

import zmq

from e2e.connectors.maru.rpc import GET_STATS, GET_USAGE, HANDSHAKE, REQUEST_ALLOC, decode, encode

REPORT_STATS = 0xF2
STATS = Path(__file__).parents[2] / "recordings" / "maru" / "stats-july.json"


reported: dict[str, dict] = {}


def answer(kind: int, payload: dict, mood: str) -> dict:
    if kind == HANDSHAKE:
        return {"success": True, "rm_address": "127.0.0.1:1"}
    if kind == REQUEST_ALLOC:
        refused = {"success": False, "error": "Allocation failed: -12"}
        return refused if mood == "refuse" else {"success": True, "handle": {"region_id": 7, "length": payload["size"]}}
    if kind == REPORT_STATS:
        for entry in payload["entries"]:
            total = {"count": 1, "hit_count": 1, "miss_count": 0, "total_bytes": entry["total_bytes"]}
            reported[entry["client_id"]] = {"operations": {entry["op_type"]: total}}
        return {"success": True}
    if kind == GET_USAGE:
        return {"instances": [], "pool_total": 4 << 30, "pool_free": 3 << 30}
    if kind == GET_STATS and mood == "live":
        return {"stats_manager": {"clients": reported}}
    if kind == GET_STATS:
        return json.loads(STATS.read_text())
    return {"success": True}


def main(port: str, mood: str = "") -> None:
    socket = zmq.Context().socket(zmq.REP)
    socket.bind(f"tcp://127.0.0.1:{port}")
    print(f"RPC Server started on tcp://127.0.0.1:{port}", flush=True)
    while True:
        message = socket.recv()
        while mood == "mute":
            time.sleep(1)
        if mood == "garbled":
            socket.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            continue
        kind, sequence = message[3], int.from_bytes(message[8:12], "big")
        reply = answer(kind, decode(message, source="client"), mood)
        socket.send(encode(kind | 0x80, reply, sequence=sequence))


if __name__ == "__main__":
    main(*sys.argv[1:])
