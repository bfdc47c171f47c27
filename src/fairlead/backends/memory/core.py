"""What the rooms of the model share: its state, its clock, and the small steps several take."""

from __future__ import annotations

import copy
import functools
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from fairlead import errors
from fairlead.backends.base import Lease, Op
from fairlead.backends.memory.state import (
    UNFINISHED,
    Event,
    Failure,
    Group,
    Message,
    Permit,
    Queue,
    State,
)

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound="Core")


def op(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], Op[T]]:
    """Make a plain method an operation: a generator that has no statement to yield.

    What it did to groups is judged once, at its end: a call that ends several members, or kills one
    and acks another, is one transaction.
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
        """``closes_at_once`` False: groups close when they are settled, as on a server (§12.10)."""
        self._clock = clock
        self._state = State()
        self.closes_at_once = closes_at_once

    def snapshot(self) -> object:
        """Everything there is, for a later ``restore``: the model's transaction."""
        return copy.deepcopy(self._state)

    def restore(self, snapshot: object) -> None:
        assert isinstance(snapshot, State)
        self._state = copy.deepcopy(snapshot)

    @abstractmethod
    def judge(self, now: int | None) -> int:
        """Close what is complete among the groups that lost a member (groups.py)."""

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

    def _leased(
        self, queue: str, leases: Sequence[Lease], strict: bool
    ) -> tuple[Queue, list[Message], list[int]]:
        """The queue, the messages whose lease is valid, and the ids of the lost ones (§5)."""
        q = self._queue(queue)
        leased, lost = self._split(q, leases)
        if strict and lost:
            raise errors.LeaseLost(queue, lost)
        return q, leased, lost

    def _split(self, q: Queue, leases: Sequence[Lease]) -> tuple[list[Message], list[int]]:
        leased: list[Message] = []
        lost: list[int] = []
        for id, delivery in dict.fromkeys(leases):
            message = q.messages.get(id)
            if message and message.state == "l" and message.deliveries == delivery:
                leased.append(message)
            else:
                lost.append(id)
        return leased, lost

    def _members(self, group: Group) -> Iterator[tuple[Queue | None, Message]]:
        """Each with its queue; without one where that was purged, until its row is swept."""
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
        """A member is no longer unfinished."""
        if group is not None:
            self._state.marks[group] = now

    def _tell(
        self,
        q: Queue,
        kind: str,
        message: Message | None,
        now: int,
        due_at: int | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """§15; of a message with a new due time the delay, of a group's closing no message."""
        if not q.columns["events"]:
            return
        m = message
        self._state.last_event += 1
        self._state.events.append(
            Event(
                self._state.last_event,
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
        q.failures.append(
            Failure(q.name, m.id, m.key, m.attempts, now, error, details, reference, killed)
        )
        q.count(now, "errors")

    def _die(self, q: Queue, message: Message, error: str, now: int) -> None:
        """§2.4."""
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
        """What somebody hears of; retention deletes without a word."""
        for message in messages:
            del q.messages[message.id]
            self._tell(q, "deleted", message, now)
            if message.state in UNFINISHED:
                self._mark(message.group, now)
