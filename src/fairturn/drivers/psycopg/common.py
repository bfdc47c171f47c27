"""What the two drivers share: how a connection is opened, and what its errors mean."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import psycopg

from fairturn.drivers.base import GONE

# For our own connections: the isolation that receive needs. The keepalives end a statement whose
# server has died.
_OPTIONS = "-c default_transaction_isolation=read\\ committed -c jit=off"
_KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


def error_code(error: BaseException) -> str | None:
    if not isinstance(error, psycopg.Error):
        return None
    if error.sqlstate is not None:
        return error.sqlstate
    return GONE if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) else "XX000"


def shut(connection: Any) -> None:
    """Break the connection: a thread or task that waits for an answer gets an error."""
    # We or the server may have closed it already.
    with (
        contextlib.suppress(OSError, psycopg.OperationalError),
        socket.socket(fileno=os.dup(connection.fileno())) as copy,
    ):
        copy.shutdown(socket.SHUT_RDWR)


def arguments(timeout: float, prepare: bool) -> dict[str, Any]:
    """Return the arguments that open a connection of our own."""
    arguments: dict[str, Any] = {
        "autocommit": True,
        "connect_timeout": max(1, round(timeout)),
        "prepare_threshold": 1 if prepare else None,
        "application_name": "fairturn",
        **_KEEPALIVE,
    }
    if prepare:
        # Not for a pooler in transaction mode, which refuses startup options. There the routines
        # check the isolation.
        arguments["options"] = _OPTIONS
    return arguments
