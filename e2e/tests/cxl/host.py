"""Guests of scripts/cxl-host, for tests."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = str(ROOT / "scripts" / "cxl-host")
DEVICE, SIZE = "/dev/dax0.0", 512 << 20
#: For one guest, on a machine that does other things besides. Seconds.
LIMIT_S = 600


@dataclass
class Guest:
    """One that is up, or about to be."""

    process: subprocess.Popen
    limit_s: int

    def said(self) -> str:
        """All that its command said; it ended well."""
        out, err = self.process.communicate(timeout=self.limit_s + 60)
        assert self.process.returncode == 0, out + err
        return out

    def told(self) -> list[dict]:
        """What the deeds of ``guest.py`` came to."""
        return [json.loads(line) for line in self.said().splitlines()]


def started(file: Path, *command: str, bring: Path | None = None, limit_s: int = LIMIT_S) -> Guest:
    """``bring``: a folder that the guest finds as /brought."""
    environ = {**os.environ, "CXL_LIMIT_S": str(limit_s), **({"CXL_BRING": str(bring)} if bring else {})}
    words = [SCRIPT, "run", str(file), *command]
    process = subprocess.Popen(
        words, env=environ, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    return Guest(process, limit_s)


def does(file: Path, address: str, *deeds: str) -> Guest:
    """A guest with deeds of ``guest.py``. ``address``: of an index on this machine."""
    port = address.rpartition(":")[2]
    return started(file, "python3", "-m", "e2e.tests.cxl.guest", f"10.0.2.2:{port}", DEVICE, *deeds)
