"""Which characters a message may have: those XML 1.0 can carry."""

from __future__ import annotations

import re

ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def legal(text: str) -> bool:
    """Whether all of `text` may be sent. `\\x7f` may; most control characters may not."""
    return ILLEGAL.search(text) is None


def encodable(text: str) -> bool:
    """Whether `text` is Unicode at all: JSON can spell half a surrogate pair, UTF-8 cannot."""
    return text.isascii() or _SURROGATE.search(text) is None
