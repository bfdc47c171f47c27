# Generated from aio/queue.py by `make generate`: edit that file.
"""The handle of a queue, and those of its channels."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairturn.backends.verbs import ACK, RELEASE
from fairturn.core import check
from fairturn.core.errors import DatabaseUnavailable
from fairturn.core.message import Message
from fairturn.core.sends import OnConflict, Send, Sent
from fairturn.core.settings import Backoff, ChannelStats, Policy, Settings
from fairturn.core.values import (
    Acked,
    Duration,
    Explanation,
    Failure,
    Moment,
    Outcome,
    State,
    Stats,
)
from fairturn.execution.polling import Poll
from fairturn.execution.sync.runner import Runner
from fairturn.operations import (
    lease_handle,
    messages,
    permits,
    queues,
    receives,
    remembered,
    sends,
)
from fairturn.operations.call import Core
from fairturn.operations.insight import explanation, queries, waits
from fairturn.operations.receives import KEEP
from fairturn.sync.leased import LeasedMessage


class Messages(list[LeasedMessage]):
    """The messages of a receive. If it is empty, try again after ``retry_after`` seconds (None: no
    message is known that will become ready)."""

    retry_after: float | None = 0.0
    lost: Sequence[Message] = ()  # messages of ``ack=`` whose lease was lost


class Queue:
    """A handle on a queue. Making one does no I/O, and there may be any number of them."""

    def __init__(self, core: Core, runner: Runner, name: str) -> None:
        self._core = core
        self._runner = runner
        self.name = check.name(name, "queue")

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
        result_retention: Duration | None = None,
        dead_retention: Duration | None = None,
        failure_retention: Duration | None = None,
        dead_letter: str | None = None,
        policy: Policy | None = None,
        max_body: int | None = None,
        expires: Duration | None = None,
        events: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> bool:
        """Create the queue; False if it exists already (its settings are not changed)."""
        return self._runner.run(
            queues.create(
                self._core,
                self.name,
                lease=lease,
                max_attempts=max_attempts,
                backoff=backoff,
                retention=retention,
                result_retention=result_retention,
                dead_retention=dead_retention,
                failure_retention=failure_retention,
                dead_letter=dead_letter,
                policy=policy,
                max_body=max_body,
                expires=expires,
                events=events,
                meta=meta,
            )
        )

    def set(self, **settings: Any) -> None:
        """Change the given settings of an existing queue; the names are those of create()."""
        self._runner.run(queues.set_(self._core, self.name, **settings))

    def settings(self) -> Settings:
        """Return the current settings of the queue."""
        return self._runner.run(queues.settings(self._core, self.name))

    def set_limit(
        self, *, max_concurrency: int | None = None, rate: str | None = None, burst: int = 1
    ) -> None:
        """Limit the queue over all its channels; without arguments remove the limit."""
        limit = {"max_concurrency": max_concurrency, "rate": rate, "burst": burst}
        self._runner.run(queues.set_limit(self._core, self.name, **limit))

    def pause(self) -> None:
        """Deliver no more messages until resume(); existing leases continue."""
        self._runner.run(queues.set_(self._core, self.name, paused=True))

    def resume(self) -> None:
        """End pause()."""
        self._runner.run(queues.set_(self._core, self.name, paused=False))

    def purge(self, *, reset: bool = False) -> None:
        """Remove all messages immediately, leased ones too. ``reset``: also set the totals to 0
        and clear the failure log."""
        self._runner.run(queues.purge(self._core, self.name, reset))

    def drop(self) -> bool:
        """Remove the queue and everything in it; False if there was none."""
        return self._runner.run(queues.drop(self._core, self.name))

    # --- channels ----------------------------------------------------------------------------
    def channel(self, name: str) -> Channel:
        """Return a handle on one channel; no I/O."""
        return Channel(self, name)

    def channels(self, limit: int = 1000) -> list[ChannelStats]:
        """Return the channels with unfinished messages or a policy of their own, by name."""
        return self._runner.run(queues.channels(self._core, self.name, limit))

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

        ``debounce``, with a key and ``on_conflict="replace"``: each send puts the message off by so
        many seconds, but no further than ``max_wait`` after the first send. ``once``: a name under
        which no other message is sent for ``once_for`` seconds, even if this one is finished."""
        message = Send(
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
        [sent] = self._runner.run(sends.send(self._core, self.name, [sends.encode(message)]))
        return sent

    def send_many(self, messages: Iterable[Any]) -> list[Sent]:
        """Send many messages (``Send`` objects, or bodies), all or none; return ids in order."""
        rows = sends.encode_many(messages)
        return self._runner.run(sends.send(self._core, self.name, rows, "send_many"))

    # --- remembering -------------------------------------------------------------------------
    def remember(self, name: str, value: Any, *, keep: Duration) -> None:
        """Store a small JSON value under a name for ``keep`` seconds, replacing an earlier one."""
        self._runner.run(remembered.remember(self._core, self.name, name, value, keep))

    def recall(self, name: str) -> Any:
        """Return the value stored under a name, or None."""
        return self._runner.run(remembered.recall(self._core, self.name, name))

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
        """Lease up to ``n`` messages, the channels in turn; wait up to ``wait`` seconds for the
        first. ``ack``: messages that are acked in the same call; the result's ``.lost`` has those
        whose lease was lost."""
        carried, *others = receives.leases_of(ack) or [()]
        args = receives.receive_args(
            n,
            lease,
            version,
            types,
            min_priority,
            max_bytes,
            permit and permit.id,
            () if others else carried,
        )
        poll = Poll(args, check.microseconds(wait, "wait"))
        # Two leases of one message, of which one is lost, do not fit into one statement.
        lost = (self.ack(ack)).lost if others else None
        grouped = receives.grouped(ack)
        ticket = None
        try:
            while True:
                try:
                    received = self._runner.run(
                        receives.receive(
                            self._core, self.name, poll.args, self._runner.own, grouped
                        )
                    )
                    pause = poll.after(received, ticket is not None and ticket.live)
                    if pause is None:
                        break
                    if ticket is None:
                        ticket = self._core.waker.ticket(self.name)
                        if ticket.live:
                            continue  # one may have come before the subscription: query again
                    ticket.wait(pause)
                except DatabaseUnavailable as error:
                    if self._core.closed or not self._runner.own:
                        raise
                    time.sleep(poll.outage(error))
        finally:
            if ticket is not None:
                ticket.leave()
        messages = Messages([LeasedMessage(self, row) for row in received.rows])
        messages.retry_after = poll.retry_after
        messages.lost = receives.lost_of(ack, poll.lost) if lost is None else lost
        return messages

    def lease(self, id: int, token: int) -> LeasedMessage:
        """Return a delivery that is known only by ``message.id`` and ``message.token``, for its
        verbs: from a receipt, or from another process. No I/O: the verb raises LeaseLost if the
        lease is lost."""
        return LeasedMessage(self, lease_handle.lease_row(id, token))

    # --- the verbs on batches ----------------------------------------------------------------
    def ack(self, messages: Sequence[Message]) -> Acked:
        """Ack a batch in one statement; lost leases are reported, not raised."""
        return self._runner.run(receives.many(self._core, self.name, ACK, messages))

    def complete(self, messages: Sequence[Message], result: Any = None) -> Acked:
        """Complete a batch, all with the same result."""
        verb = receives.complete(result)
        return self._runner.run(receives.many(self._core, self.name, verb, messages))

    def defer(
        self,
        messages: Sequence[Message],
        delay: Duration | None = None,
        *,
        at: Moment | None = None,
        memo: Any = KEEP,
    ) -> Acked:
        """Defer a batch."""
        verb = receives.defer(delay, at, memo)
        return self._runner.run(receives.many(self._core, self.name, verb, messages))

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
        verb = receives.fail(error, delay, details, reference)
        return self._runner.run(receives.many(self._core, self.name, verb, messages))

    def kill(
        self,
        messages: Sequence[Message],
        error: Any = "killed",
        *,
        details: Any = None,
        reference: str | None = None,
    ) -> Acked:
        """Kill a batch, all with the same error."""
        verb = receives.kill(error, details, reference)
        return self._runner.run(receives.many(self._core, self.name, verb, messages))

    def extend(
        self, messages: Sequence[Message], lease: Duration | None = None, *, exact: bool = False
    ) -> Acked:
        """Extend the leases of a batch."""
        verb = receives.extend(lease, exact)
        return self._runner.run(receives.many(self._core, self.name, verb, messages))

    def release(self, messages: Sequence[Message]) -> Acked:
        """Release a batch."""
        return self._runner.run(receives.many(self._core, self.name, RELEASE, messages))

    # --- waiting and finished messages ---------------------------------------------------------
    def cancel(self, *, id: int | None = None, key: str | None = None, force: bool = False) -> bool:
        """Remove a waiting message; False if there is none. If it is leased, raise MessageLeased.
        ``force``: remove a message in any state."""
        return self._runner.run(messages.cancel(self._core, self.name, id, key, force))

    def reschedule(
        self,
        *,
        id: int | None = None,
        key: str | None = None,
        at: Moment | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
    ) -> bool:
        """Change the due time or priority of a waiting message; False if none is waiting."""
        return self._runner.run(
            messages.reschedule(self._core, self.name, id, key, at, delay, priority)
        )

    def promote(self, within: Duration, *, limit: int = 1000) -> int:
        """Make scheduled messages ready that are due within so many seconds, the earliest first;
        their due times stay. Return how many."""
        return self._runner.run(messages.promote(self._core, self.name, within, limit))

    def redrive(
        self, *, limit: int | None = None, to: str | None = None, delay: Duration = 0
    ) -> int:
        """Give dead messages fresh attempts, here or in queue ``to``; return how many."""
        return self._runner.run(messages.redrive(self._core, self.name, limit, to, delay))

    def move(self, to: str | None = None, *, limit: int = 1000) -> int:
        """Move ready messages, oldest first, to queue ``to``, as new messages there. Without
        ``to``: each to the queue where it died. Return how many: fewer than ``limit`` if no more
        are ready."""
        return self._runner.run(messages.move(self._core, self.name, to, limit))

    def discard(self, *, state: str = "dead", limit: int | None = None) -> int:
        """Delete dead (or done) messages, oldest first; return how many."""
        return self._runner.run(messages.discard(self._core, self.name, state, limit))

    # --- insight -----------------------------------------------------------------------------
    def get(self, *, id: int | None = None, key: str | None = None) -> Message | None:
        """Return a message in any state, or None."""
        return self._runner.run(queries.get(self._core, self.name, id, key))

    def peek(
        self, n: int = 20, *, state: State | None = None, channel: str | None = None, after: int = 0
    ) -> list[Message]:
        """Return messages by id, without a lease; ``after``: the last id of the page before."""
        return self._runner.run(queries.peek(self._core, self.name, n, state, channel, after))

    def stats(self) -> Stats:
        """Return exact counts and totals."""
        return self._runner.run(queries.queue_stats(self._core, self.name))

    def explain(self, id: int | None = None, *, key: str | None = None) -> Explanation:
        """Explain in words why a message is not running."""
        return self._runner.run(explanation.explain(self._core, self.name, id, key))

    def failures(
        self, n: int = 20, *, id: int | None = None, key: str | None = None
    ) -> list[Failure]:
        """Return the failure log, newest first."""
        return self._runner.run(queries.failures(self._core, self.name, id, key, n))

    def wait(
        self,
        *,
        id: int | None = None,
        key: str | None = None,
        timeout: Duration | None = None,
        partial: bool | float | None = False,
    ) -> Outcome:
        """Wait until a message is finished: done with its result, dead with its error, or gone.
        ``partial``: or until its progress changes, or exceeds the given number. Raise WaitTimeout
        after ``timeout`` seconds."""
        wait = waits.Wait.of(self.name, id, key, timeout, partial, self._runner.own)
        return self._core.hub.wait(wait)

    # --- your transaction ----------------------------------------------------------------------
    def using(self, connection: Any) -> Queue:
        """Return the same queue on your connection, in your transaction: Fairturn does not begin,
        commit or retry there."""
        return Queue(self._core, self._runner.using(connection), self.name)


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
        """Give this channel a policy of its own. It is complete: what is not given has no limit."""
        policy = Policy(max_concurrency, rate, burst, weight, paused, ordered, max_size)
        self.queue._runner.run(
            queues.set_policy(self.queue._core, self.queue.name, self.name, policy)
        )

    def clear_policy(self) -> bool:
        """Return to the queue's default policy; False if the channel had no policy of its own."""
        return self.queue._runner.run(
            queues.clear_policy(self.queue._core, self.queue.name, self.name)
        )

    def send(self, body: Any, **options: Any) -> Sent:
        """Send to this channel; the options are those of Queue.send()."""
        return self.queue.send(body, channel=self.name, **options)


class Permit:
    """The registration of a live worker. While it is extended in time, its leases do not expire."""

    def __init__(self, core: Core, runner: Runner, id: int, ttl: Duration) -> None:
        self._core = core
        self._runner = runner
        self.id = id
        self.ttl = ttl

    def extend(self) -> None:
        """Extend all leases that were received with this permit; PermitLost if it has expired."""
        self._runner.run(permits.extend(self._core, self.id, self.ttl))

    def close(self) -> None:
        """End the registration; its leases end at their own deadlines."""
        self._runner.run(permits.close(self._core, self.id))

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
