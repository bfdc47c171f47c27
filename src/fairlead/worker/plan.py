"""What a worker should do next: decisions only. No clock, no I/O, no threads.

The runtime tells the plan what happened (``gave``, ``started``, ``finished``, ``woken`` …) and asks
what to do (``claim``, ``pause``). All times are seconds on the caller's monotonic clock.

How much to claim. A slot is a running handler; at most ``concurrency`` of them. Messages that wait
in the worker for a slot are *prefetched*: they hide the database's round trip, but while they wait
nobody else can have them. So there are only as many as the slots will use up in ``HORIZON``
seconds, or while a receive takes: by Little's law slots / (mean time of a handler) start per
second. No-op handlers get hundreds, handlers of a second get none. What has waited for ``STALE``
seconds all the same, because the handlers suddenly take long, is given back.

Which queue. Each queue counts what it was given, divided by its weight, and the one that is
furthest behind is asked first. A queue that had nothing is left alone until something wakes it, its
``retry_after`` is over, or we have acks for it, which the next receive carries. If it had less than
was asked for, only our own acks make room in its limited channels: for a moment it is asked for as
many as they are, so that it need not look at every closed channel to find no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field

from fairlead import limits
from fairlead.errors import InvalidArgument
from fairlead.polling import Pace
from fairlead.worker.reserve import Reserve

HORIZON = (0.02, 0.05)  # seconds of work to hold ready: at least, at most
STALE = 0.5  # seconds after which prefetched messages go back
SHY = 5.0  # seconds without prefetching after that
SMOOTH = 0.05  # how much one run counts in the mean time of a handler
SCARCE = 0.1  # seconds for which a queue that had too little is asked for no more than we ack
TROUBLE = (0.05, 1.0)  # pauses while the database cannot be reached


@dataclass(frozen=True, slots=True)
class Claim:
    """Ask this queue for up to ``n`` messages."""

    queue: str
    n: int
    min_priority: int | None = None


@dataclass(slots=True)
class QueueState:
    weight: int
    served: float = 0.0  # messages given, divided by the weight
    asleep: bool = False  # it had nothing …
    until: float = 0.0  # … and is asked again at this time, though nothing woke it
    floor: int | None = None  # … of this priority or above; below there may be something
    scarce_until: float = 0.0  # it had less than was asked for
    pace: Pace = field(default_factory=Pace)


class Plan:
    """See the module's text."""

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
        if reserve is not None and reserve.most > concurrency:
            raise InvalidArgument(
                f"reserve allows {reserve.most} at once, concurrency only {concurrency}"
            )
        self.concurrency = concurrency
        self.queues = {name: QueueState(weight) for name, weight in queues.items()}
        self.running = 0  # handlers that hold a slot
        self.buffered = 0  # prefetched messages
        self.stopping = False
        self._prefetch = prefetch
        self._reserve = reserve
        self._mean: float | None = None  # seconds of a handler
        self._trip = 0.0  # seconds of a receive that gave something
        self._shy_until = 0.0
        self._trouble = 0.0  # seconds of the next pause, 0: none
        self._trouble_until = 0.0
        self._blind = False  # our heartbeat fails

    # --- what happened -------------------------------------------------------------------------
    def gave(
        self,
        claim: Claim,
        given: int,
        retry_after: float | None,
        listening: bool,
        now: float,
        took: float = 0.0,
    ) -> None:
        """A receive answered. ``listening``: something will wake us when there is more."""
        self._trouble = 0.0
        if given:
            self._trip += (took - self._trip) / 4
        state = self.queues[claim.queue]
        self.buffered += given
        if given:
            self._catch_up(state)
            state.served += given / state.weight
            state.pace = Pace()
        state.asleep = given < claim.n
        state.floor = claim.min_priority
        if state.asleep:
            state.scarce_until = now + SCARCE if given else 0.0
            pause = state.pace.next(listening)
            if retry_after is not None and not given:
                pause = min(pause, retry_after)
            state.until = now + pause

    def woken(self, queue: str) -> None:
        """Something happened in the queue."""
        state = self.queues[queue]
        if state.asleep:
            self._catch_up(state)
            state.asleep = False
            state.pace = Pace()

    def _catch_up(self, state: QueueState) -> None:
        """A queue that slept does not get back the turns it had nothing for."""
        if state.asleep:
            others = (s.served for s in self.queues.values() if not s.asleep)
            state.served = max(state.served, min(others, default=0.0))

    def started(self) -> None:
        self.buffered -= 1
        self.running += 1

    def finished(self, seconds: float) -> None:
        self.running -= 1
        if self._mean is None:
            self._mean = seconds
        else:
            self._mean += (seconds - self._mean) * SMOOTH

    def be_shy(self, now: float) -> None:
        """Prefetched messages had to go back: have none for a while."""
        self._shy_until = now + SHY

    def trouble(self, now: float) -> float:
        """The database could not be asked; the seconds for which we leave it alone."""
        self._trouble = min(max(self._trouble * 2, TROUBLE[0]), TROUBLE[1])
        self._trouble_until = now + self._trouble
        return self._trouble

    @property
    def troubled(self) -> bool:
        """Has the database not answered since?"""
        return self._trouble > 0

    def in_trouble(self, now: float) -> bool:
        """Is the database left alone for a moment?"""
        return now < self._trouble_until

    def heartbeat(self, alive: bool) -> None:
        """Claim nothing while our own heartbeat fails."""
        self._blind = not alive

    def stop(self) -> None:
        self.stopping = True

    # --- what to do ----------------------------------------------------------------------------
    def may_start(self) -> bool:
        return self.running < self.concurrency

    def prefetch(self, now: float) -> int:
        """How many messages may wait here for a slot."""
        if self._mean is None or self._reserve is not None or now < self._shy_until:
            return 0
        if self._mean <= 0:
            return self._prefetch
        horizon = min(max(HORIZON[0], self._trip), HORIZON[1])
        return min(self._prefetch, int(self.concurrency * horizon / self._mean))

    def room(self, now: float) -> tuple[int, int | None]:
        """(how many more messages the worker should hold, of which priority at least)."""
        held = self.running + self.buffered
        if self._reserve is not None:
            return self._reserve.check(held)
        ahead = self.prefetch(now)
        free = self.concurrency + ahead - held
        # With enough in hand wait until half of it is used up: fewer, larger claims.
        if self.buffered > ahead // 2 and self.running >= self.concurrency:
            return 0, None
        return max(0, free), None

    def claim(self, now: float, acks: Mapping[str, Sized]) -> Claim | None:
        """Which queue to ask now, and for how many; ``acks``: queues with acks to carry."""
        if self.stopping or self._blind or now < self._trouble_until:
            return None
        n, min_priority = self.room(now)
        if n < 1:
            return None
        ready = [
            (state.served, name)
            for name, state in self.queues.items()
            if not state.asleep
            or now >= state.until
            or acks.get(name)
            or (state.floor is not None and (min_priority is None or min_priority < state.floor))
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
        """Seconds until ``claim`` may answer otherwise though nothing happened; None: never."""
        if self.stopping:
            return None
        if now < self._trouble_until:
            return self._trouble_until - now
        if self._blind or self.room(now)[0] < 1:
            return None
        times = [state.until - now for state in self.queues.values() if state.asleep]
        return max(0.0, min(times)) if times else None
