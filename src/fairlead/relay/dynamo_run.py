"""Poll tables until somebody says stop: a thread for each, so that none waits for another."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence

from fairlead.errors import InvalidArgument
from fairlead.relay.destination import DestinationError
from fairlead.relay.dynamo_drain import Drained
from fairlead.relay.dynamo_items import HORIZON

log = logging.getLogger("fairlead.relay")

EVERY = 300.0  # seconds, as the gem's
MARGIN = 60.0  # of the horizon, for a poll to get through
NAP = 0.5  # seconds that a signal may go unheard
LONGEST = 60.0  # seconds between two tries where something fails


def check_period(every: float) -> float:
    """Polls must be closer to each other than the horizon is wide, or messages are late."""
    if not 1 <= every <= HORIZON - MARGIN:
        raise InvalidArgument(
            f"every={every:g} must be between 1 and {HORIZON - MARGIN:g} seconds: SQS keeps a "
            f"message for {HORIZON} s at most, so whatever becomes due between two polls must be "
            "found by the first of them"
        )
    return every


class Rounds:
    """``poll`` does one round of a table; ``next_at`` says when its first message is due that the
    round did not look at, for tables whose messages cannot be sent before; ``tables`` says
    which there are, time and again."""

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
                failures = 0 if self._look() else failures + 1
                self._sleep(self._pause(failures) if failures else self._every)
        finally:
            self._stop.set()
            for thread in self._threads.values():
                thread.join()
        if self._broken:
            raise self._broken[0]

    def _sleep(self, seconds: float) -> None:
        """In naps: a signal can reach the process in another thread, and Python's handler of it
        runs in the main thread, when that is awake."""
        until = time.monotonic() + seconds
        while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
            self._stop.wait(min(left, NAP))

    def _look(self) -> bool:
        """Which tables are there now?"""
        try:
            self._wanted = frozenset(self._tables())
        except DestinationError as error:
            log.warning("%s", str(error))  # the text: a log that is kept would keep connections
            return False
        if not self._wanted:
            log.warning(
                "no DynamoDB table here has the layout of shoryuken-waiter. Create one: fairlead "
                "relay dynamodb create-table QUEUE; or look at the region"
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
        except BaseException as error:  # a mistake of ours: it is raised where `run` was called
            self._broken.append(error)
            self._stop.set()

    def _round(self, queue: str) -> float | None:
        """Seconds until the next; None if this one failed."""
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
        # From its beginning, or a long poll would make late what only the next one finds.
        rest = min(max(began + self._every - now, 0.0), self._every)
        return min([rest, *(max(at - now, 0.0) + 0.05 for at in times)])

    def _pause(self, failures: int) -> float:
        longest = min(self._every, LONGEST, 2.0 ** min(failures - 1, 10))
        return longest * random.uniform(0.5, 1.0)  # not all at once


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
