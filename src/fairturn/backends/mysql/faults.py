"""The meaning of MySQL's error numbers for a caller of Fairturn."""

from __future__ import annotations

import ast
import re

from fairturn.core.errors import (
    BodyTooLarge,
    ChannelFull,
    CursorLost,
    DatabaseError,
    DuplicateKey,
    InvalidArgument,
    InvalidName,
    LeaseLost,
    PermitLost,
    QueueNotFound,
    SchemaOutdated,
    UnsafeTransaction,
)

# Deadlock, lock wait timeout, changed since read, NOWAIT, and a statement whose tables a migration
# has just changed.
_BUSY = {"1213", "1205", "1020", "3572", "1412", "1615"}
# Gone away, lost, lost in between, shut down, killed, time-outs of the network, idle for too long;
# a node that has left its Galera cluster.
_GONE = {
    *("gone", "2006", "2013", "2055", "2014", "1053", "1927", "1159", "1160", "1161", "4031"),
    "1047",
}
# Interrupted by KILL QUERY or a time limit, perhaps after the commit: our procedures commit before
# they answer. 1180: an error during the commit itself, as of a node that leaves its cluster.
_TORN = {"1317", "1969", "3024", "1180"}
# No such table, procedure, database; a procedure with other arguments; no such column.
_OUTDATED = {"1146", "1305", "1318", "1054"}


_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""


def translate(code: str, message: str, prefix: str) -> Exception | str | None:
    """See backends/base.py. `message` is the server's text, or a driver's text that contains it."""
    if code in _BUSY:
        return "busy"
    if code in _GONE:
        return "gone"
    if code in _TORN:
        return "torn"
    text = _text(code, message)
    if code.startswith("-") and code[1:].isdigit():
        code = str(int(code) + 65_536)  # PyMySQL reads the number as a signed one
    if code in _OUTDATED and (prefix in text or code == "1054") and "SAVEPOINT" not in text:
        return SchemaOutdated(f"Fairturn's schema is missing or out of date here ({text})")
    if code == "1049":
        return SchemaOutdated(f"{text}. Create the database, then make Fairturn's schema in it")
    if code == "1153":
        return _packet_too_large()
    if len(code) == 5 and code.startswith("450"):
        return _ours(code, text)
    if code in ("1044", "1045", "1142", "1370"):
        return DatabaseError(f"this user may not use Fairturn: {text}")
    return None


def _ours(code: str, text: str) -> Exception:
    """An error that one of our procedures signals. Its text has the values."""
    if code == "45001":
        ids, _, queue = text.partition(" ")
        return LeaseLost(queue, [int(id) for id in ids.split(",") if id.isdigit()])
    if code == "45002":
        return QueueNotFound(text)
    if code == "45003":
        return DuplicateKey("", [text])
    if code == "45004":
        return ChannelFull("", text)
    if code == "45005":
        return InvalidName(text)
    if code == "45007":
        what, found, rest = text.partition(": ")
        needs = "needs READ COMMITTED"
        return UnsafeTransaction(f"{what} {needs}: {rest}" if found else f"receive {needs}: {text}")
    if code == "45008":
        return PermitLost(int(text) if text.isdigit() else 0)
    if code == "45009":
        size, _, limit = text.partition(" ")
        return BodyTooLarge(int(size), int(limit))
    if code == "45011":
        return CursorLost()
    return InvalidArgument(text)


def _packet_too_large() -> BodyTooLarge:
    error = BodyTooLarge(0, 0)
    text = (
        "the statement is larger than the server's max_allowed_packet; nothing was sent. A body "
        "takes twice its size there: raise max_allowed_packet, or store the body elsewhere and "
        "send a reference"
    )
    error.args = (text,)
    return error


def _text(code: str, message: str) -> str:
    """The server's text; drivers show (1146, "Table …"), or a text that contains this."""
    match = re.search(rf"\({re.escape(code)}, ({_QUOTED})\)", message)
    return ast.literal_eval(match[1]) if match else message
