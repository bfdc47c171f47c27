"""Log records that name the message they are about, as text for people or JSON for machines.

Importing this module installs nothing. ``setup`` is for programs such as ``fairturn worker``; a
program that configures its own logging puts ``ContextFilter`` on its handlers.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from json import dumps
from typing import IO, Any, NamedTuple

from fairturn.core.errors import InvalidArgument
from fairturn.core.message import Message
from fairturn.tasks.context import current

__all__ = ["ContextFilter", "JsonFormatter", "setup"]

FIELDS = ("queue", "message_id", "attempt", "task", "channel")

# The attributes of every record; others came from ``extra=`` or a filter.
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class ContextFilter(logging.Filter):
    """Adds queue, message_id, attempt, task and channel of the handler that logs, or None.

    Put it on a handler, not on a logger: a logger's filters do not see records of its children."""

    def filter(self, record: logging.LogRecord) -> bool:
        about = running()
        for field in FIELDS:
            if not hasattr(record, field):  # the worker's own records have the fields already
                setattr(record, field, about.get(field))
        return True


def running() -> dict[str, Any]:
    """Return the fields of the handler that calls this; empty outside of a handler."""
    call = current.get()
    return {} if call is None else fields_of(call.message, call.task_name)


def fields_of(message: Message, task: str | None = None) -> dict[str, Any]:
    """Return the fields of a record about a message."""
    return {
        "queue": message.queue,
        "message_id": message.id,
        "attempt": message.attempts,
        "task": task,
        "channel": message.channel,
    }


class JsonFormatter(logging.Formatter):
    """One JSON object on one line: time (UTC), level, logger, message, the fields of the handled
    message, the values of ``extra=``, and the exception's traceback."""

    def format(self, record: logging.LogRecord) -> str:
        own = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = {**_fields(record), **_extra(record)}
        if trace := _trace(self, record):
            extra["exception"] = trace
        if record.stack_info:
            extra["stack"] = self.formatStack(record.stack_info)
        try:
            return _line(own, extra)
        except (TypeError, ValueError):
            # Not JSON: a key that is no string, a NaN, a cycle. Log their repr rather than nothing.
            texts = {key: repr(value) for key, value in extra.items()}
            return _line(own, texts)


def _line(own: dict[str, Any], extra: dict[str, Any]) -> str:
    # The record's own fields come first, and ``extra`` cannot replace them.
    return dumps(
        {**own, **extra, **own},
        default=str,
        allow_nan=False,
        ensure_ascii=False,
    )


class TextFormatter(logging.Formatter):
    """One line for people, the fields at its end, a traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {record.getMessage()}"
        fields = " ".join(f"{key}={value}" for key, value in _fields(record).items())
        if fields:
            line = f"{line} [{fields}]"
        if trace := _trace(self, record):
            line = f"{line}\n{trace}"
        if record.stack_info:
            line = f"{line}\n{self.formatStack(record.stack_info)}"
        return line


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    # A handler's traceback may come from another process: then it is already a text.
    info = record.exc_info
    return formatter.formatException(info) if info else (record.exc_text or "").rstrip()


def log_with_trace(
    log: logging.Logger, level: int, text: str, extra: dict[str, Any], trace: str = ""
) -> None:
    """Log a text with a traceback that is already a text; every formatter shows it below."""
    if log.isEnabledFor(level):
        record = log.makeRecord(log.name, level, "", 0, text, (), None, extra=extra)
        record.exc_text = trace.rstrip() or None
        log.handle(record)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    values = {field: getattr(record, field, None) for field in FIELDS}
    return {field: value for field, value in values.items() if value not in (None, "")}


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {
        key: value
        for key, value in vars(record).items()
        if key not in _STANDARD and key not in FIELDS and not key.startswith("_")
    }


class _Handler(logging.StreamHandler[IO[str]]):
    """Installed by ``setup``, which finds its handler by this type when it is called again."""


class LogSettings(NamedTuple):
    """The arguments of ``setup``, for a child process that should log in the same way."""

    json: bool
    level: int


def setup(json: bool, level: int | str = "INFO", stream: IO[str] | None = None) -> logging.Handler:
    """Log to ``stream`` (standard error) from now on, for a whole program, and return the handler.
    A second call replaces this handler and keeps all others."""
    number = _level(level)
    root = logging.getLogger()
    for old in _ours(root):
        root.removeHandler(old)
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    handler.addFilter(ContextFilter())
    root.addHandler(handler)
    root.setLevel(number)
    return handler


def settings() -> LogSettings | None:
    """Return how ``setup`` was called in this process, for its children; None if it was not."""
    root = logging.getLogger()
    for handler in _ours(root):
        return LogSettings(isinstance(handler.formatter, JsonFormatter), root.level)
    return None


def _ours(root: logging.Logger) -> list[logging.Handler]:
    return [handler for handler in root.handlers if isinstance(handler, _Handler)]


def _level(level: int | str) -> int:
    if isinstance(level, int):
        return level
    names = logging.getLevelNamesMapping()
    if level.upper() not in names:
        levels = ", ".join(names)
        raise InvalidArgument(f"no log level is called {level!r}; the levels are {levels}")
    return names[level.upper()]
