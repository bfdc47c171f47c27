"""What the two drivers for MySQL and MariaDB share."""

from __future__ import annotations

from fairturn.drivers.base import GONE

# Errors that the server sends when it closes a connection, and those that the client raises then.
GONE_NUMBERS = frozenset({0, 2006, 2013, 2014, 2055, 1053, 1927, 4031})
READ_COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
LARGE = 1_000_000  # a statement with more bytes is compared with max_allowed_packet
TOO_LARGE = (1153, "Got a packet bigger than 'max_allowed_packet' bytes")


def error_code(error: BaseException) -> str:
    """Return the number of a MySQL error, or ``"gone"``."""
    number = error.args[0] if error.args else 0
    if not isinstance(number, int) or number in GONE_NUMBERS:
        return GONE
    return str(number)
