"""Transactions of the database in memory, which has no connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from fairturn.backends.steps import Rows
from fairturn.core.kinds import Value
from fairturn.drivers.run import run
from fairturn.operations.call import Call
from fairturn.testing.model import Model, World

T = TypeVar("T")


class Transaction:
    """Runs its calls on a copy of the database, and runs them again on the database itself when it
    commits. So others see nothing before the commit, and nothing of a transaction that is rolled
    back."""

    def __init__(self, model: Model, connection: Any) -> None:
        self.connection = connection
        self._model = model
        self._copy: World | None = None
        self._calls: list[tuple[Call[Any], int]] = []  # each with the last id before it

    @staticmethod
    def run_now(call: Call[T]) -> T:
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
            value = self.run_now(call)
        finally:
            drawn = model.last_id
            model.swap(real)
            model.last_id = drawn
        self._calls.append((call, before))
        return value

    def commit(self) -> None:
        """Run all calls on the database, or none of them if one fails because the database has
        changed meanwhile."""
        model = self._model
        real = model.snapshot()
        drawn = model.last_id
        try:
            for call, before in self._calls:
                model.last_id = before  # so that messages get the ids that their senders know
                self.run_now(call)
        except BaseException:
            model.restore(real)
            raise
        finally:
            model.last_id = max(drawn, model.last_id)


class NoDriver:
    """The driver of a database that needs no connection."""

    dialect = "memory"
    can_copy = False
    connection = None

    def execute(self, text: str, params: Sequence[Value]) -> Rows:
        assert text == "SELECT 1", text  # the pool asks whether it is alive
        return []

    def begin(self, write: bool) -> None:
        """Do nothing: an operation of the model is atomic."""

    def commit(self) -> None:
        """Do nothing, see begin."""

    def rollback(self) -> None:
        """Do nothing, see begin."""

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def code(self, error: BaseException) -> None:
        """Return None: no error comes from a database."""


class NoConnection:
    """The connection of ``ctx.transaction()`` if ``use`` got no ``transaction=``."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the database in memory has no connection, and so no {name!r}. To give handlers a "
            "connection: use(app, transaction=lambda: contextlib.nullcontext(connection))"
        )
