"""What one client may cost a server before, while and after it asks."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.server.sqs import limits


@dataclass(frozen=True, slots=True)
class Bounds:
    connections: int = 10_000  # at once, in each process; more are turned away with 503
    header_bytes: int = 64 * 1024  # of a request line with its headers
    # The largest batch is 1 MiB of text, up to 3 MiB on the wire; limits.py has the sum.
    body_bytes: int = limits.REQUEST_BYTES
    header_seconds: float = 10  # from the first byte to the end of the headers; for TLS's handshake
    body_seconds: float = 30  # from there to the end of the body; and to read an answer
    keep_alive: float = 75  # between two requests
