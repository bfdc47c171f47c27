"""What all parts of the memory backend share: the state, the clock, small steps."""

from __future__ import annotations

import copy
import functools
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from fairturn.backends.memory.state import (
    UNFINISHED,
    Failure,
    Group,
    Message,
    Permit,
    Queue,
    State,
)
from fairturn.backends.steps import Op
from fairturn.core import errors
from fairturn.core.rows import EventRow, FailureRow
from fairturn.core.values import EventKind

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound="Core")


def op(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], Op[T]]:
    """Make a plain method an operation: a generator that has no statement to yield.

    Complete groups are closed once, at its end: a call that ends several members, or kills one and
    acks another, is one transaction.
    """

    @functools.wraps(method)
    def operation(self: C, /, *args: P.args, **kwargs: P.kwargs) -> Op[T]:
        yield from ()
        result = method(self, *args, **kwargs)
        if self.closes_at_once:
            self.judge(None)
        return result

    return operation


class Core(ABC):
    def __init__(
        self,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
        closes_at_once: bool = True,
    ) -> None:
        """``closes_at_once`` False: ``settle`` closes the groups, as on a server (§12.10)."""
        self._clock = clock
        self._state = State()
        self.closes_at_once = closes_at_once

    def snapshot(self) -> object:
        """A copy of the state, for a later ``restore``: a transaction."""
        return copy.deepcopy(self._state)

    def restore(self, snapshot: object) -> None:
        assert isinstance(snapshot, State)
        self._state = copy.deepcopy(snapshot)

    @abstractmethod
    def judge(self, now: int | None) -> int:
        """Close the complete ones of the marked groups (groups.py)."""

    # --- finding -----------------------------------------------------------------------------
    def _now(self, now: int | None) -> int:
        return self._clock() if now is None else now

    def _queue(self, name: str) -> Queue:
        queue = self._state.queues.get(name)
        if queue is None:
            raise errors.QueueNotFound(name)
        return queue

    def _by_name(self) -> list[Queue]:
        return [queue for _, queue in sorted(self._state.queues.items())]

    def _alive(self, permit: int | None, now: int) -> Permit | None:
        found = self._state.permits.get(permit or 0)
        return found if found and found.expires_at > now else None

    def _members(self, group: Group) -> Iterator[tuple[Queue | None, Message]]:
        """The members, each with its queue; None if the queue was purged and the row is not yet
        deleted."""
        for q in self._by_name():
            for _, message in sorted(q.messages.items()):
                if message.group is group:
                    yield q, message
        for lane in self._state.purged:
            for message in lane:
                if message.group is group:
                    yield None, message

    # --- changing ----------------------------------------------------------------------------
    def _mark(self, group: Group | None, now: int) -> None:
        """A member of the group has ended: the group may be complete."""
        if group is not None:
            self._state.marks[group] = now

    def _tell(
        self,
        q: Queue,
        kind: EventKind,
        message: Message | None,
        now: int,
        due_at: int | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Write an event (§15), with the delay if there is a new due time. The event of a closed
        group has no message."""
        if not q.columns["events"]:
            return
        m = message
        self._state.last_event += 1
        self._state.events.append(
            EventRow(
                f"{self._state.last_event}-{now}",
                now,
                kind,
                q.name,
                m and m.id,
                m and m.key,
                m and m.channel,
                None if due_at is None else max(due_at - now, 0),
                None if data is None else json.dumps(data).encode(),
            )
        )

    def _log(
        self,
        q: Queue,
        message: Message,
        error: str,
        details: bytes | None,
        reference: str | None,
        killed: bool,
        now: int,
    ) -> None:
        m = message
        row = FailureRow(q.name, m.id, m.key, m.attempts, now, error, details, reference)
        q.failures.append(Failure(row, killed))
        q.count(now, "errors")

    def _die(self, q: Queue, message: Message, error: str, now: int) -> None:
        """The message is dead, or goes to the dead-letter queue (§2.4)."""
        q.count(now, "killed")
        message.end_lease()
        message.error = error
        message.finish("x", now)
        self._tell(q, "dead", message, now, data={"error": error})
        if message.group is not None:
            message.group.died()
            self._mark(message.group, now)
        target = self._state.queues.get(q.columns["dead_letter"])
        if target is None or target is q:
            return
        message.finished_at = None
        message.attempts = 0
        message.schedule(now, now)
        expires = target.columns["expires_us"]
        message.expires_at = None if expires is None else now + expires
        message.died_in = q
        self._move(q, target, message, now)

    def _move(self, q: Queue, target: Queue, message: Message, now: int) -> None:
        message.key = message.group = None
        del q.messages[message.id]
        target.messages[message.id] = message
        target.count(now, "sent")
        self._tell(target, "created", message, now, message.due_at)

    def _finished(self, q: Queue, state: str) -> list[Message]:
        return sorted(q.select(state), key=lambda m: (m.finished_at, m.id))

    def _delete(self, q: Queue, messages: Iterable[Message], now: int) -> None:
        """Delete messages and write the events. (Retention deletes without events.)"""
        for message in messages:
            del q.messages[message.id]
            self._tell(q, "deleted", message, now)
            if message.state in UNFINISHED:
                self._mark(message.group, now)
