"""What to do with a database error on our own connection: try again, give up, or say what it is.

Only calls on our own connections are ever repeated. A deadlock, a serialization failure or a lock
time-out means the transaction was rolled back, so the call is started again. A lost connection may
mean anything, and so may an interruption on MySQL: the call is repeated only if repeating it is
harmless, else ``OutcomeUnknown``.
"""

from __future__ import annotations

import random
import time
from typing import Any

from fairlead.backends.base import Backend
from fairlead.drivers.base import GONE
from fairlead.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    FairleadError,
    OutcomeUnknown,
    UnsafeTransaction,
)
from fairlead.operations.call import Call

ATTEMPTS = 10
BUSY, LOST = "busy", "lost"
TORN = "torn"


def pause(attempt: int) -> float:
    """Seconds to wait before try number ``attempt``: 1 ms doubling to 250 ms, jittered."""
    return random.uniform(0.5, 1.5) * min(0.001 * 2**attempt, 0.25)


def absence(attempt: int) -> float:
    """Seconds to wait before the next try while the database is away: 30 ms doubling to a second,
    jittered, for ever."""
    return min(4 * pause(min(attempt + 3, 10)), 1.0)


def judge(
    backend: Backend, code: str | None, error: BaseException, call: Call[Any], attempt: int
) -> str | BaseException:
    """``BUSY`` or ``LOST`` to try again (LOST: on a new connection), or the error to raise."""
    if isinstance(error, FairleadError) or code is None:
        return error
    verdict = backend.translate(code, str(error))
    if isinstance(verdict, Exception):
        return verdict
    if verdict == "busy":
        # SQLite has waited its whole timeout for the lock each time.
        most = 2 if backend.dialect == "sqlite" else ATTEMPTS
        if attempt + 1 < most:
            return BUSY
        text = f"{call.what} met locks or write conflicts {most} times: {error}"
        if backend.dialect == "sqlite":
            text += (
                ". Somebody has a write transaction open on the file for too long; if it is yours, "
                "make the call part of it with using(connection)"
            )
        return DatabaseBusy(text)
    if verdict == GONE:
        if not call.repeatable or time.monotonic() > call.until:
            return OutcomeUnknown(call.what, error)
        if attempt + 1 < 3:
            return LOST
        return DatabaseUnavailable(f"{call.what}: the connection broke again and again: {error}")
    if verdict == TORN and not call.repeatable:
        return OutcomeUnknown(call.what, error)
    # Cancelled by an administrator or a time limit, read-only after a failover, …: nobody can list
    # them all, and a worker must outlive them all. What we begin is rolled back.
    return DatabaseError(f"{call.what}: the database could not do it ({code}): {error}")


def lost(code: str | None, verdict: str | BaseException) -> bool:
    """Has the way to the database broken, as far as we know?"""
    if code == GONE or verdict == LOST:
        return True
    return isinstance(verdict, DatabaseUnavailable | OutcomeUnknown)


def unusable(verdict: str | BaseException) -> bool:
    """Must the connection be thrown away? Also after an error that we do not know: MySQL does not
    let a procedure whose statement is killed end its own transaction, and in that nothing that
    comes after would ever be committed."""
    return type(verdict) is DatabaseError


def judge_yours(backend: Backend, code: str | None, error: BaseException) -> BaseException:
    """The error to raise from a call inside your transaction, where nothing is ever repeated."""
    if isinstance(error, FairleadError) or code is None:
        return error
    verdict = backend.translate(code, str(error))
    if isinstance(verdict, Exception):
        return verdict
    if verdict == "busy" and backend.dialect == "sqlite":
        return UnsafeTransaction(
            "SQLite could not get the write lock in your transaction: begin it with BEGIN "
            "IMMEDIATE (a transaction that has read first cannot become a writer), and keep it "
            f"short ({error})"
        )
    if verdict == "busy":
        return DatabaseBusy(f"your transaction met a lock or a conflict; roll it back: {error}")
    if verdict == GONE:
        return DatabaseUnavailable(f"your connection is gone: {error}")
    return error


def unreachable(shown: str, error: BaseException) -> DatabaseUnavailable:
    said = " ".join(str(error).split())  # in one line: for logs
    if "unable to open database file" in said:
        said += ". Does its directory exist, and may you write there?"
    return DatabaseUnavailable(f"cannot connect to {shown}: {said}")
