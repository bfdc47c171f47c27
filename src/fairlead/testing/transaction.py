"""Transactions of a database that has no connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from fairlead.backends.base import Rows, Value
from fairlead.operations.call import Call
from fairlead.run import run
from fairlead.testing.model import Model, World

T = TypeVar("T")


class Transaction:
    """Its calls are answered from a copy of the database, and done to the database itself, once
    more, when it commits: others see nothing of it before, and nothing at all of one that is rolled
    back."""

    def __init__(self, model: Model, connection: Any) -> None:
        self.connection = connection
        self._model = model
        self._copy: World | None = None
        self._calls: list[tuple[Call[Any], int]] = []  # with the last id there was before

    @staticmethod
    def at_once(call: Call[T]) -> T:
        driver: Any = NoDriver()
        return run(call.start(), driver, own=False)

    def run(self, call: Call[T]) -> T:
        model = self._model
        if self._copy is None:
            self._copy = model.snapshot()
        drawn = model.last_id
        real = model.swap(self._copy)
        try:
            before = model.last_id = max(model.last_id, drawn)
            value = self.at_once(call)
        finally:
            drawn = model.last_id
            model.swap(real)
            model.last_id = drawn
        self._calls.append((call, before))
        return value

    def commit(self) -> None:
        """All of it, or, if the database has changed under it, an error and nothing."""
        model = self._model
        real = model.snapshot()
        drawn = model.last_id
        try:
            for call, before in self._calls:
                model.last_id = before  # for the ids that were told to the sender
                self.at_once(call)
        except BaseException:
            model.restore(real)
            raise
        finally:
            model.last_id = max(drawn, model.last_id)


class NoDriver:
    """The connection of a database that needs none."""

    dialect = "memory"
    can_copy = False
    connection = None

    def execute(self, text: str, params: Sequence[Value]) -> Rows:
        assert text == "SELECT 1", text  # the pool asks whether it is alive
        return []

    def begin(self, write: bool) -> None:
        """The model's operations are atomic by themselves."""

    def commit(self) -> None:
        """See begin."""

    def rollback(self) -> None:
        """See begin."""

    def close(self) -> None:
        """There is nothing to close."""

    def code(self, error: BaseException) -> None:
        """No error is the database's."""


class NoConnection:
    """What ``ctx.transaction()`` gives where a test has not said what to give."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the in-memory database has no connection, so no {name!r}: say what ctx.transaction() "
            "shall give, use(app, transaction=lambda: contextlib.nullcontext(connection))"
        )
