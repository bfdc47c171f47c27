"""What PostgreSQL's error codes mean to a caller of Fairlead."""

from __future__ import annotations

import re

from fairlead.errors import (
    BodyTooLarge,
    ChannelFull,
    DatabaseError,
    DuplicateKey,
    InvalidArgument,
    InvalidName,
    LeaseLost,
    MessageLeased,
    PermitLost,
    QueueNotFound,
    SchemaOutdated,
    UnsafeTransaction,
)

_BUSY = {"40001", "40P01", "55P03"}  # serialization failure, deadlock, lock not available
_GONE = {"57P01", "57P02", "57P03", "08000", "08001", "08003", "08004", "08006", "gone"}
# No such schema, table, function or column: the schema is missing or older than this client.
_OUTDATED = {"3F000", "42P01", "42883", "42703"}
_DETAIL = re.compile(r"^DETAIL:\s*(.*)$", re.MULTILINE)


def translate(code: str, message: str) -> Exception | str | None:
    """See backends/base.py."""
    if code in _BUSY:
        return "busy"
    if code in _GONE:
        return "gone"
    if code in _OUTDATED:
        return SchemaOutdated(
            "Fairlead's schema is missing or out of date here: run `fairlead migrate`, or "
            f"db.migrate() ({message.splitlines()[0]})"
        )
    if code.startswith("FL"):
        return _ours(code, message)
    if code in ("53100", "53200", "53300"):
        return DatabaseError(f"the server is out of resources: {message.splitlines()[0]}")
    if code == "42501":
        return DatabaseError(f"this role may not use Fairlead: {message.splitlines()[0]}")
    return None


def _ours(code: str, message: str) -> Exception:
    """An error that one of our functions raised. DETAIL has what the error needs."""
    found = _DETAIL.search(message)
    detail = found[1] if found else ""
    text = message.splitlines()[0]
    queue = _quoted(text)
    if code == "FL001":
        return LeaseLost(queue, [int(detail)] if detail.isdigit() else [])
    if code == "FL002":
        return QueueNotFound(detail or queue)
    if code == "FL003":
        return DuplicateKey(queue, [detail])
    if code == "FL004":
        return ChannelFull(queue, detail or queue)
    if code == "FL005":
        return InvalidName(text)
    if code == "FL007":
        return UnsafeTransaction(f"{text}: begin yours with that level")
    if code == "FL008":
        return PermitLost(int(detail) if detail.isdigit() else 0)
    if code == "FL009":
        size, _, limit = detail.partition("/")
        return BodyTooLarge(int(size), int(limit))
    if code == "FL010":
        return MessageLeased("the message")
    return InvalidArgument(text)


def _quoted(text: str) -> str:
    found = re.search(r"queue '((?:[^']|'')*)'", text)
    return found[1].replace("''", "'") if found else ""
