"""Limits on clients: connections, sizes and times of requests."""

from __future__ import annotations

from dataclasses import dataclass

from fairturn.sqs import limits


@dataclass(frozen=True, slots=True)
class Bounds:
    connections: int = 10_000  # open at the same time in each process; further ones get a 503
    header_bytes: int = 64 * 1024  # of a request line with its headers
    # The largest batch is 1 MiB of text, up to 3 MiB on the wire: see limits.py.
    body_bytes: int = limits.REQUEST_BYTES
    header_seconds: float = 10  # from the first byte to the end of the headers; also for TLS
    body_seconds: float = 30  # from there to the end of the body; also to read an answer
    keep_alive: float = 75  # seconds between two requests
