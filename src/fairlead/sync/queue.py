"""A queue's handle: everything you can do with one queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from fairlead.operations import (
    check,
    handles,
    insight,
    queues,
    receiving,
    remembering,
    sending,
    waiting,
)
from fairlead.operations.call import Call, Core
from fairlead.operations.receiving import KEEP
from fairlead.polling import Poll
from fairlead.sync.leased import LeasedMessage
from fairlead.sync.running import Runner
from fairlead.values import (
    Acked,
    Backoff,
    ChannelStats,
    Duration,
    Explanation,
    Failure,
    Message,
    Moment,
    OnConflict,
    Outcome,
    Policy,
    Sent,
    Settings,
    State,
    Stats,
)

T = TypeVar("T")


class Messages(list[LeasedMessage]):
    """What a receive gave. When it is empty, ``retry_after`` is the number of seconds after which
    trying again makes sense (None: nothing is on its way)."""

    retry_after: float | None = 0.0
    lost: Sequence[Message] = ()  # of the acks it carried


class Queue:
    """A handle: making one does no I/O, and any number of them may exist."""

    def __init__(self, core: Core, runner: Runner, name: str) -> None:
        self.core = core
        self.runner = runner
        self.name = check.name(name, "queue")

    def call(self, call: Call[T]) -> T:
        return self.runner.run(call)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    # --- the queue itself --------------------------------------------------------------------
    def create(
        self,
        *,
        lease: Duration | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | Duration | None = None,
        retention: Duration | None = None,
        dead_retention: Duration | None = None,
        failure_retention: Duration | None = None,
        dead_letter: str | None = None,
        policy: Policy | None = None,
        max_body: int | None = None,
        expires: Duration | None = None,
        events: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> bool:
        """Create the queue; True if it was created, False if it existed (and is left as it is)."""
        given: dict[str, Any] = {
            "lease": lease,
            "max_attempts": max_attempts,
            "backoff": backoff,
            "retention": retention,
            "dead_retention": dead_retention,
            "failure_retention": failure_retention,
            "dead_letter": dead_letter,
            "policy": policy,
            "max_body": max_body,
            "expires": expires,
            "events": events,
            "meta": meta,
        }
        chosen = {key: value for key, value in given.items() if value is not None}
        return self.call(queues.create(self.core, self.name, chosen))

    def set(self, **settings: Any) -> None:
        """Change settings of an existing queue: only those named, with the names of create()."""
        self.call(queues.set_(self.core, self.name, settings))

    def settings(self) -> Settings:
        """The queue's settings as they are now."""
        return self.call(queues.settings(self.core, self.name))

    def set_limit(
        self, *, max_concurrency: int | None = None, rate: str | None = None, burst: int = 1
    ) -> None:
        """Limit the queue over all its channels; without arguments the limit is lifted."""
        self.call(queues.set_limit(self.core, self.name, max_concurrency, rate, burst))

    def pause(self) -> None:
        """Give out nothing more until resume(); leases already given go on."""
        self.call(queues.set_(self.core, self.name, {"paused": True}))

    def resume(self) -> None:
        """End pause()."""
        self.call(queues.set_(self.core, self.name, {"paused": False}))

    def purge(self, *, reset: bool = False) -> None:
        """Remove every message at once, leased ones too. ``reset`` also zeroes the totals and
        clears the failure log."""
        self.call(queues.purge(self.core, self.name, reset))

    def drop(self) -> bool:
        """Remove the queue with all that belongs to it; False if there was none."""
        return self.call(queues.drop(self.core, self.name))

    # --- channels ----------------------------------------------------------------------------
    def channel(self, name: str) -> Channel:
        """A handle on one channel."""
        return Channel(self, name)

    def channels(self, limit: int = 1000) -> list[ChannelStats]:
        """Channels that have unfinished messages or a policy of their own, by name."""
        return self.call(queues.channels(self.core, self.name, limit))

    # --- sending -----------------------------------------------------------------------------
    def send(
        self,
        body: Any,
        *,
        channel: str = "",
        priority: int = 0,
        delay: Duration | None = None,
        at: Moment | None = None,
        key: str | None = None,
        on_conflict: OnConflict = "error",
        version: int = 0,
        type: str | None = None,
        headers: Mapping[str, Any] | None = None,
        lease: Duration | None = None,
        max_attempts: int | None = None,
        expires: Duration | None = None,
        group: str | None = None,
        debounce: Duration | None = None,
        max_wait: Duration | None = None,
        once: str | None = None,
        once_for: Duration = 300,
    ) -> Sent:
        """Send one message and return its id. When this returns, the message is durable.

        ``debounce``, with a key and ``on_conflict="replace"``: each send pushes the message on by
        that many seconds, at most ``max_wait`` after the first. ``once``: a name under which
        nothing else is sent for ``once_for`` seconds, whatever becomes of this message."""
        row = sending.encode(
            body,
            channel,
            priority,
            delay,
            at,
            key,
            on_conflict,
            version,
            type,
            headers,
            lease,
            max_attempts,
            expires,
            group,
            debounce,
            max_wait,
            once,
            once_for,
        )
        return self.call(sending.send(self.core, self.name, row))

    def send_many(self, messages: Iterable[Any]) -> list[Sent]:
        """Send many at once (``Send`` objects, or bodies): all or nothing, ids in their order."""
        return self.call(sending.send_many(self.core, self.name, messages))

    # --- remembering -------------------------------------------------------------------------
    def remember(self, name: str, value: Any, *, keep: Duration) -> None:
        """Keep a small JSON value under a name for ``keep`` seconds, instead of what was there."""
        self.call(remembering.remember(self.core, self.name, name, value, keep))

    def recall(self, name: str) -> Any:
        """What is remembered under a name, or None."""
        return self.call(remembering.recall(self.core, self.name, name))

    # --- receiving ---------------------------------------------------------------------------
    def receive(
        self,
        n: int = 1,
        *,
        lease: Duration | None = None,
        wait: Duration = 0,
        version: int | None = None,
        types: Sequence[str] | None = None,
        min_priority: int | None = None,
        max_bytes: int | None = None,
        permit: Permit | None = None,
        ack: Sequence[Message] = (),
    ) -> Messages:
        """Lease up to ``n`` messages, channel by channel in turn; wait up to ``wait`` seconds for
        the first. ``ack`` carries the batch before: it is acked, durably, in the same call, and
        what was lost is in ``.lost``."""
        args = receiving.receive_args(
            n, lease, version, types, min_priority, max_bytes, permit and permit.id, ack
        )
        poll = Poll(args, check.microseconds(wait, "wait"))
        grouped = receiving.grouped(ack)
        ticket = None
        try:
            while True:
                received = self.call(
                    receiving.receive(self.core, self.name, poll.args, self.runner.own, grouped)
                )
                pause = poll.after(received, ticket is not None and ticket.live)
                if pause is None:
                    break
                if ticket is None:
                    ticket = self.core.waker.ticket(self.name)
                    if ticket.live:
                        continue  # subscribed: look once more before sleeping
                ticket.wait(pause)
        finally:
            if ticket is not None:
                ticket.leave()
        messages = Messages(LeasedMessage(self, row) for row in received.rows)
        messages.retry_after = poll.retry_after
        messages.lost = receiving.lost_of(ack, poll.lost) if ack else ()
        return messages

    def lease(self, id: int, delivery: int) -> LeasedMessage:
        """A delivery that is known by its two numbers only (``message.id`` and
        ``message.deliveries`` of a receipt, or of another process), for its verbs. No I/O: whether
        the lease holds is told by the verb."""
        return LeasedMessage(self, handles.lease_row(id, delivery))

    # --- the verbs on batches ----------------------------------------------------------------
    def ack(self, messages: Sequence[Message]) -> Acked:
        """Ack a batch in one statement; lost leases are reported, not raised."""
        verb = receiving.ack(self.core, self.name)
        return self.call(receiving.many(self.core, "ack", verb, messages))

    def complete(self, messages: Sequence[Message], result: Any = None) -> Acked:
        """Complete a batch, all with the same result."""
        verb = receiving.complete(self.core, self.name, result)
        return self.call(receiving.many(self.core, "complete", verb, messages))

    def defer(
        self,
        messages: Sequence[Message],
        delay: Duration | None = None,
        *,
        at: Moment | None = None,
        memo: Any = KEEP,
    ) -> Acked:
        """Defer a batch."""
        verb = receiving.defer(self.core, self.name, delay, at, memo)
        return self.call(receiving.many(self.core, "defer", verb, messages))

    def fail(
        self,
        messages: Sequence[Message],
        error: Any = "failed",
        *,
        delay: Duration | None = None,
        details: Any = None,
        reference: str | None = None,
    ) -> Acked:
        """Fail a batch, all with the same error."""
        verb = receiving.fail(self.core, self.name, error, delay, details, reference)
        return self.call(receiving.many(self.core, "fail", verb, messages))

    def kill(
        self,
        messages: Sequence[Message],
        error: Any = "killed",
        *,
        details: Any = None,
        reference: str | None = None,
    ) -> Acked:
        """Kill a batch, all with the same error."""
        verb = receiving.kill(self.core, self.name, error, details, reference)
        return self.call(receiving.many(self.core, "kill", verb, messages))

    def extend(
        self, messages: Sequence[Message], lease: Duration | None = None, *, exact: bool = False
    ) -> Acked:
        """Extend the leases of a batch."""
        return self.call(receiving.extend_many(self.core, self.name, messages, lease, exact))

    def release(self, messages: Sequence[Message]) -> Acked:
        """Release a batch."""
        verb = receiving.release(self.core, self.name)
        return self.call(receiving.many(self.core, "release", verb, messages))

    # --- waiting and finished messages ---------------------------------------------------------
    def cancel(self, *, id: int | None = None, key: str | None = None, force: bool = False) -> bool:
        """Remove a waiting message; False if there is none. A leased one raises MessageLeased
        unless ``force``, which removes a message in any state."""
        return self.call(queues.cancel(self.core, self.name, id, key, force))

    def reschedule(
        self,
        *,
        id: int | None = None,
        key: str | None = None,
        at: Moment | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
    ) -> bool:
        """Change when, or how urgently, a waiting message runs; False if none is waiting."""
        return self.call(queues.reschedule(self.core, self.name, id, key, at, delay, priority))

    def promote(self, within: Duration, *, limit: int = 1000) -> int:
        """Make scheduled messages that are due within so many seconds ready now, the earliest due
        first; their due times stay. How many."""
        return self.call(queues.promote(self.core, self.name, within, limit))

    def redrive(
        self, *, limit: int | None = None, to: str | None = None, delay: Duration = 0
    ) -> int:
        """Give dead messages a new life, here or in queue ``to``; how many."""
        return self.call(queues.redrive(self.core, self.name, limit, to, delay))

    def move(self, to: str | None = None, *, limit: int = 1000) -> int:
        """Move ready messages, oldest first, to queue ``to``, where they are new; without it each
        to the queue where it died. How many: fewer than ``limit`` if no more are ready."""
        return self.call(queues.move(self.core, self.name, to, limit))

    def discard(self, *, state: str = "dead", limit: int | None = None) -> int:
        """Delete dead (or done) messages, oldest first; how many."""
        return self.call(queues.discard(self.core, self.name, state, limit))

    # --- insight -----------------------------------------------------------------------------
    def get(self, *, id: int | None = None, key: str | None = None) -> Message | None:
        """One message in whatever state, or None."""
        return self.call(insight.get(self.core, self.name, id, key))

    def peek(
        self, n: int = 20, *, state: State | None = None, channel: str | None = None, after: int = 0
    ) -> list[Message]:
        """Look at messages by id without leasing them; ``after`` is the last page's last id."""
        return self.call(insight.peek(self.core, self.name, n, state, channel, after))

    def stats(self) -> Stats:
        """Exact counts and totals."""
        return self.call(insight.queue_stats(self.core, self.name))

    def explain(self, id: int | None = None, *, key: str | None = None) -> Explanation:
        """Why is this message not running? In words."""
        return self.call(insight.explain(self.core, self.name, id, key))

    def failures(
        self, n: int = 20, *, id: int | None = None, key: str | None = None
    ) -> list[Failure]:
        """The failure log, newest first."""
        return self.call(insight.failures(self.core, self.name, id, key, n))

    def wait(
        self,
        *,
        id: int | None = None,
        key: str | None = None,
        timeout: Duration | None = None,
        partial: bool | float | None = False,
    ) -> Outcome:
        """Wait until a message is finished: done with its result, dead with its error, or gone.
        ``partial``: also until its progress changes, or exceeds the number given. After ``timeout``
        seconds it raises WaitTimeout."""
        wait = waiting.Wait.of(self.name, id, key, timeout, partial, self.runner.own)
        return self.core.hub.wait(wait)

    # --- your transaction ----------------------------------------------------------------------
    def using(self, connection: Any) -> Queue:
        """The same queue on your connection, in your transaction: nothing is begun, committed or
        retried there."""
        return Queue(self.core, self.runner.using(connection), self.name)


class Channel:
    """A handle on one channel of a queue."""

    def __init__(self, queue: Queue, name: str) -> None:
        self.queue = queue
        self.name = check.name(name, "channel", empty=True)

    def set_policy(
        self,
        *,
        max_concurrency: int | None = None,
        rate: str | None = None,
        burst: int = 1,
        weight: int = 1,
        paused: bool = False,
        ordered: bool = False,
        max_size: int | None = None,
    ) -> None:
        """Give this channel a policy of its own, whole: what is not named is not limited."""
        row = queues.policy_row(max_concurrency, rate, burst, weight, paused, ordered, max_size)
        self.queue.call(queues.set_policy(self.queue.core, self.queue.name, self.name, row))

    def clear_policy(self) -> bool:
        """Back to the queue's default policy; False if it had none of its own."""
        return self.queue.call(queues.clear_policy(self.queue.core, self.queue.name, self.name))

    def send(self, body: Any, **options: Any) -> Sent:
        """Send to this channel; the options are those of Queue.send()."""
        return self.queue.send(body, channel=self.name, **options)


class Permit:
    """A live worker's registration: while it is extended in time, its leases do not expire."""

    def __init__(self, core: Core, runner: Runner, id: int, ttl: Duration) -> None:
        self.core = core
        self.runner = runner
        self.id = id
        self.ttl = ttl

    def extend(self) -> None:
        """One heartbeat for all leases received with this permit; PermitLost if it was too late."""
        self.runner.run(queues.permit_extend(self.core, self.id, self.ttl))

    def close(self) -> None:
        """End the registration; its leases live on until their own deadlines."""
        self.runner.run(queues.permit_close(self.core, self.id))

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
