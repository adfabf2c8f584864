"""The index as a process: ``python -m e2e.inside.index.server --size BYTES [--port N] [--until-alone --tell FILE]``.

Killed and started again it is empty: everything is a miss, and what a client had under way is void. Nothing is rebuilt
from the region, where bytes of a dead writer may lie.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import sys
import time
from pathlib import Path

import msgspec

from e2e.inside.index import protocol as p
from e2e.inside.index.table import Table

HOST = "127.0.0.1"
#: Who ends when it is alone gives the first client so long to come, and a next one so long after the last. Seconds.
FIRST_S, NEXT_S = 120.0, 1.0


class Server:
    def __init__(self, table: Table, *, until_alone: bool) -> None:
        self._table, self._until_alone = table, until_alone
        self._owners = itertools.count(1)
        self._open: set[int] = set()
        self._alone_since = time.monotonic() + FIRST_S - NEXT_S

    async def run(self, port: int, tell: Path | None) -> None:
        """Until SIGTERM or SIGINT, or until it is alone."""
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        listening = await asyncio.start_server(self._client, HOST, port)
        address = "{}:{}".format(*listening.sockets[0].getsockname()[:2])
        if tell:
            new = tell.with_suffix(".new")
            new.write_text(address)
            new.replace(tell)
        size = self._table.answer(0, p.Status()).size
        print(f"ready: the index of {size >> 20} MiB listens at {address}", flush=True)
        while not (ended.is_set() or self._alone()):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), NEXT_S / 4 if self._until_alone else None)

    def _alone(self) -> bool:
        return self._until_alone and not self._open and time.monotonic() > self._alone_since + NEXT_S

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        owner = next(self._owners)
        self._open.add(owner)
        try:
            while True:
                request = p.decode_request(await _frame(reader))
                writer.write(p.frame(self._table.answered(owner, request)))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            return  # it is gone
        except (msgspec.DecodeError, ValueError) as error:
            print(f"client {owner} is cut off: {error}", flush=True)
        finally:
            self._table.leave(owner)
            self._open.discard(owner)
            self._alone_since = time.monotonic()
            writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = p.LENGTH.unpack(await reader.readexactly(p.LENGTH.size))
    if length > p.LONGEST:
        raise ValueError(f"a frame of {length} bytes is too long")
    return await reader.readexactly(length)


def main(argv: list[str]) -> None:
    words = argparse.ArgumentParser(prog="index server")
    words.add_argument("--size", type=int, required=True, help="bytes of the region")
    words.add_argument("--port", type=int, default=0)
    words.add_argument("--until-alone", action="store_true", help="ends when its last client is gone")
    words.add_argument("--tell", type=Path, help="file to write the address into")
    given = words.parse_args(argv)
    table = Table(given.size, epoch=f"{os.getpid()}-{secrets.token_hex(4)}", now=time.monotonic)
    asyncio.run(Server(table, until_alone=given.until_alone).run(given.port, given.tell))


if __name__ == "__main__":
    main(sys.argv[1:])
