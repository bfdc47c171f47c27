"""Fairturn: one durable, fair, multi-tenant message queue in the database you already run.

>>> import fairturn
>>> db = fairturn.connect("sqlite:///jobs.db")
>>> emails = db.queue("emails")
>>> emails.create()
>>> emails.send({"to": "ann@example.org"}, channel="tenant-7")
>>> for message in emails.receive(10):
...     print(message.body)
...     message.ack()
"""

from fairturn.aio.batch import AsyncBatch
from fairturn.aio.database import AsyncDatabase, connect_async
from fairturn.aio.events import AsyncEvents
from fairturn.aio.group import AsyncGroup
from fairturn.aio.leased import AsyncLeasedMessage
from fairturn.aio.queue import AsyncChannel, AsyncMessages, AsyncPermit, AsyncQueue
from fairturn.aio.schedule import AsyncSchedule
from fairturn.app import App
from fairturn.core.errors import (
    BodyTooLarge,
    ChannelFull,
    CursorLost,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    DuplicateKey,
    FairturnError,
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
from fairturn.core.json_body import Json
from fairturn.core.message import Message
from fairturn.core.schedules import ScheduleStatus, Ticked
from fairturn.core.sends import Send, Sent
from fairturn.core.settings import Backoff, ChannelStats, Policy, Settings
from fairturn.core.values import (
    Acked,
    Event,
    Explanation,
    Failure,
    GroupStatus,
    Maintained,
    Outcome,
    PermitStatus,
    Stats,
    Step,
)
from fairturn.execution.database_url import migrations
from fairturn.operations.batch import BatchChannel, BatchQueue, Pending
from fairturn.operations.receives import KEEP
from fairturn.sync.batch import Batch
from fairturn.sync.database import Database, connect
from fairturn.sync.events import Events
from fairturn.sync.group import Group
from fairturn.sync.leased import LeasedMessage
from fairturn.sync.queue import Channel, Messages, Permit, Queue
from fairturn.sync.schedule import Schedule
from fairturn.tasks.context import AnyContext, AsyncContext, Context, current_context
from fairturn.tasks.middleware import Middleware
from fairturn.tasks.task import Sending, Task
from fairturn.tasks.verdicts import Defer, GiveUp, Retry, Verdict
from fairturn.worker.runtime import Worker

__version__ = "0.1.0"

__all__ = [
    "KEEP",
    "Acked",
    "AnyContext",
    "App",
    "AsyncBatch",
    "AsyncChannel",
    "AsyncContext",
    "AsyncDatabase",
    "AsyncEvents",
    "AsyncGroup",
    "AsyncLeasedMessage",
    "AsyncMessages",
    "AsyncPermit",
    "AsyncQueue",
    "AsyncSchedule",
    "Backoff",
    "Batch",
    "BatchChannel",
    "BatchQueue",
    "BodyTooLarge",
    "Channel",
    "ChannelFull",
    "ChannelStats",
    "Context",
    "CursorLost",
    "Database",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseUnavailable",
    "Defer",
    "DuplicateKey",
    "Event",
    "Events",
    "Explanation",
    "Failure",
    "FairturnError",
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
    "Messages",
    "Middleware",
    "Outcome",
    "OutcomeUnknown",
    "Pending",
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
    "Sending",
    "Sent",
    "Settings",
    "Stats",
    "Step",
    "Task",
    "TaskTimeout",
    "Ticked",
    "UnsafeTransaction",
    "UsageError",
    "Verdict",
    "WaitTimeout",
    "Worker",
    "connect",
    "connect_async",
    "current_context",
    "migrations",
]
