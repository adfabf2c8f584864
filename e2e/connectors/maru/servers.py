"""What is particular to Maru's servers: the question that proves that they work, and a pool without CXL hardware.

The resource manager takes an FS_DAX pool from two hard-coded places: an entry /sys/class/block/pmem*, and a line of
/proc/mounts whose source is /dev/<that name> and whose options contain "dax" (docs/maru.md#a-pool-without-cxl). So it
runs in a mount namespace of its own, where both are there: an overlay laid over the very folder that is its upper
layer. Its files then lie at the same path for everybody outside, who maps the same pages, and nothing is mounted that
anybody must clean up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.base.connector import ServiceSpec
from e2e.base.errors import EngineRefused, SettingsError
from e2e.connectors.maru import rpc
from e2e.connectors.maru.rpc import MaruServer

#: Arguments: pool, lower and work folder, name of the pretended device, then the command. Real DAX devices are hidden:
#: the resource manager of a test may never take memory that somebody else's has.
_IN_NAMESPACE = """
set -e
pool=$1 lower=$2 work=$3 device=$4
shift 4
mount -t overlay -o "lowerdir=$lower,upperdir=$pool,workdir=$work" "/dev/$device" "$pool"
mount -t tmpfs none /sys/class/block
mkdir "/sys/class/block/$device"
if [ -d /sys/bus/dax/devices ]; then mount -t tmpfs none /sys/bus/dax/devices; fi
exec "$@"
"""


@dataclass(frozen=True)
class OnDaxFolder:
    """Surroundings of a server: ``folder`` is a mounted DAX file system to it alone."""

    folder: str

    def __call__(self, argv: list[str]) -> list[str]:
        """Makes the folders, which must lie on a file system that an overlay can write to (tmpfs, ext4, xfs). Raises
        SettingsError without unshare; whoever is not root needs a kernel that allows user namespaces."""
        return _within(argv, Path(self.folder))


def _within(argv: list[str], pool: Path) -> list[str]:
    unshare = shutil.which("unshare")
    if unshare is None:
        raise SettingsError(
            "a Maru pool can't be emulated without unshare (util-linux); name a maru-server by MARU_SERVER_URL."
        )
    lower, work = (pool.with_name(f"{pool.stem}-{part}.dax") for part in ("lower", "work"))
    for folder in (pool, lower, work):
        folder.mkdir(parents=True, exist_ok=True)
    device = f"pmem{os.getpid()}"
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    enter = [unshare, *as_root, "--mount", "--propagation", "private"]
    return [*enter, "sh", "-c", _IN_NAMESPACE, "sh", str(pool), str(lower), str(work), device, *argv]


def namespaces() -> bool:
    """Are mount namespaces allowed here, so that a pool can be emulated?"""
    as_root = [] if os.geteuid() == 0 else ["-Ur"]
    try:
        done = subprocess.run(["unshare", *as_root, "-m", "true"], capture_output=True, timeout=15.0, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def probe_maru(spec: ServiceSpec, address: str) -> None:
    """A handshake, then a region of the size that the engine will ask for, given back at once: covers maru-server, the
    resource manager and its pool. Raises EngineTimeout for no answer, EngineRefused for a refusal."""
    server = MaruServer(address, limit_s=rpc.FIRST_S)
    hello = server.handshake()
    if not hello.get("success"):
        why = f"its handshake fails ({hello.get('error') or 'without a reason'})"
        raise EngineRefused(f"maru-server at {address}: {why}.", cause=why)
    refused = server.lends(spec.need, instance="maru-e2e-probe") if spec.need else None
    if refused:
        why = f"it can't lend {spec.need >> 20} MiB ({refused}): the resource manager has no pool, or a full one"
        raise EngineRefused(f"maru-server at {address}: {why}.", cause=why)
