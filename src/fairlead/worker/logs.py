"""Log records that say which message they are about, as text for people or JSON for machines.

Nothing is installed by importing this. ``setup`` is for programs, such as ``fairlead worker``; a
program with a logging of its own puts ``ContextFilter`` on its handlers.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from json import dumps
from typing import IO, Any, NamedTuple

from fairlead.errors import InvalidArgument
from fairlead.worker.handling import current
from fairlead.worker.work import Work

FIELDS = ("queue", "message_id", "attempt", "task", "channel")

# What every record has; the rest came from ``extra=`` or a filter.
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class ContextFilter(logging.Filter):
    """Adds queue, message_id, attempt, task and channel of the handler that logs, or None.

    Put it on a handler, not on a logger: a logger's filters do not see the records of the loggers
    below it."""

    def filter(self, record: logging.LogRecord) -> bool:
        about = running()
        for field in FIELDS:
            if not hasattr(record, field):  # the worker's own records say it themselves
                setattr(record, field, about.get(field))
        return True


def running() -> dict[str, Any]:
    """The fields of the handler that calls this; empty outside of one."""
    found = current.get()
    if found is None:
        return {}
    message = found.message
    return {
        "queue": message.queue,
        "message_id": message.id,
        "attempt": message.attempts,
        "task": found.task.name if isinstance(found, Work) else found.task,
        "channel": message.channel,
    }


class JsonFormatter(logging.Formatter):
    """One JSON object on one line: time (UTC), level, logger, message, the fields of the message
    that is worked on, whatever ``extra=`` has, and the exception's traceback."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
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
            return _line(said, extra)
        except (TypeError, ValueError):
            # A key that is no string, a NaN, a circle: better an odd text than no log line.
            odd = {key: repr(value) for key, value in extra.items()}
            return _line(said, odd)


def _line(said: dict[str, Any], extra: dict[str, Any]) -> str:
    # Ours come first, and win.
    return dumps({**said, **extra, **said}, default=str, allow_nan=False, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """One line for people, with the fields behind it; a traceback below."""

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
    # A handler's traceback may come from another process: then it is text already.
    info = record.exc_info
    return formatter.formatException(info) if info else (record.exc_text or "").rstrip()


def say(log: logging.Logger, level: int, text: str, extra: dict[str, Any], trace: str = "") -> None:
    """Log a text with a traceback that is a text, too; every formatter shows it below."""
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
        if key not in _USUAL and key not in FIELDS and not key.startswith("_")
    }


class _Handler(logging.StreamHandler[IO[str]]):
    """Installed by ``setup``, which finds it again by its type."""


class LogSettings(NamedTuple):
    """What ``setup`` was called with, for a process that should log alike."""

    json: bool
    level: int


def setup(json: bool, level: int | str = "INFO", stream: IO[str] | None = None) -> logging.Handler:
    """Log to ``stream`` (standard error) from now on, for a whole program. Called again it replaces
    its own handler and leaves others alone. The handler is returned, to be moved or removed."""
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
    """How ``setup`` has set up this process, for its children; None if it has not."""
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
        raise InvalidArgument(f"no log level is called {level!r}: there are {', '.join(names)}")
    return names[level.upper()]
