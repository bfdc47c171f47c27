"""Numbered placeholders as named ones. Catalogues have the style of their database ($1, ?1, %s);
SQLAlchemy over psycopg, and Django, take names. Each text is translated once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from fairturn.core.kinds import Value

_NUMBERED = re.compile(r"[$?](\d+)")


@cache
def named(text: str) -> str:
    """Return the text with ``%(p1)s`` for ``$1`` or ``?1``, and each literal % doubled. No
    statement has such a placeholder inside a string."""
    return _NUMBERED.sub(r"%(p\1)s", text.replace("%", "%%"))


def by_name(params: Sequence[Value]) -> dict[str, Value]:
    """Return the parameters under the names that ``named`` gives them."""
    return {f"p{i}": value for i, value in enumerate(params, 1)}
