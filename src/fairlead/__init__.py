"""Fairlead: one durable, fair, multi-tenant message queue in the database you already run.

>>> import fairlead
>>> db = fairlead.connect("sqlite:///jobs.db")
>>> emails = db.queue("emails")
>>> emails.create()
>>> emails.send({"to": "ann@example.org"}, channel="tenant-7")
>>> for message in emails.receive(10):
...     print(message.body)
...     message.ack()
"""

from __future__ import annotations

from fairlead.aio.database import AsyncDatabase, connect_async
from fairlead.aio.group import AsyncGroup
from fairlead.aio.leased import AsyncLeasedMessage
from fairlead.aio.queue import AsyncChannel, AsyncPermit, AsyncQueue
from fairlead.aio.schedule import AsyncSchedule
from fairlead.app import App
from fairlead.connecting import backend_for
from fairlead.encoded import Json
from fairlead.errors import (
    BodyTooLarge,
    ChannelFull,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    DuplicateKey,
    FairleadError,
    InvalidArgument,
    InvalidBody,
    InvalidName,
    LeaseLost,
    MessageLeased,
    MessageNotFound,
    OutcomeUnknown,
    PermitLost,
    QueueNotFound,
    ScheduleNotFound,
    SchemaOutdated,
    TaskTimeout,
    UnsafeTransaction,
    UsageError,
    WaitTimeout,
)
from fairlead.operations.receiving import KEEP
from fairlead.permits import PermitStatus
from fairlead.schedules import ScheduleStatus, Ticked
from fairlead.sync.database import Database, connect
from fairlead.sync.group import Group
from fairlead.sync.leased import LeasedMessage
from fairlead.sync.queue import Channel, Permit, Queue
from fairlead.sync.schedule import Schedule
from fairlead.tasks.context import AsyncContext, Context
from fairlead.tasks.middleware import Middleware
from fairlead.tasks.task import Task
from fairlead.tasks.verdicts import Defer, GiveUp, Retry
from fairlead.values import (
    Acked,
    Backoff,
    ChannelStats,
    Event,
    Explanation,
    Failure,
    GroupStatus,
    Maintained,
    Message,
    Outcome,
    Policy,
    Send,
    Sent,
    Settings,
    Stats,
    Step,
)
from fairlead.worker.handling import current_context
from fairlead.worker.runtime import Worker

__version__ = "0.1.0"


def migrations(dialect: str, *, schema: str = "fairlead") -> list[tuple[str, str]]:
    """The schema as ordered (name, SQL) pairs, for people who run their own migrations."""
    return backend_for(dialect, schema).migrations()


__all__ = [
    "KEEP",
    "Acked",
    "App",
    "AsyncChannel",
    "AsyncContext",
    "AsyncDatabase",
    "AsyncGroup",
    "AsyncLeasedMessage",
    "AsyncPermit",
    "AsyncQueue",
    "AsyncSchedule",
    "Backoff",
    "BodyTooLarge",
    "Channel",
    "ChannelFull",
    "ChannelStats",
    "Context",
    "Database",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseUnavailable",
    "Defer",
    "DuplicateKey",
    "Event",
    "Explanation",
    "Failure",
    "FairleadError",
    "GiveUp",
    "Group",
    "GroupStatus",
    "InvalidArgument",
    "InvalidBody",
    "InvalidName",
    "Json",
    "LeaseLost",
    "LeasedMessage",
    "Maintained",
    "Message",
    "MessageLeased",
    "MessageNotFound",
    "Middleware",
    "Outcome",
    "OutcomeUnknown",
    "Permit",
    "PermitLost",
    "PermitStatus",
    "Policy",
    "Queue",
    "QueueNotFound",
    "Retry",
    "Schedule",
    "ScheduleNotFound",
    "ScheduleStatus",
    "SchemaOutdated",
    "Send",
    "Sent",
    "Settings",
    "Stats",
    "Step",
    "Task",
    "TaskTimeout",
    "Ticked",
    "UnsafeTransaction",
    "UsageError",
    "WaitTimeout",
    "Worker",
    "connect",
    "connect_async",
    "current_context",
    "migrations",
]
