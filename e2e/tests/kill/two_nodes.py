"""A Ray cluster of two nodes with a CPU each, on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: Bytes of objects that a node holds; Ray takes no less.
STORE = 80 << 20


@contextmanager
def two_nodes() -> Iterator[tuple[Any, dict[int, Any]]]:
    """The cluster, and pid of a node's raylet, which all that runs there descends from -> node."""
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small})
    session = Path(cluster.head_node.get_session_dir_path())
    try:
        nodes = [cluster.add_node(num_cpus=1, **small) for _ in range(2)]
        yield cluster, {node.all_processes["raylet"][0].process.pid: node for node in nodes}
    finally:
        cluster.shutdown()
        shutil.rmtree(session, ignore_errors=True)
        if not (latest := session.with_name("session_latest")).exists():
            latest.unlink(missing_ok=True)
        with suppress(OSError):  # somebody else's is there
            session.parent.rmdir()
