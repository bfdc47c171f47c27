"""Parameters as SQL literals that mean the same in every session.

Your connection may have another character set, sql_mode or escaping than ours. So bytes, and all
texts but plain ASCII, are written in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairturn.core.kinds import Value


def literal(value: Value) -> str:
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
    """The statement with its parameters as literals."""
    return text % tuple(map(literal, params)) if params else text
