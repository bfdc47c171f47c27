"""Every error that Fairturn raises, by its cause.

FairturnError
 ├─ UsageError               the call is wrong: change it
 │   ├─ QueueNotFound
 │   ├─ MessageNotFound
 │   ├─ ScheduleNotFound
 │   ├─ DuplicateKey
 │   ├─ MessageLeased
 │   ├─ ChannelFull
 │   ├─ InvalidName
 │   ├─ InvalidArgument
 │   ├─ InvalidBody
 │   ├─ BodyTooLarge
 │   ├─ CursorLost
 │   └─ UnsafeTransaction
 ├─ LeaseLost                the lease is lost: normal, nothing was changed
 │   └─ PermitLost
 ├─ WaitTimeout              it is not finished yet
 ├─ TaskTimeout              a handler took longer than its task allows
 └─ DatabaseError            the database failed: wait, repair or migrate
     ├─ DatabaseUnavailable
     │   └─ OutcomeUnknown
     ├─ DatabaseBusy
     └─ SchemaOutdated
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class FairturnError(Exception):
    """The base class of all errors of Fairturn.

    ``problem`` says what is wrong, ``hint`` what a Python program can do about it. The text has
    both; the command line shows the problem with a hint of its own."""

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem}. {hint}" if hint else problem)

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors take other arguments than the text. A copy, for example in another process,
        # is therefore made from the text and the attributes.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[Exception], args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    error = cls.__new__(cls, *args)
    error.__dict__.update(attributes)
    return error


# --- the call is wrong --------------------------------------------------------------------------


class UsageError(FairturnError):
    """The call cannot succeed; the text says what to change."""


class QueueNotFound(UsageError, LookupError):
    """No queue has this name."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        super().__init__(
            f"no queue is called {queue!r}",
            f"Create it with db.queue({queue!r}).create(), or check the spelling with db.queues()",
        )


class MessageNotFound(UsageError, LookupError):
    """No message has this id or key."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} does not exist: it was acked, cancelled, purged, expired, or never sent here",
        )


class ScheduleNotFound(UsageError, LookupError):
    """No schedule has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"no schedule is called {name!r}",
            f"Create it with db.schedule({name!r}).set(…), or check the spelling with "
            "db.schedules()",
        )


class DuplicateKey(UsageError):
    """Another message has the key, and ``on_conflict`` is ``"error"``."""

    def __init__(self, queue: str, keys: Sequence[str]) -> None:
        self.queue = queue
        self.keys = list(keys)
        shown = ", ".join(repr(key) for key in self.keys[:5])
        super().__init__(
            f"queue {queue!r} already has a message with key {shown}; nothing was sent",
            'Pass on_conflict="ignore" to keep the existing message or "replace" to overwrite it',
        )


class MessageLeased(UsageError):
    """The message is leased: only the holder of the lease may change it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is leased: a worker works on it",
            "Wait until it is finished, or remove it with cancel(force=True): its ack then raises "
            "LeaseLost",
        )


class ChannelFull(UsageError):
    """The channel holds ``max_size`` unfinished messages."""

    def __init__(self, queue: str, channel: str, max_size: int | None = None) -> None:
        self.queue = queue
        self.channel = channel
        self.max_size = max_size
        bound = "" if max_size is None else f" ({max_size})"
        super().__init__(
            f"channel {channel!r} of queue {queue!r} is full: it holds its max_size{bound} of "
            "unfinished messages; nothing was sent",
            "Send later, or raise max_size with set_policy()",
        )


class InvalidName(UsageError, ValueError):
    """A name of a queue, channel, key or type that a database cannot store."""


class InvalidArgument(UsageError, ValueError):
    """An argument is out of its range, or two arguments exclude each other."""


class InvalidBody(UsageError, TypeError):
    """A body, header, memo or result is neither bytes nor JSON."""


class BodyTooLarge(UsageError, ValueError):
    """The encoded body is larger than the queue's ``max_body``."""

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(
            f"the body has {size:,} bytes and the queue takes at most {limit:,}; nothing was sent",
            "Store it elsewhere and send a reference, or raise max_body with queue.set()",
        )


class UnsafeTransaction(UsageError):
    """Your transaction is not suitable: its isolation level, or not BEGIN IMMEDIATE."""


# --- lost leases and timeouts -------------------------------------------------------------------


class LeaseLost(FairturnError):
    """The lease is not valid any more: nothing was changed."""

    def __init__(self, queue: str = "", ids: Sequence[int] = (), text: str | None = None) -> None:
        self.queue = queue
        self.ids = list(ids)
        shown = ", ".join(str(i) for i in self.ids[:5])
        super().__init__(
            text
            or f"the lease on message {shown} of queue {queue!r} is lost: it expired and the "
            "message went to another worker, or it was finished, cancelled or purged; or it never "
            "was a lease of this queue. Nothing was changed; drop the work of this delivery"
        )


class PermitLost(LeaseLost):
    """The permit has expired: other workers get its messages."""

    def __init__(self, permit: int) -> None:
        super().__init__(
            text=f"permit {permit} has expired and cannot be extended: stop the work of its "
            "leases, then take a new permit with db.permit()"
        )


class CursorLost(UsageError):
    """The database was set back to a time before this cursor of events."""

    def __init__(self) -> None:
        super().__init__(
            "the database was set back by a failover or a restore, and the event of this cursor is "
            'gone: read again from the beginning (after="", up to a day of events, most of which '
            "you know), or from now (after=None)"
        )


class WaitTimeout(FairturnError, TimeoutError):
    """The message or group was not finished in time; the text says how far it was."""


class TaskTimeout(FairturnError, TimeoutError):
    """A handler ran longer than its task's ``timeout``; it is retried like any failure."""


# --- the database failed ------------------------------------------------------------------------


class DatabaseError(FairturnError):
    """The database failed, is away, or is busy; the call itself is correct."""


class DatabaseUnavailable(DatabaseError):
    """There is no connection: the database cannot be reached, refused it, or closed it."""


class OutcomeUnknown(DatabaseUnavailable):
    """The connection broke during the call; whether it was committed is unknown."""

    def __init__(self, what: str, cause: BaseException) -> None:
        super().__init__(
            f"{what} was interrupted; it may or may not have happened ({cause})",
            "Check before you repeat it; a send with a key and on_conflict='ignore' is always "
            "safe to repeat",
        )


class DatabaseBusy(DatabaseError):
    """Locks, deadlocks or write conflicts lasted longer than all retries."""


class SchemaOutdated(DatabaseError):
    """The schema is missing in the database, or does not fit this version of Fairturn.

    ``remedy`` is ``"migrate"``, or ``"upgrade"`` if the schema is too new for this client."""

    def __init__(self, problem: str, remedy: str = "migrate") -> None:
        self.remedy = remedy
        hints = {
            "migrate": "Run `fairturn migrate`, or db.migrate()",
            "upgrade": "Upgrade the Python package fairturn",
        }
        super().__init__(problem, hints[remedy])
