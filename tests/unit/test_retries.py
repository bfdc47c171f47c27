"""What happens to a connection after an error."""

from __future__ import annotations

from typing import Any

import pytest

from fairturn import DatabaseError, OutcomeUnknown, QueueNotFound, Send
from fairturn.backends.base import Backend
from fairturn.backends.mysql import MysqlBackend
from fairturn.backends.postgres import PostgresBackend
from fairturn.backends.sqlite import SqliteBackend
from fairturn.execution.retries import CONFLICT_ATTEMPTS, decide
from fairturn.operations import sends
from fairturn.operations.call import Call, Core


def call(backend: Backend) -> Call[Any]:
    return sends.send(Core(backend), "q", [sends.encode(Send(1))])


@pytest.mark.parametrize("backend", [MysqlBackend(), PostgresBackend()])
def test_after_an_error_that_the_driver_does_not_know(backend: Backend) -> None:
    """The answer may be half read: the next call would get the rest of it."""
    error = AttributeError("'NoneType' object has no attribute 'is_eof_packet'")
    decision = decide(backend, None, error, call(backend), 0)
    assert decision == (error, "discard")


def test_sqlite_keeps_its_connection() -> None:
    """In memory it is the whole database."""
    error = OverflowError("Python int too large to convert to SQLite INTEGER")
    assert decide(SqliteBackend(), None, error, call(SqliteBackend()), 0) == (error, "release")
    stop = KeyboardInterrupt()
    assert decide(SqliteBackend(), None, stop, call(SqliteBackend()), 0) == (stop, "discard")


@pytest.mark.parametrize("backend", [MysqlBackend(), PostgresBackend(), SqliteBackend()])
def test_after_an_error_of_ours(backend: Backend) -> None:
    error = QueueNotFound("q")
    assert decide(backend, None, error, call(backend), 0) == (error, "release")


def test_conflicts_of_a_cluster_are_tried_often() -> None:
    backend = MysqlBackend()
    error = RuntimeError("Deadlock found")
    for attempt in range(CONFLICT_ATTEMPTS - 1):
        assert decide(backend, "1213", error, call(backend), attempt) == (None, "release")
    last = decide(backend, "1213", error, call(backend), CONFLICT_ATTEMPTS - 1)
    assert type(last.error).__name__ == "DatabaseBusy"


def test_a_migration_of_another_node_interrupts_calls() -> None:
    """What can be repeated is repeated, on another connection: this one may have a transaction
    that nobody can end."""
    backend = MysqlBackend()
    error = RuntimeError("Query execution was interrupted")
    migrate = Call("migrate", backend.migrate, repeatable=True, needs_schema=False)
    assert decide(backend, "1317", error, migrate, 0) == (None, "discard")
    assert decide(backend, "1213", error, migrate, 0) == (None, "discard")  # it holds a lock
    assert isinstance(decide(backend, "1317", error, migrate, 9).error, DatabaseError)
    assert isinstance(decide(backend, "1317", error, call(backend), 0).error, OutcomeUnknown)
