"""The access log: one line for each request, without bodies, secrets or query strings.

Lines are written together, a few times a second: a write for each would cost a busy server a third
of its speed. A server that is killed loses the last of them, one that leaves does not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

log = logging.getLogger("fairlead.access")
EVERY = 0.2  # seconds
MOST = 1000  # lines that are kept
_EMIT = cast("Any", logging.StreamHandler).emit  # what handlers do that only write to a stream


@dataclass(slots=True)
class Visit:
    """A request and what became of it."""

    method: str
    request_id: str
    action: str = "-"
    queue: str = "-"
    key: str = "-"  # the access key's id
    status: int = 0
    error: str | None = None  # the code of a refusal, as the client is told it
    taken: int = 0  # bytes of the request's body
    given: int = 0  # and of the answer's


class AccessLog:
    def __init__(self) -> None:
        self._kept: list[tuple[float, Visit, float]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, visit: Visit, seconds: float) -> None:
        self._kept.append((time.time(), visit, seconds))
        if len(self._kept) >= MOST:
            self.write()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self.write)

    def write(self) -> None:
        """What is kept."""
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


def _record(at: float, visit: Visit, seconds: float) -> logging.LogRecord:
    ms = round(seconds * 1000, 1)
    text = (
        f"{visit.method} {visit.action} {visit.queue} {visit.status} "
        f"{visit.taken}>{visit.given} B {ms} ms key={visit.key} id={visit.request_id}"
        + (f" error={visit.error}" if visit.error else "")
    )
    record = log.makeRecord(log.name, logging.INFO, "", 0, text, (), None)
    record.created = at
    record.__dict__.update(
        method=visit.method,
        action=visit.action,
        queue=None if visit.queue == "-" else visit.queue,
        status=visit.status,
        bytes_in=visit.taken,
        bytes_out=visit.given,
        ms=ms,
        key=visit.key,
        request_id=visit.request_id,
    )
    if visit.error:
        record.__dict__["error"] = visit.error
    return record


def _handlers() -> Iterator[logging.Handler]:
    """Those that a record of this logger reaches."""
    logger: logging.Logger | None = log
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


def _write_all(handler: logging.StreamHandler[Any], records: list[logging.LogRecord]) -> None:
    """What StreamHandler does for one record, for all of them at once."""
    try:
        lines = [handler.format(record) for record in records if handler.filter(record)]
        text = handler.terminator.join([*lines, ""])
        handler.acquire()
        try:
            handler.stream.write(text)
            handler.flush()
        finally:
            handler.release()
    except Exception:  # as logging does: a log that is full or gone must not stop the work
        handler.handleError(records[-1])
