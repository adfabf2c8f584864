"""What the doctor says of Maru: ``look`` reads, ``lines`` judges what it saw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from e2e.base.checkup import Line
from e2e.base.errors import EngineTimeout, SettingsError
from e2e.connectors.maru import rpc
from e2e.connectors.maru.build import VIEW_PACKED, Build, misread
from e2e.connectors.maru.rpc import MaruServer

NAME, SERVERS = "Maru", "Maru's servers"


@dataclass(frozen=True)
class Seen:
    """``build``: None where none is installed. ``lacking``: programs of its servers that are nowhere; ``namespaces``:
    can a pool be emulated. ``given``: somebody else runs the server."""

    build: Build | None = None
    vllm: tuple[int, int] | None = None
    lacking: tuple[str, ...] = ()
    namespaces: bool = False
    given: bool = False


def lines(at: Seen, *, device: str) -> Iterator[Line]:
    """``device``: cpu or cuda."""
    if at.build is None:
        cure = "set MARU_REQUIREMENT to a requirement or wheel and run scripts/maru; or MARU_IMAGE, for compose"
        yield Line("no", NAME, "the engine's Python finds no module maru_vllm", cure)
        return
    build = at.build.as_json()
    yield Line("ok", NAME, f"{build['version']}, commit {str(build['commit'])[:12]}, {build['line']} line")
    if not at.build.kernels:
        yield Line("note", NAME, "its kernels are not built: loads are placed by indexing")
    elif at.vllm and at.vllm >= VIEW_PACKED:
        yield Line("note", NAME, "its kernels are never reached from vLLM 0.26 on: loads are placed by indexing")
    attention = None if device == "cuda" else "strided"
    if why := misread(at.build, at.vllm, device=device, attention=attention):
        says, _, cure = why.rstrip(".").partition("; ")
        yield Line("no", NAME, says, cure)
    if not at.given:
        yield _servers(at)


def _servers(at: Seen) -> Line:
    if at.lacking:
        says = f"{' and '.join(at.lacking)} neither beside that Python nor on PATH"
        return Line("no", SERVERS, says, "run scripts/maru with a folder of Maru, or set MARU_SERVER_URL")
    if not at.namespaces:
        cure = "run as root or allow user namespaces; or set MARU_SERVER_URL"
        return Line("no", SERVERS, "no pool can be emulated: mount namespaces are not allowed", cure)
    return Line("ok", SERVERS, "are here; each engine gets fresh ones on an emulated pool")


def answer(name: str, address: str) -> Line:
    """Does a maru-server called ``name`` answer at host:port?"""
    try:
        MaruServer(address, limit_s=rpc.FIRST_S).handshake()
    except (EngineTimeout, SettingsError) as error:
        return Line("no", name, str(error).rstrip("."), "start it, after its resource manager")
    return Line("ok", name, f"answers at {address}")
