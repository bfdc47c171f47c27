"""Placeholder styles. Catalogues are written in their backend's own style ($1, ?1, %s); SQLAlchemy
over psycopg and Django want names. Rendered once per text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from fairlead.backends.base import Value

_NUMBERED = re.compile(r"[$?](\d+)")


@cache
def named(text: str) -> str:
    """``$1`` or ``?1`` as ``%(p1)s``; a literal % is doubled. No statement has such a number
    inside a string."""
    return _NUMBERED.sub(r"%(p\1)s", text.replace("%", "%%"))


def by_name(params: Sequence[Value]) -> dict[str, Value]:
    """The parameters under the names that ``named`` gives them."""
    return {f"p{i}": value for i, value in enumerate(params, 1)}
