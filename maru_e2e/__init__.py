"""The doors of the rig: they stand outside ``e2e``, a name that other projects have too, so that they can say so."""

from __future__ import annotations

import importlib.util

EXIT_USAGE = 2


def hidden() -> str | None:
    """One sentence when the ``e2e`` that this Python would import isn't the rig's, else None."""
    found = importlib.util.find_spec("e2e")
    where = next(iter(found.submodule_search_locations or [found.origin]), None) if found else None
    if where is None:
        return "the package e2e is missing; install maru-e2e again."
    try:
        ours = importlib.util.find_spec("e2e.base.verdict") is not None
    except ImportError:
        ours = False
    return (
        None
        if ours
        else f"another package e2e ({where}) hides the rig's; leave it out of PYTHONPATH, or run elsewhere."
    )
