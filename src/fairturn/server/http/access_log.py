"""The access log: one line for each request, without bodies, secrets or query strings.

Lines are written together, a few times a second: one write for each line would cost a busy server a
third of its speed. A server that is killed loses the last lines; one that stops normally does not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

log = logging.getLogger("fairturn.access")
EVERY = 0.2  # seconds between two writes
MOST = 1000  # lines that wait for the next write
_EMIT = cast("Any", logging.StreamHandler).emit  # of handlers that only write to a stream


@dataclass(slots=True)
class LogEntry:
    """A request and its outcome."""

    method: str
    request_id: str
    action: str = "-"
    queue: str = "-"
    key: str = "-"  # the access key's id
    status: int = 0
    error: str | None = None  # the error code in the answer
    bytes_in: int = 0  # of the request's body
    bytes_out: int = 0  # of the answer's body


class AccessLog:
    def __init__(self) -> None:
        self._kept: list[tuple[float, LogEntry, float]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, entry: LogEntry, seconds: float) -> None:
        self._kept.append((time.time(), entry, seconds))
        if len(self._kept) >= MOST:
            self.write()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self.write)

    def write(self) -> None:
        """Write the waiting lines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kept, self._kept = self._kept, []
        if not kept or not log.isEnabledFor(logging.INFO):
            return
        records = [_record(*one) for one in kept]
        for handler in _handlers():
            if handler.level > logging.INFO:
                continue
            if type(handler).emit is _EMIT:
                _write_all(cast("logging.StreamHandler[Any]", handler), records)
            else:
                for record in records:
                    handler.handle(record)


def _record(at: float, entry: LogEntry, seconds: float) -> logging.LogRecord:
    ms = round(seconds * 1000, 1)
    text = (
        f"{entry.method} {entry.action} {entry.queue} {entry.status} "
        f"{entry.bytes_in}>{entry.bytes_out} B {ms} ms key={entry.key} id={entry.request_id}"
        + (f" error={entry.error}" if entry.error else "")
    )
    record = log.makeRecord(log.name, logging.INFO, "", 0, text, (), None)
    record.created = at
    record.__dict__.update(
        method=entry.method,
        action=entry.action,
        queue=None if entry.queue == "-" else entry.queue,
        status=entry.status,
        bytes_in=entry.bytes_in,
        bytes_out=entry.bytes_out,
        ms=ms,
        key=entry.key,
        request_id=entry.request_id,
    )
    if entry.error:
        record.__dict__["error"] = entry.error
    return record


def _handlers() -> Iterator[logging.Handler]:
    """Return the handlers that a record of this logger reaches."""
    logger: logging.Logger | None = log
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _write_all(handler: logging.StreamHandler[Any], records: list[logging.LogRecord]) -> None:
    """Do for all records together what StreamHandler does for one."""
    try:
        lines = [handler.format(record) for record in records if handler.filter(record)]
        text = handler.terminator.join([*lines, ""])
        handler.acquire()
        try:
            handler.stream.write(text)
            handler.flush()
        finally:
            handler.release()
    except Exception:  # as logging does: a failing log must not stop the server
        handler.handleError(records[-1])
