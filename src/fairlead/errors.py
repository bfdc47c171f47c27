"""Every error Fairlead raises, split by whose fault it is.

FairleadError
 ├─ UsageError               the caller's: change the call
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
 │   └─ UnsafeTransaction
 ├─ LeaseLost                a lost race: normal, nothing was changed
 │   └─ PermitLost
 ├─ WaitTimeout              it is not finished yet
 ├─ TaskTimeout              a handler took longer than its task allows
 └─ DatabaseError            the database's: wait, repair or migrate
     ├─ DatabaseUnavailable
     │   └─ OutcomeUnknown
     ├─ DatabaseBusy
     └─ SchemaOutdated
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class FairleadError(Exception):
    """The root of everything Fairlead raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors take what the text is made of, so a copy (in another process, say) is
        # rebuilt from the text and the attributes instead.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[Exception], args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    error = cls.__new__(cls, *args)
    error.__dict__.update(attributes)
    return error


# --- the caller's -------------------------------------------------------------------------------


class UsageError(FairleadError):
    """The call cannot succeed as it is; its text says what to change."""


class QueueNotFound(UsageError, LookupError):
    """No queue has this name."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        super().__init__(
            f"no queue is called {queue!r}: create it with db.queue({queue!r}).create(), "
            "or look for a spelling mistake among db.queues()"
        )


class MessageNotFound(UsageError, LookupError):
    """No message has this id or key."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} does not exist: it was acked, cancelled, purged, expired, or never sent here"
        )


class ScheduleNotFound(UsageError, LookupError):
    """No schedule has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"no schedule is called {name!r}: create it with db.schedule({name!r}).set(…), or look "
            "for a spelling mistake among db.schedules()"
        )


class DuplicateKey(UsageError):
    """The key belongs to another message and ``on_conflict`` is ``"error"``."""

    def __init__(self, queue: str, keys: Sequence[str]) -> None:
        self.queue = queue
        self.keys = list(keys)
        shown = ", ".join(repr(key) for key in self.keys[:5])
        super().__init__(
            f"queue {queue!r} already has a message with key {shown}; nothing was sent. Pass "
            'on_conflict="ignore" to keep the existing message or "replace" to overwrite it'
        )


class MessageLeased(UsageError):
    """A worker holds the message; only its lease may change it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is leased: a worker is busy with it. Let it finish, or pass force=True to "
            "cancel() to remove it under the worker, whose ack will then raise LeaseLost"
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
            "unfinished messages; nothing was sent. Send later, or raise max_size with set_policy()"
        )


class InvalidName(UsageError, ValueError):
    """A queue, channel, key or type name that no backend can hold."""


class InvalidArgument(UsageError, ValueError):
    """An argument out of its range, or two that exclude each other."""


class InvalidBody(UsageError, TypeError):
    """A body, header, memo or result that is neither bytes nor JSON."""


class BodyTooLarge(UsageError, ValueError):
    """The encoded body is larger than the queue's ``max_body``."""

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(
            f"the body has {size:,} bytes and the queue takes at most {limit:,}; nothing was sent. "
            "Store it elsewhere and send a reference, or raise max_body with queue.set()"
        )


class UnsafeTransaction(UsageError):
    """Your transaction cannot carry this operation (isolation level, or not IMMEDIATE)."""


# --- lost races ---------------------------------------------------------------------------------


class LeaseLost(FairleadError):
    """The lease is no longer the message's latest: nothing was changed."""

    def __init__(self, queue: str = "", ids: Sequence[int] = (), text: str | None = None) -> None:
        self.queue = queue
        self.ids = list(ids)
        shown = ", ".join(str(i) for i in self.ids[:5])
        super().__init__(
            text
            or f"the lease on message {shown} of queue {queue!r} is lost: it expired and the "
            "message went to another worker, or it was finished, cancelled or purged; or it never "
            "was a lease of this queue. Nothing was changed; drop this delivery's work"
        )


class PermitLost(LeaseLost):
    """The permit expired: its leases are, or will be, given to other workers."""

    def __init__(self, permit: int) -> None:
        super().__init__(
            text=f"permit {permit} has expired and cannot be revived: stop the work of its leases, "
            "then take a new permit with db.permit()"
        )


class WaitTimeout(FairleadError, TimeoutError):
    """``wait`` ended before the message or the group did; its text says how far it was."""


class TaskTimeout(FairleadError, TimeoutError):
    """A handler ran longer than its task's ``timeout``; counted and retried as any failure."""


# --- the database's -----------------------------------------------------------------------------


class DatabaseError(FairleadError):
    """The database could not do it now."""


class DatabaseUnavailable(DatabaseError):
    """No connection: it cannot be reached, refused us, or went away."""


class OutcomeUnknown(DatabaseUnavailable):
    """The call was broken off while the database may have been committing."""

    def __init__(self, what: str, cause: BaseException) -> None:
        super().__init__(
            f"{what} was broken off; it may or may not have happened ({cause}). "
            "Check before you repeat it, or send with a key and on_conflict='ignore', which is "
            "safe to repeat"
        )


class DatabaseBusy(DatabaseError):
    """Locks, deadlocks or write contention lasted longer than all retries."""


class SchemaOutdated(DatabaseError):
    """The database's Fairlead schema is missing, or does not serve this version of Fairlead."""
