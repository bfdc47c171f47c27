"""What a database error means for a call: start it again, or raise an error.

Only calls on our own connections are started again. After a deadlock, a serialization failure or a
lock time-out the transaction was rolled back, so this is always safe. After a lost connection, and
on MySQL after an interruption, nobody knows whether the transaction was committed: the call is
started again only if it is repeatable, else ``OutcomeUnknown`` is raised.
"""

from __future__ import annotations

import random
import time
from typing import Any, Literal, NamedTuple

from fairturn.backends.base import Backend
from fairturn.core.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    FairturnError,
    OutcomeUnknown,
    UnsafeTransaction,
)
from fairturn.drivers.base import GONE
from fairturn.operations.call import Call

ATTEMPTS = 10  # of a call that meets locks or write conflicts
# Deadlocks of MySQL, and in a Galera cluster transactions that met another node's: with three nodes
# that fight for one row, two of three tries fail, and the last of ten would often do so.
CONFLICT = "1213"
CONFLICT_ATTEMPTS = 40
TORN = "torn"  # the backend's word for an interruption that may have come after the commit
# KILL QUERY on MySQL. In a Galera cluster the DDL of a migration, on any node, does the same to
# calls that use its tables.
KILLED = "1317"


class Decision(NamedTuple):
    """What to do after an error: raise ``error``, or start the call again if it is None.
    ``connection`` is the method of the pool that takes the connection back."""

    error: BaseException | None
    connection: Literal["release", "discard", "lose"]


def pause(attempt: int) -> float:
    """Seconds to wait before try number ``attempt``: 1 ms doubling to 250 ms, jittered."""
    return random.uniform(0.5, 1.5) * min(0.001 * 2**attempt, 0.25)


def absence(attempt: int) -> float:
    """Seconds to wait before the next try while the database cannot be reached: 30 ms doubling to a
    second, jittered. There is no last try."""
    return min(4 * pause(min(attempt + 3, 10)), 1.0)


def decide(
    backend: Backend, code: str | None, error: BaseException, call: Call[Any], attempt: int
) -> Decision:
    """Decide what follows from an error of a call on a connection of our own. ``code`` is the
    driver's name for the error."""
    meaning = _meaning(backend, code, error)
    if isinstance(meaning, BaseException):
        raised = meaning
    else:
        raised = _error(backend, meaning, code, error, call, attempt)
    if meaning == GONE or isinstance(raised, DatabaseUnavailable):
        return Decision(raised, "lose")
    # After an interruption (a cancelled task, Ctrl-C) the server's reply may be half read; after an
    # error that the driver does not know, too: on the next call its rest would be the answer. After
    # an unknown error of the database the transaction may be open: on MySQL, a procedure whose
    # statement was killed cannot end its transaction, and later calls on this connection would
    # never be committed.
    foreign = code is None and not isinstance(error, FairturnError)
    if foreign and isinstance(error, Exception) and backend.dialect == "sqlite":
        foreign = False  # there is no reply to read, and the connection may be all of the database
    # A migration that failed leaves its lock and its sql_mode in the session.
    migration = backend.dialect == "mysql" and not call.needs_schema
    if foreign or migration or code == KILLED or type(raised) is DatabaseError:
        return Decision(raised, "discard")
    return Decision(raised, "release")


def _meaning(
    backend: Backend, code: str | None, error: BaseException
) -> BaseException | str | None:
    """Return the error to raise if it is known already, else the backend's word for it."""
    if isinstance(error, FairturnError) or code is None:
        return error
    return backend.translate(code, str(error))


def _error(
    backend: Backend,
    meaning: str | None,
    code: str | None,
    error: BaseException,
    call: Call[Any],
    attempt: int,
) -> BaseException | None:
    """Return the error to raise, or None to start the call again."""
    if meaning == "busy":
        # SQLite has waited its whole time-out for the lock each time.
        most = 2 if backend.dialect == "sqlite" else ATTEMPTS
        if code == CONFLICT:
            most = CONFLICT_ATTEMPTS
        if attempt + 1 < most:
            return None
        text = f"{call.what} met locks or write conflicts {most} times: {error}"
        if backend.dialect == "sqlite":
            text += (
                ". Somebody keeps a write transaction open on the file for too long. If it is "
                "yours, make the call part of it with using(connection)"
            )
        return DatabaseBusy(text)
    if meaning == GONE:
        if not call.repeatable or time.monotonic() > call.until:
            return OutcomeUnknown(call.what, error)
        if attempt + 1 < 3:
            return None
        return DatabaseUnavailable(f"{call.what}: the connection broke three times: {error}")
    if meaning == TORN and not call.repeatable:
        return OutcomeUnknown(call.what, error)
    if code == KILLED and attempt + 1 < ATTEMPTS:
        return None
    # For example: an administrator or a time limit cancelled the statement. The list can never be
    # complete, and a worker must survive all of them.
    return DatabaseError(f"{call.what} failed in the database ({code}): {error}")


def error_of_yours(backend: Backend, code: str | None, error: BaseException) -> BaseException:
    """Return the error to raise from a call in your transaction, where nothing is repeated."""
    meaning = _meaning(backend, code, error)
    if isinstance(meaning, BaseException):
        return meaning
    if meaning == "busy" and backend.dialect == "sqlite":
        return UnsafeTransaction(
            "SQLite could not get the write lock in your transaction: begin it with BEGIN "
            "IMMEDIATE (a transaction that has read first cannot become a writer), and keep it "
            f"short ({error})"
        )
    if meaning == "busy":
        return DatabaseBusy(f"your transaction met a lock or a conflict; roll it back: {error}")
    if meaning == GONE:
        return DatabaseUnavailable(f"your connection is gone: {error}")
    return error


def unreachable(shown: str, error: BaseException) -> DatabaseUnavailable:
    """Return the error for a connection that could not be opened, in one line for logs."""
    said = " ".join(str(error).split())
    if "unable to open database file" in said:
        said += ". Does its directory exist, and may you write there?"
    if "unsupported startup parameter" in said:
        said += ". Is this PgBouncer? Pass prepare=False (on the command line --pooler)"
    return DatabaseUnavailable(f"cannot connect to {shown}: {said}")
