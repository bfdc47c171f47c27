"""Placeholder styles. Catalogues are written in their backend's own style; some connections
(SQLAlchemy, Django) want another. Rendered once per text."""

from __future__ import annotations

import re
from functools import cache

_NUMBERED = re.compile(r"\$\d+")


@cache
def numbered_to_format(text: str) -> str:
    """PostgreSQL's $1, $2 … (each used once, in order) as %s; a literal % is doubled."""
    return _NUMBERED.sub("%s", text.replace("%", "%%"))


@cache
def qmark_to_format(text: str) -> str:
    """SQLite's ? as %s; a literal % is doubled. No statement has a ? inside a string."""
    return text.replace("%", "%%").replace("?", "%s")
