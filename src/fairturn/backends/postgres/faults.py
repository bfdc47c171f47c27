"""The meaning of PostgreSQL's error codes for a caller of Fairturn."""

from __future__ import annotations

import re

from fairturn.core.errors import (
    BodyTooLarge,
    ChannelFull,
    CursorLost,
    DatabaseError,
    DatabaseUnavailable,
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
_READ_ONLY = "25006"
_PREPARED = {"42P05", "26000"}  # it exists already; it does not exist
_DETAIL = re.compile(r"^DETAIL:\s*(.*)$", re.MULTILINE)


def translate(code: str, message: str) -> Exception | str | None:
    """See backends/base.py."""
    if code in _BUSY:
        return "busy"
    if code in _GONE:
        return "gone"
    if code in _OUTDATED:
        said = message.splitlines()[0]
        return SchemaOutdated(f"Fairturn's schema is missing or out of date here ({said})")
    if code.startswith("FT"):
        return _ours(code, message)
    if code in ("53100", "53200", "53300"):
        return DatabaseError(f"the server is out of resources: {message.splitlines()[0]}")
    if code == "42501":
        return DatabaseError(f"this role may not use Fairturn: {message.splitlines()[0]}")
    if code in _PREPARED:
        return DatabaseError(
            "prepared statements do not work on this connection, which probably goes through "
            f"PgBouncer in transaction mode ({message.splitlines()[0]})",
            "Connect Fairturn with prepare=False, and open your own psycopg connections with "
            "prepare_threshold=None",
        )
    # A standby refuses our unlogged table with the second one, before it comes to the write.
    if code == _READ_ONLY or (code == "0A000" and "during recovery" in message):
        # Unavailable: nothing was written, and no connection of the pool is used again. The next
        # one may lead to the primary.
        return DatabaseUnavailable(
            "this PostgreSQL server takes no writes: it is a standby, or its transactions are "
            f"read-only ({message.splitlines()[0]})",
            "Connect to the primary: name all servers in the URL, "
            "postgresql://…@host1,host2/…?target_session_attrs=read-write. If this is the "
            "primary, look at default_transaction_read_only",
        )
    return None


def _ours(code: str, message: str) -> Exception:
    """An error that one of our functions raised. DETAIL has its values."""
    match = _DETAIL.search(message)
    detail = match[1] if match else ""
    text = message.splitlines()[0]
    queue = _quoted(text)
    if code == "FT001":
        return LeaseLost(queue, [int(detail)] if detail.isdigit() else [])
    if code == "FT002":
        return QueueNotFound(detail or queue)
    if code == "FT003":
        return DuplicateKey(queue, [detail])
    if code == "FT004":
        return ChannelFull(queue, detail or queue)
    if code == "FT005":
        return InvalidName(text)
    if code == "FT007":
        return UnsafeTransaction(f"{text}: begin yours with that level")
    if code == "FT008":
        return PermitLost(int(detail) if detail.isdigit() else 0)
    if code == "FT009":
        size, _, limit = detail.partition("/")
        return BodyTooLarge(int(size), int(limit))
    if code == "FT010":
        return MessageLeased("the message")
    if code == "FT011":
        return CursorLost()
    return InvalidArgument(text)


def _quoted(text: str) -> str:
    match = re.search(r"queue '((?:[^']|'')*)'", text)
    return match[1].replace("''", "'") if match else ""
