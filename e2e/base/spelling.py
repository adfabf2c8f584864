"""What was meant by a word that nobody knows, one way to ask for every table of names; and how many of a thing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches


def meant(word: str, known: Iterable[str]) -> str | None:
    """The known word that is like this one, whatever its case and whether it has ``-``, ``_`` or blanks; else None."""
    plain = {_plain(name): name for name in known}
    close = get_close_matches(_plain(word), plain, n=1)
    return plain[close[0]] if close else None


def hint(word: str, known: Collection[str]) -> str:
    """The end of a sentence about an unknown word: ``did you mean overlap?`` or ``use NHD or HND.``"""
    close = meant(word, known)
    return f"did you mean {close}?" if close else f"use {either(known)}."


def either(words: Iterable[str]) -> str:
    """``a, b or c``."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def count(number: int, noun: str) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _plain(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")
