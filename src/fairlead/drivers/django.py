"""Your Django database connection (``django.db.connection`` or ``connections[alias]``)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from fairlead.backends.base import Copy, Rows, Value
from fairlead.drivers import placeholders
from fairlead.drivers.sqlalchemy import error_code

_DIALECTS = {"postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite"}
_RENDER = {
    "postgresql": placeholders.numbered_to_format,
    "sqlite": placeholders.qmark_to_format,
}


class DjangoDriver:
    can_copy = False

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.dialect = _DIALECTS.get(connection.vendor, connection.vendor)
        self._render = _RENDER.get(self.dialect, str)
        if self.dialect == "sqlite":
            connection.ensure_connection()
            import_module("fairlead.drivers.sqlite").register(connection.connection)

    def execute(self, text: str, params: Sequence[Value]) -> Rows:
        with self.connection.cursor() as cursor:
            cursor.execute(self._render(text), tuple(params))
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def copy(self, copy: Copy) -> None:
        raise NotImplementedError

    def begin(self, write: bool) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...

    def code(self, error: BaseException) -> str | None:
        return error_code(error) if type(error).__module__.startswith("django.") else None
