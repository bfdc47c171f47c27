"""Decides what a worker does next. No clock, no I/O, no threads.

The runtime reports events to the plan (``received``, ``started``, ``finished``, ``woken`` …) and
asks for decisions (``claim``, ``pause``). All times are seconds on the caller's monotonic clock.

How much to claim. A slot is a running handler; there are at most ``concurrency`` slots. A message
that waits in the worker for a slot is *prefetched*. Prefetched messages hide the round trip to the
database, but no other worker can take them. So the plan prefetches only as many as the slots use in
``HORIZON`` seconds, or during one receive: by Little's law slots / (mean duration of a handler)
start per second. Handlers that do nothing get hundreds, handlers of a second get none. When
handlers suddenly take longer and no prefetched message starts for ``STALE`` seconds, the prefetched
messages are released.

Which queue. Each queue counts the messages received from it, divided by its weight; the queue with
the lowest count is asked first. A queue that returned fewer messages than asked for is idle. It is
asked again when a notification comes, when its pause is over, or when there are acks for it, since
the next receive carries them. In limited channels, mostly our own acks make room. So for ``SCARCE``
seconds after a partly filled receive, a receive with acks asks for at most as many messages as it
acks. A larger one would make the database check every full channel in vain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field

from fairturn.core import limits
from fairturn.core.errors import InvalidArgument
from fairturn.execution.polling import Pace
from fairturn.worker.reserve import Reserve

HORIZON = (0.02, 0.05)  # seconds of work to prefetch: at least, at most
STALE = 0.5  # seconds without a start after which prefetched messages are released
NO_PREFETCH = 5.0  # seconds without prefetching after that
SMOOTHING = 0.05  # weight of one run in the mean duration of a handler
SCARCE = 0.1  # seconds after a partly filled receive in which the acks bound the next one
OUTAGE_PAUSES = (0.05, 1.0)  # seconds between attempts in an outage of the database: first, longest


@dataclass(frozen=True, slots=True)
class Claim:
    """Ask this queue for up to ``n`` messages."""

    queue: str
    n: int
    min_priority: int | None = None


@dataclass(slots=True)
class QueueState:
    weight: int
    served: float = 0.0  # messages received from the queue, divided by its weight
    idle: bool = False  # the last receive returned fewer messages than it asked for
    idle_until: float = 0.0  # ask again at this time, also without a notification
    checked_priority: int | None = None  # the last receive asked for this priority or above only
    scarce_until: float = 0.0
    pace: Pace = field(default_factory=Pace)


class Plan:
    """See the module's docstring."""

    def __init__(
        self,
        concurrency: int,
        queues: Mapping[str, int],
        *,
        prefetch: int = 1000,
        reserve: Reserve | None = None,
    ) -> None:
        if concurrency < 1:
            raise InvalidArgument("concurrency must be at least 1")
        if prefetch < 0:
            raise InvalidArgument("prefetch must not be negative")
        for name, weight in queues.items():
            if weight < 1:
                raise InvalidArgument(f"the weight of queue {name!r} must be at least 1")
        if reserve is not None and reserve.max_running > concurrency:
            raise InvalidArgument(
                f"reserve allows {reserve.max_running} running handlers, "
                f"but concurrency is {concurrency}"
            )
        self.concurrency = concurrency
        self.queues = {name: QueueState(weight) for name, weight in queues.items()}
        self.running = 0  # handlers that hold a slot
        self.buffered = 0  # prefetched messages
        self.stopping = False
        self._prefetch = prefetch
        self._reserve = reserve
        self._mean: float | None = None  # mean duration of a handler, in seconds
        self._round_trip = 0.0  # mean duration of a receive that returned messages
        self._no_prefetch_until = 0.0
        self._outage_pause = 0.0  # the last pause in seconds; 0: no outage
        self._outage_until = 0.0
        self._heartbeat_fails = False

    # --- events --------------------------------------------------------------------------------
    def received(
        self,
        claim: Claim,
        count: int,
        retry_after: float | None,
        notified: bool,
        now: float,
        took: float = 0.0,
    ) -> None:
        """A receive returned ``count`` messages. ``notified``: the database notifies us of more."""
        self._outage_pause = 0.0
        if count:
            self._round_trip += (took - self._round_trip) / 4
        state = self.queues[claim.queue]
        self.buffered += count
        if count:
            self._catch_up(state)
            state.served += count / state.weight
            state.pace = Pace()
        state.idle = count < claim.n
        state.checked_priority = claim.min_priority
        if state.idle:
            state.scarce_until = now + SCARCE if count else 0.0
            pause = state.pace.next(notified)
            if retry_after is not None and not count:
                pause = min(pause, retry_after)
            state.idle_until = now + pause

    def woken(self, queue: str) -> None:
        """A notification for the queue has come."""
        state = self.queues[queue]
        if state.idle:
            self._catch_up(state)
            state.idle = False
            state.pace = Pace()

    def _catch_up(self, state: QueueState) -> None:
        """A queue that was idle gets no extra turns afterwards."""
        if state.idle:
            others = (s.served for s in self.queues.values() if not s.idle)
            state.served = max(state.served, min(others, default=0.0))

    def started(self) -> None:
        self.buffered -= 1
        self.running += 1

    def finished(self, seconds: float) -> None:
        self.running -= 1
        if self._mean is None:
            self._mean = seconds
        else:
            self._mean += (seconds - self._mean) * SMOOTHING

    def stop_prefetching(self, now: float) -> None:
        """Prefetched messages had to be released: prefetch none for a while."""
        self._no_prefetch_until = now + NO_PREFETCH

    def database_failed(self, now: float) -> float:
        """The database could not be reached; return the seconds until the next attempt."""
        shortest, longest = OUTAGE_PAUSES
        self._outage_pause = min(max(self._outage_pause * 2, shortest), longest)
        self._outage_until = now + self._outage_pause
        return self._outage_pause

    @property
    def is_outage(self) -> bool:
        """Whether the database has not answered since it failed."""
        return self._outage_pause > 0

    def in_outage_pause(self, now: float) -> bool:
        """Whether to wait before the next attempt to reach the database."""
        return now < self._outage_until

    def heartbeat(self, alive: bool) -> None:
        """Claim nothing while our own heartbeat fails."""
        self._heartbeat_fails = not alive

    def stop(self) -> None:
        self.stopping = True

    # --- decisions -----------------------------------------------------------------------------
    def may_start(self) -> bool:
        return self.running < self.concurrency

    def prefetch(self, now: float) -> int:
        """Return how many messages may wait in the worker for a slot."""
        if self._mean is None or self._reserve is not None or now < self._no_prefetch_until:
            return 0
        if self._mean <= 0:
            return self._prefetch
        shortest, longest = HORIZON
        horizon = min(max(shortest, self._round_trip), longest)
        return min(self._prefetch, int(self.concurrency * horizon / self._mean))

    def room(self, now: float) -> tuple[int, int | None]:
        """Return (how many more messages the worker should hold, their minimum priority)."""
        held = self.running + self.buffered
        if self._reserve is not None:
            return self._reserve.check(held)
        ahead = self.prefetch(now)
        free = self.concurrency + ahead - held
        # Wait until half of the prefetched messages have started: fewer, larger claims.
        if self.buffered > ahead // 2 and self.running >= self.concurrency:
            return 0, None
        return max(0, free), None

    def claim(self, now: float, acks: Mapping[str, Sized]) -> Claim | None:
        """Return which queue to ask now, and for how many; ``acks`` wait for the next receive."""
        if self.stopping or self._heartbeat_fails or now < self._outage_until:
            return None
        n, min_priority = self.room(now)
        if n < 1:
            return None
        ready = [
            (state.served, name)
            for name, state in self.queues.items()
            if not state.idle
            or now >= state.idle_until
            or acks.get(name)
            or (
                state.checked_priority is not None
                and (min_priority is None or min_priority < state.checked_priority)
            )
        ]
        if not ready:
            return None
        _, queue = min(ready)
        if now < self.queues[queue].scarce_until and acks.get(queue):
            n = min(n, len(acks[queue]))
        if len(ready) > 1:
            weights = sum(self.queues[name].weight for _, name in ready)
            n = max(1, math.ceil(n * self.queues[queue].weight / weights))
        return Claim(queue, min(n, limits.RECEIVE_MAX), min_priority)

    def pause(self, now: float) -> float | None:
        """Return the seconds until ``claim`` may give another answer without a new event; None: it
        needs an event."""
        if self.stopping:
            return None
        if now < self._outage_until:
            return self._outage_until - now
        room, _ = self.room(now)
        if self._heartbeat_fails or room < 1:
            return None
        times = [state.idle_until - now for state in self.queues.values() if state.idle]
        return max(0.0, min(times)) if times else None
