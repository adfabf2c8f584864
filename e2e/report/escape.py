"""The one home of escaping: text that somebody else chose (a log line, a version, a cell id, a model's answer) becomes
text that means nothing to a terminal, to Markdown, to XML or to a spreadsheet; HTML is escaped by its templates."""

from __future__ import annotations

import re
from itertools import groupby

#: Words that mean nothing to any Markdown renderer, wherever they stand: letters and digits, single joiners between
#: them, numbers with a sign, and the punctuation of prose around them. A dot joins digits only: ``vllm.ai`` is a link
#: to some renderers, and so is what begins with ``www``; ``GH-1`` and ``:name:`` are links and pictures on GitHub.
_WORD = re.compile(
    r"""(?!\S*(?::[\w+-]+:|(?i:\bgh-\d)))[("']{0,2}(?:
    [^\W_]+(?:(?:[,:;/+=%'_-]|(?<=\d)\.(?=\d))[^\W_]+)*%?
    | [+-]?\d[\d.,%x]*(?:\.\.[+-]?\d[\d.,%x]*)?
    )[)"'.,:;!?]{0,3}""",
    re.VERBOSE,
)
#: Prose around what is no word: one bracket at either end, what ends a sentence.
_BRACKETED = re.compile(r"(\(?)([^\s()](?:[^()]*[^\s().,;:])?)(\)?[.,;:]*)")
_ENDED = re.compile(r"()(\S(?:.*[^\s.,;:])?)([.,;:]*)")
#: Also as wide characters of East Asia, which some spreadsheets take for the narrow ones; and the apostrophe itself.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "|", "%", "'")
_ALONE = {"-", "/", "=", "%"}
#: What begins a list when it begins a line.
_LIST = re.compile(r"\d+[.)]|[-=+]")


def visible(text: object) -> str:
    """Without control characters, bidirectional controls, zero-width and other characters that can't be seen: each is
    a question mark, other white space than the newline a blank."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else " " if c.isspace() else "?" for c in text)


def one_line(text: object) -> str:
    """``visible`` on one line, runs of white space as one blank."""
    return visible(" ".join(str(text).split()))


def inline(text: object, *, begins_line: bool = True) -> str:
    """Markdown that shows ``text`` as it is: words that could mean anything to a renderer stand as code, which no
    renderer looks into (HTML, links, mentions, references, emphasis, pictures)."""
    words = one_line(text).split()
    plain = [word in _ALONE or bool(_WORD.fullmatch(word)) for word in words]
    if words and begins_line and _LIST.fullmatch(words[0]):
        plain[0] = False
    runs = groupby(zip(plain, words, strict=True), key=lambda pair: pair[0])
    texts = [(safe, " ".join(word for _, word in pairs)) for safe, pairs in runs]
    return " ".join(text if safe else _coded(text) for safe, text in texts)


def _coded(text: str) -> str:
    """As code, but for the punctuation of prose around it."""
    found = _BRACKETED.fullmatch(text) or _ENDED.fullmatch(text)
    before, body, after = found.groups() if found else ("", text, "")
    return f"{before}{code(body)}{after}"


def code(text: object) -> str:
    """A Markdown code span, as long a fence as the text needs."""
    text = one_line(text)
    if not text:
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if "`" in (text[0], text[-1]) else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def spreadsheet(text: object) -> str:
    """One line that no spreadsheet takes for a formula: what could begin one has an apostrophe in front (OWASP, CSV
    injection)."""
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line


def cell(markdown: str) -> str:
    """A piece of one-line Markdown inside a table: its pipes, which are in code only, separate no columns."""
    return re.sub(r"\\+(?=\|)", lambda found: found[0] + " ", markdown).replace("|", "\\|")


def fence(text: object) -> str:
    """A Markdown code block of whole lines."""
    lines = "\n".join(line.rstrip() for line in visible(str(text).replace("\r\n", "\n")).strip("\n").split("\n"))
    bars = "`" * max(3, 1 + max(map(len, re.findall("`+", lines)), default=0))
    return f"{bars}\n{lines}\n{bars}"
