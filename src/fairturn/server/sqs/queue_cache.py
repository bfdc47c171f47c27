"""The settings of queues as SQS sees them: the core's settings and, in their meta, SQS's own.

    SQS                        core
    VisibilityTimeout          lease
    MessageRetentionPeriod     expires
    RedrivePolicy              dead_letter and max_attempts; without one max_attempts is 0: no limit
    FifoQueue                  the name ends with .fifo and its channels are ordered
    all others                 meta["sqs"]: {"attributes", "tags", "modified", "scope"}

A queue created by the library has no such meta: it is shown with its settings and SQS's defaults.

Every message action needs these settings, so they are cached for a second. A change made by this
process clears the entry; other processes may use the old settings for up to a second.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from fairturn import internal
from fairturn.aio.database import AsyncDatabase
from fairturn.aio.queue import AsyncQueue
from fairturn.core.errors import InvalidArgument, InvalidName, QueueNotFound
from fairturn.core.settings import Settings
from fairturn.server.sqs.attribute_rules import is_true
from fairturn.server.sqs.request import Options
from fairturn.sqs import checks, errors, limits

INTERNAL = "fairturn.sqs.moves"  # the server's own queue: move tasks, recently deleted names
EXTENDED_TAG = "fairturn:extended"
MAX_BODY = 2 * limits.MESSAGE_BYTES + 2  # JSON escapes at most double a text that SQS allows
RETENTION = 345_600  # AWS's defaults, for queues created here
VISIBILITY = 30

_OURS = "fairturn."  # internal queues: not valid in SQS, and not reachable by clients
_META = "sqs"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_FRESH = 1.0  # seconds
_MANY = 10_000  # entries in the cache; then it is cleared


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue at one instant: all that a message action needs, without I/O."""

    name: str
    fifo: bool
    lease: float  # VisibilityTimeout
    delay: int
    wait: int
    max_size: int
    retention: float | None  # seconds; None: a queue of the library that keeps messages for ever
    content_dedup: bool
    dedup_scope: str  # "queue" or "messageGroup", as it was when the queue was created
    dead_letter: str | None  # the name of its dead-letter queue
    extended: bool
    settings: Settings
    attributes: Mapping[str, str]  # those that only SQS has, as they were set
    tags: Mapping[str, str]
    modified: int  # seconds since the epoch

    @property
    def ordered(self) -> bool:
        """Whether it is a FIFO queue, or a queue of the library with an ordered policy."""
        return self.settings.policy.ordered

    @property
    def max_delay(self) -> int:
        return limits.YEARS if self.extended else limits.DELAY

    @property
    def max_visibility(self) -> int:
        return limits.YEARS if self.extended else limits.VISIBILITY


def is_sqs_name(name: str) -> bool:
    """Whether SQS allows this queue name; other queues can be used, but are not listed."""
    return _NAME.fullmatch(name) is not None


def read(settings: Settings, options: Options) -> QueueInfo:
    """Return a queue's settings as SQS sees them."""
    own = sqs_part(settings.meta)
    attributes: dict[str, str] = own.get("attributes", {})
    tags: dict[str, str] = own.get("tags", {})
    return QueueInfo(
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
        extended=options.extended or is_true(tags.get(EXTENDED_TAG, "")),
        settings=settings,
        attributes=attributes,
        tags=tags,
        modified=own.get("modified", math.floor(settings.created_at.timestamp())),
    )


def sqs_part(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return this server's part of a queue's meta; other doors may have their own parts."""
    return cast("dict[str, Any]", meta.get(_META, {}))


def with_sqs_part(meta: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    return {**meta, _META: {name: value for name, value in own.items() if value}}


class QueueCache:
    def __init__(
        self, db: AsyncDatabase, options: Options, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._db = db
        self._options = options
        self._clock = clock
        self._cached: dict[str, tuple[float, QueueInfo]] = {}
        self._lookups: dict[str, asyncio.Task[QueueInfo]] = {}
        # A change reads the meta, edits it and writes it back whole.
        self._changing = asyncio.Lock()

    # --- reading -----------------------------------------------------------------------------
    async def cached(self, name: str) -> QueueInfo:
        """Return the queue as it was at most a second ago; raise QueueDoesNotExist without one."""
        until, found = self._cached.get(name, (0.0, None))
        if found is not None and until > self._clock():
            return found
        lookup = self._lookups.get(name)
        if lookup is None:  # concurrent calls share one lookup
            lookup = asyncio.ensure_future(self._read(name))
            self._lookups[name] = lookup
            lookup.add_done_callback(lambda task: self._looked_up(name, task))
        return await asyncio.shield(lookup)

    async def fresh(self, name: str) -> QueueInfo:
        """Return the queue as it is now: to show it, or before a change."""
        return await self._read(name)

    async def all(self) -> list[QueueInfo]:
        """Return all queues that clients can reach, by name."""
        found = await internal.all_settings(self._db)
        known = (read(one, self._options) for one in found if not one.name.startswith(_OURS))
        return sorted(known, key=lambda one: one.name)

    async def names(self) -> list[str]:
        """Return the queues with names that SQS allows, in a stable order."""
        names = await self._db.queues()
        return sorted(name for name in names if is_sqs_name(name))

    async def sources(self, name: str) -> list[str]:
        """Return the queues whose dead letters go to this one."""
        return [one.name for one in await self.all() if one.dead_letter == name]

    async def now(self) -> float:
        """The database's clock, in seconds since the epoch."""
        return await internal.now(self._db) / 1_000_000

    async def _read(self, name: str) -> QueueInfo:
        try:
            settings = await self.queue(name).settings()
        except QueueNotFound as error:
            raise errors.QUEUE_DOES_NOT_EXIST() from error
        return read(settings, self._options)

    def _looked_up(self, name: str, task: asyncio.Task[QueueInfo]) -> None:
        if self._lookups.get(name) is not task:
            return  # the queue was changed meanwhile: this result may be old
        del self._lookups[name]
        if task.cancelled() or task.exception() is not None:
            return
        if len(self._cached) >= _MANY:
            self._cached.clear()
        self._cached[name] = (self._clock() + _FRESH, task.result())

    def queue(self, name: str) -> AsyncQueue:
        """Return the core's handle; raise QueueDoesNotExist for a name that no queue can have."""
        if name.startswith(_OURS):
            raise errors.QUEUE_DOES_NOT_EXIST()
        try:
            return self._db.queue(name)
        except InvalidName as error:
            raise errors.QUEUE_DOES_NOT_EXIST() from error

    # --- writing -----------------------------------------------------------------------------
    async def create(self, name: str, settings: Mapping[str, Any]) -> bool:
        """Create a queue. False: it exists already, and stays unchanged."""
        try:
            return await self.queue(name).create(**settings)
        except InvalidArgument as error:
            raise _too_much() from error
        finally:
            self.forget(name)

    async def change(
        self, name: str, edit: Callable[[QueueInfo, dict[str, Any]], Mapping[str, Any]]
    ) -> None:
        """`edit(info, own)` changes `own`, SQS's part of the meta, and returns settings to set.

        This process makes one change at a time. If two processes change one queue at the same time,
        the later one wins and overwrites the whole part.
        """
        async with self._changing:
            known = await self._read(name)
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
        """Remove the queue's entry: it is no longer valid."""
        self._cached.pop(name, None)
        self._lookups.pop(name, None)


def _too_much() -> errors.SqsError:
    return errors.OVER_LIMIT(
        "The policies and tags of a queue may have 64 KiB together; these have more."
    )
