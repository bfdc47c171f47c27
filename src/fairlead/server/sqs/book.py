"""What the server knows of queues: the core's settings and, in their meta, what only SQS has.

    SQS                        core
    VisibilityTimeout          lease
    MessageRetentionPeriod     expires
    RedrivePolicy              dead_letter and max_attempts; without one max_attempts is 0: no end
    FifoQueue                  the name ends with .fifo and its channels are ordered
    all others                 meta["sqs"]: {"attributes", "tags", "modified", "scope"}

A queue made by the library has no such meta: it is shown with SQS's defaults and its settings.

Every message action asks `known`, so that is remembered for a second; what this process writes is
forgotten at once. Another process may therefore heed old settings for a second.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from fairlead.aio.database import AsyncDatabase
from fairlead.aio.queue import AsyncQueue
from fairlead.backends.base import Op
from fairlead.errors import InvalidArgument, InvalidName, QueueNotFound
from fairlead.operations.call import Call
from fairlead.operations.queues import settings_value
from fairlead.server.sqs import checks, errors, limits, redrive
from fairlead.server.sqs.asking import Ask, Options
from fairlead.server.sqs.settings import is_true
from fairlead.values import Settings

INTERNAL = "fairlead.sqs.moves"  # the server's own queue: move tasks, names deleted just now
EXTENDED_TAG = "fairlead:extended"
YEARS = 100 * 365 * 86_400  # how long delays, visibility and retention may be with --extended
MAX_BODY = 2 * limits.MESSAGE_BYTES + 2  # JSON escapes of what SQS allows at most double a text
RETENTION = 345_600  # AWS's defaults, of queues made here
VISIBILITY = 30

_OURS = "fairlead."  # names SQS cannot have; nobody reaches them from outside
_META = "sqs"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_FRESH = 1.0  # seconds
_MANY = 10_000  # queues whose entries are kept; more are looked up again


@dataclass(frozen=True, slots=True)
class Known:
    """One queue at one instant: what a message action needs, without a question asked."""

    name: str
    fifo: bool
    lease: float  # VisibilityTimeout
    delay: int
    wait: int
    max_size: int
    retention: float | None  # seconds; None: a library's queue, which keeps for ever
    content_dedup: bool
    dedup_scope: str  # "queue" or "messageGroup", as it was when the queue was created
    dead_letter: str | None  # the name of its dead-letter queue …
    dead_letter_arn: str | None  # … and its ARN, as it was told
    extended: bool
    settings: Settings
    attributes: Mapping[str, str]  # as set, those that only SQS has
    tags: Mapping[str, str]
    modified: int  # seconds since the epoch

    @property
    def bounds(self) -> dict[str, tuple[int, int]] | None:
        return extended_bounds() if self.extended else None


def extended_bounds() -> dict[str, tuple[int, int]]:
    """Of attributes that are numbers, with --extended."""
    return {
        "DelaySeconds": (0, YEARS),
        "VisibilityTimeout": (0, YEARS),
        "MessageRetentionPeriod": (limits.RETENTION_LEAST, YEARS),
    }


def is_sqs_name(name: str) -> bool:
    """Whether SQS could have named a queue so; others are reached, but not listed."""
    return _NAME.fullmatch(name) is not None


def url_of(ask: Ask, name: str) -> str:
    return f"{ask.base_url}/{ask.account}/{name}"


def arn_of(ask: Ask, name: str) -> str:
    return f"arn:aws:sqs:{ask.region}:{ask.account}:{name}"


def read(settings: Settings, options: Options) -> Known:
    """A queue's settings as SQS sees them."""
    own = sqs_part(settings.meta)
    attributes: dict[str, str] = own.get("attributes", {})
    tags: dict[str, str] = own.get("tags", {})
    policy = redrive.policy(attributes.get("RedrivePolicy", ""))
    return Known(
        name=settings.name,
        fifo=settings.name.endswith(checks.FIFO) and settings.policy.ordered,
        lease=settings.lease,
        delay=int(attributes.get("DelaySeconds", "0")),
        wait=int(attributes.get("ReceiveMessageWaitTimeSeconds", "0")),
        max_size=int(
            attributes.get("MaximumMessageSize", min(limits.MESSAGE_BYTES, settings.max_body))
        ),
        retention=settings.expires,
        content_dedup=is_true(attributes.get("ContentBasedDeduplication", "")),
        dedup_scope=own.get("scope", "queue"),
        dead_letter=settings.dead_letter,
        dead_letter_arn=None if policy is None else policy.target,
        extended=options.extended or is_true(tags.get(EXTENDED_TAG, "")),
        settings=settings,
        attributes=attributes,
        tags=tags,
        modified=own.get("modified", math.floor(settings.created_at.timestamp())),
    )


def sqs_part(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What this server wrote into a queue's meta; other doors may have theirs beside it."""
    return cast("dict[str, Any]", meta.get(_META, {}))


def with_sqs_part(meta: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    return {**meta, _META: {name: value for name, value in own.items() if value}}


class Book:
    def __init__(
        self, db: AsyncDatabase, options: Options, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._db = db
        self._options = options
        self._clock = clock
        self._known: dict[str, tuple[float, Known]] = {}
        self._looking: dict[str, asyncio.Task[Known]] = {}
        # A change reads the meta, edits it and writes it back whole.
        self._changing = asyncio.Lock()

    # --- reading -----------------------------------------------------------------------------
    async def known(self, name: str) -> Known:
        """The queue as it was at most a second ago; QueueDoesNotExist if there is none."""
        found = self._known.get(name)
        if found is not None and found[0] > self._clock():
            return found[1]
        looking = self._looking.get(name)
        if looking is None:  # one look for all who ask meanwhile
            looking = asyncio.ensure_future(self._look(name))
            self._looking[name] = looking
            looking.add_done_callback(lambda task: self._looked(name, task))
        return await asyncio.shield(looking)

    async def fresh(self, name: str) -> Known:
        """The queue as it is now: for those who answer with it, or are going to change it."""
        return await self._look(name)

    async def all(self) -> list[Known]:
        """Every queue that can be reached from outside, by name."""

        def start() -> Op[list[Settings]]:
            rows = yield from self._db.core.backend.queues(None)
            return [settings_value(row) for row in rows]

        found = await self._db.runner.run(Call("settings", start, repeatable=True))
        known = (read(one, self._options) for one in found if not one.name.startswith(_OURS))
        return sorted(known, key=lambda one: one.name)

    async def names(self) -> list[str]:
        """The queues that SQS can name, in a stable order."""
        names = await self._db.queues()
        return sorted(name for name in names if is_sqs_name(name))

    async def sources(self, name: str) -> list[str]:
        """The queues whose dead letters go to this one."""
        return [one.name for one in await self.all() if one.dead_letter == name]

    async def now(self) -> float:
        """The database's clock, in seconds since the epoch."""
        now = self._db.core.now()
        return (await self._db.clock() if now is None else now) / 1_000_000

    async def _look(self, name: str) -> Known:
        try:
            settings = await self.queue(name).settings()
        except QueueNotFound as error:
            raise errors.QUEUE_DOES_NOT_EXIST() from error
        return read(settings, self._options)

    def _looked(self, name: str, task: asyncio.Task[Known]) -> None:
        if self._looking.get(name) is not task:
            return  # the queue was changed meanwhile: this may be what was before
        del self._looking[name]
        if task.cancelled() or task.exception() is not None:
            return
        if len(self._known) >= _MANY:
            self._known.clear()
        self._known[name] = (self._clock() + _FRESH, task.result())

    def queue(self, name: str) -> AsyncQueue:
        """The core's handle; QueueDoesNotExist for names that no queue has."""
        if name.startswith(_OURS):
            raise errors.QUEUE_DOES_NOT_EXIST()
        try:
            return self._db.queue(name)
        except InvalidName as error:
            raise errors.QUEUE_DOES_NOT_EXIST() from error

    # --- writing -----------------------------------------------------------------------------
    async def create(self, name: str, settings: Mapping[str, Any]) -> bool:
        """False: there is one of that name, and it is left as it is."""
        try:
            return await self.queue(name).create(**settings)
        except InvalidArgument as error:
            raise _too_much() from error
        finally:
            self.forget(name)

    async def change(
        self, name: str, edit: Callable[[Known, dict[str, Any]], Mapping[str, Any]]
    ) -> None:
        """`edit(known, own)` changes what SQS keeps of the queue, and returns settings to set.

        One change at a time in this process. Two processes that change one queue in the same
        instant: the later one wins, with all it has read.
        """
        async with self._changing:
            known = await self._look(name)
            own = sqs_part(known.settings.meta).copy()
            settings = edit(known, own)
            try:
                meta = with_sqs_part(known.settings.meta, own)
                await self.queue(name).set(**settings, meta=meta)
            except InvalidArgument as error:
                raise _too_much() from error
            finally:
                self.forget(name)

    async def drop(self, name: str) -> bool:
        try:
            return await self.queue(name).drop()
        finally:
            self.forget(name)

    def forget(self, name: str) -> None:
        """What is known of the queue is not true any more."""
        self._known.pop(name, None)
        self._looking.pop(name, None)


def _too_much() -> errors.SqsError:
    return errors.OVER_LIMIT(
        "The policies and tags of a queue are kept up to 64 KiB together; these are more."
    )
