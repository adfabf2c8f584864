"""From words to numbers with a unit. Each raises ValueError with the cause and the cure."""

from __future__ import annotations

import re

from e2e.base.pace import pace_of

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smh]?)", re.IGNORECASE)
_DAY_S = 86400.0


def whole(given: str, *, least: int = 1) -> int:
    """A whole number from ``least`` on."""
    try:
        found = int(given)
    except ValueError:
        raise ValueError(f"{given!r} is no whole number; give one from {least} on.") from None
    if found < least:
        raise ValueError(f"{found} is too small; give a whole number from {least} on.")
    return found


def seconds(given: str) -> float:
    return _limit(given, "seconds", 300)


def minutes(given: str) -> float:
    return _limit(given, "minutes", 15)


def _limit(given: str, unit: str, such_as: int) -> float:
    """A time limit, above 0 and finite."""
    try:
        found = float(given)
    except ValueError:
        raise ValueError(f"{given!r} is no number of {unit}; write {such_as}.") from None
    if not found > 0:
        raise ValueError(f"{found:g} is too small; give {unit} above 0.")
    if found == float("inf"):
        raise ValueError(f"every wait has a limit; give a number of {unit}.")
    return found


def percent(given: str) -> float:
    try:
        found = float(given.strip().removesuffix("%"))
    except ValueError:
        found = 0.0
    if not 0 < found < 100:
        raise ValueError(f"{given!r} is no share between 0 and 100 percent; write a number, such as 5.")
    return found


def duration(given: str) -> float:
    """``90``, ``90s``, ``30m`` or ``2h`` -> seconds, up to a day."""
    match = _DURATION.fullmatch(given.strip())
    found = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2].lower()] if match else 0.0
    if not 0 < found <= _DAY_S:
        raise ValueError(f"{given!r} is no time up to a day; write a number with s, m or h, such as 30m.")
    return found


def size(given: str) -> int:
    """``2G`` -> bytes; K, M, G, T to the base 1024, as Maru reads sizes."""
    match = _SIZE.fullmatch(given.strip())
    found = int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " ")) if match else 0
    if found < 1:
        raise ValueError(f"{given!r} is no size; write bytes, or a number with K, M, G or T, such as 2G.")
    return found


def pace(given: str) -> str:
    """As it was given, once it is one."""
    pace_of(given)
    return given


def share(given: str) -> float:
    """``0.5%`` or ``0.005``: above 0, up to all."""
    text, percent = given.strip().removesuffix("%"), given.strip().endswith("%")
    try:
        found = float(text) / (100 if percent else 1)
    except ValueError:
        raise ValueError(f"{given!r} is no share; write 0.5% or 0.005.") from None
    if not 0 < found <= 1:
        raise ValueError(f"{given!r} is no share; give one above 0, up to 100%.")
    return found


def room(given: str) -> int:
    """As ``size``, of what holds at least a few recordings."""
    if (found := size(given)) < 1 << 20:
        raise ValueError(f"{given!r} holds no recording; give 1M or more.")
    return found
