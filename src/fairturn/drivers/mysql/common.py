"""What the two drivers for MySQL and MariaDB share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairturn.drivers.base import GONE

# Errors that the server sends when it closes a connection, and those that the client raises then.
# 1047: a node of a Galera cluster that has lost the others, or is still joining, refuses every
# statement. Another node may serve, or this one later.
GONE_NUMBERS = frozenset({0, 2006, 2013, 2014, 2055, 1047, 1053, 1927, 4031})
READ_COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
LARGE = 1_000_000  # a statement with more bytes is compared with max_allowed_packet
TOO_LARGE = (1153, "Got a packet bigger than 'max_allowed_packet' bytes")

# Is this a node of a Galera cluster, and does it serve? Without Galera there is no row.
ASK_GALERA = (
    "SHOW SESSION VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'",
    "SHOW STATUS WHERE Variable_name = 'wsrep_ready'",
)
# wsrep_sync_wait: a node applies what others have committed a little later. With this a call first
# waits until all that was committed before is applied here: it sees what any node has confirmed.
# wsrep_retry_autocommit: the node must not run a CALL again by itself, since it may have sent rows
# already; the client would take the rows of both runs for its answer.
IN_GALERA = "SET SESSION wsrep_sync_wait = 7, wsrep_retry_autocommit = 0"
NOT_READY = (1047, "WSREP: this node is not a part of its cluster now")


def error_code(error: BaseException) -> str:
    """Return the number of a MySQL error, or ``"gone"``."""
    number = error.args[0] if error.args else 0
    if not isinstance(number, int) or number in GONE_NUMBERS:
        return GONE
    return str(number)


def is_ready(status: Iterable[tuple[Any, ...]]) -> bool:
    """Whether the answer to the second of ASK_GALERA says that the node serves."""
    return all(value == "ON" for _, value in status)
