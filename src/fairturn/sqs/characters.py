"""The characters that a message may have: those of XML 1.0."""

from __future__ import annotations

import re

ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SHOWN = 200  # characters of a client's text that an error or a log repeats
SURROGATE = re.compile("[\ud800-\udfff]")  # JSON may have a lone one, which UTF-8 cannot encode


def legal(text: str) -> bool:
    """Whether `text` may be sent. `\\x7f` is legal; most control characters are not."""
    return ILLEGAL.search(text) is None


def printable(sent: str) -> str:
    """Return a client's text, safe to repeat: short, and printable on one line of a log."""
    plain = sent[:_SHOWN]
    if not (plain.isascii() and plain.isprintable()):
        plain = "".join(char if " " <= char <= "~" else "?" for char in plain)
    return plain + "..." * (len(sent) > _SHOWN)
