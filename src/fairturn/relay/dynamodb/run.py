"""Poll tables until it is stopped: one thread for each, so that no table delays another."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence

from fairturn.core.errors import InvalidArgument
from fairturn.relay.destination import DestinationError
from fairturn.relay.dynamodb.drain import Drained
from fairturn.relay.dynamodb.items import HORIZON

log = logging.getLogger("fairturn.relay")

EVERY = 300.0  # seconds between two polls, as in the gem
MARGIN = 60.0  # seconds of the horizon that are left for the poll itself
NAP = 0.5  # seconds after which a signal is noticed, at most
LONGEST = 60.0  # seconds between two tries after failures, at most


def check_period(every: float) -> float:
    """Check the seconds between two polls: beyond the horizon, messages would be late."""
    if not 1 <= every <= HORIZON - MARGIN:
        raise InvalidArgument(
            f"every={every:g} must be between 1 and {HORIZON - MARGIN:g} seconds: SQS keeps a "
            f"message for {HORIZON} s at most, so a poll must find every message that becomes due "
            "before the next one"
        )
    return every


class Rounds:
    """``poll`` polls one table. ``next_at`` returns the first due time after what the poll found,
    for tables whose messages cannot be sent early. ``tables`` returns the names of the tables, and
    is called again and again."""

    def __init__(
        self,
        poll: Callable[[str, threading.Event], Drained],
        next_at: Callable[[str, float], float | None],
        tables: Callable[[], Sequence[str]],
        every: float,
        stop: threading.Event,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._poll = poll
        self._next_at = next_at
        self._tables = tables
        self._every = check_period(every)
        self._stop = stop
        self._clock = clock
        self._wanted: frozenset[str] = frozenset()
        self._threads: dict[str, threading.Thread] = {}
        self._broken: list[BaseException] = []

    def run(self) -> None:
        try:
            failures = 0
            while not self._stop.is_set():
                failures = 0 if self._find_tables() else failures + 1
                self._sleep(self._pause(failures) if failures else self._every)
        finally:
            self._stop.set()
            for thread in self._threads.values():
                thread.join()
        if self._broken:
            raise self._broken[0]

    def _sleep(self, seconds: float) -> None:
        """Sleep in short naps: another thread may receive a signal, but Python runs the handler in
        the main thread, which must be awake."""
        until = time.monotonic() + seconds
        while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
            self._stop.wait(min(left, NAP))

    def _find_tables(self) -> bool:
        """Find the tables and start a thread for each new one. False: it failed."""
        try:
            self._wanted = frozenset(self._tables())
        except DestinationError as error:
            log.warning("%s", str(error))  # not the error, which would keep connections alive
            return False
        if not self._wanted:
            log.warning(
                "no DynamoDB table here has the layout of shoryuken-waiter. Create one: fairturn "
                "relay dynamodb create-table QUEUE; or check the region"
            )
        for queue in self._wanted:
            known = self._threads.get(queue)
            if known is None or not known.is_alive():
                self._threads[queue] = threading.Thread(
                    target=self._work, args=(queue,), name=f"table {queue}"
                )
                self._threads[queue].start()
        return True

    def _work(self, queue: str) -> None:
        try:
            failures = 0
            while queue in self._wanted and not self._stop.is_set():
                pause = self._round(queue)
                failures = failures + 1 if pause is None else 0
                self._stop.wait(self._pause(failures) if pause is None else pause)
        except BaseException as error:  # a mistake in this program: `run` raises it
            self._broken.append(error)
            self._stop.set()

    def _round(self, queue: str) -> float | None:
        """Poll once. It returns the seconds until the next poll; None: this one failed."""
        began = self._clock()
        try:
            drained = self._poll(queue, self._stop)
            due = self._next_at(queue, drained.before)
        except DestinationError as error:
            log.warning("%s", str(error), extra={"queue": queue})
            return None
        _tell(queue, drained)
        if drained.trouble is not None:
            return None
        now = self._clock()
        times = [at for at in (due, drained.again_at) if at is not None]
        # From the beginning of this poll: after a long one, the next must not be late.
        rest = min(max(began + self._every - now, 0.0), self._every)
        return min([rest, *(max(at - now, 0.0) + 0.05 for at in times)])

    def _pause(self, failures: int) -> float:
        longest = min(self._every, LONGEST, 2.0 ** min(failures - 1, 10))
        return longest * random.uniform(0.5, 1.0)  # so that not all try at the same time


def _tell(queue: str, drained: Drained) -> None:
    for reason in drained.reasons[:10]:
        log.error("queue %r: %s", queue, reason, extra={"queue": queue})
    if drained.trouble is not None:
        log.warning("queue %r: %s; trying again", queue, drained.trouble, extra={"queue": queue})
    if drained.sent or drained.failed or drained.rescheduled:
        log.info(
            "queue %r: %d handed over, %d failed, %d rescheduled meanwhile",
            *(queue, drained.sent, drained.failed, drained.rescheduled),
            extra={"queue": queue},
        )
