"""Your Django database connection (``django.db.connection`` or ``connections[alias]``)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from fairturn.backends.steps import Rows
from fairturn.core.kinds import Value
from fairturn.drivers import placeholders
from fairturn.drivers.sqlalchemy import error_code

_DIALECTS = {"postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite"}


class DjangoDriver:
    can_copy = False

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        vendor = str(connection.vendor)
        self.dialect: str = _DIALECTS.get(vendor, vendor)
        if self.dialect == "sqlite":
            connection.ensure_connection()
            import_module("fairturn.drivers.sqlite").register(connection.connection)

    def execute(self, text: str, params: Sequence[Value]) -> Rows:
        with self.connection.cursor() as cursor:
            if self.dialect == "mysql":
                cursor.execute(text, tuple(params))
            else:
                cursor.execute(placeholders.named(text), placeholders.by_name(params))
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def code(self, error: BaseException) -> str | None:
        return error_code(error) if type(error).__module__.startswith("django.") else None
