"""Parameters as SQL literals that mean the same in every session.

A connection of yours may have another character set, sql_mode or escaping than ours, so nothing is
left to it: bytes and any text that is more than plain ASCII go as hexadecimal.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.backends.base import Value


def literal(value: Value) -> str:
    """One value."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, str):
        if value.isascii() and "'" not in value and "\\" not in value and "\0" not in value:
            return f"'{value}'"
        return f"_utf8mb4 X'{value.encode().hex()}'"
    return f"X'{value.hex()}'"


def fill(text: str, params: Sequence[Value]) -> str:
    """A statement with its parameters put in; one without parameters as it is."""
    return text % tuple(map(literal, params)) if params else text
