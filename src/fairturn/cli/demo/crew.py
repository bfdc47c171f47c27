"""The threads of the demo: workers, one of which crashes, and the quiet tenants' senders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fairturn.cli.demo.measure import Measured
from fairturn.cli.demo.story import BROKEN, CRASH, ERROR, LIMITED, QUEUE, QUIET
from fairturn.sync.database import Database
from fairturn.sync.leased import LeasedMessage


class Crew:
    """Starts and stops the threads, and passes on the first error in one of them."""

    def __init__(self, db: Database, measured: Measured) -> None:
        self.db = db
        self.plan = measured.plan
        self.measured = measured
        self.stopping = threading.Event()
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        for number in range(1, self.plan.workers + 1):
            self._run(self._worker, number)
        self._run(self._senders)

    def _run(self, target: Callable[..., None], *arguments: int) -> None:
        def guarded() -> None:
            try:
                target(*arguments)
            except BaseException as error:
                self.measured.failure = error
                self.stopping.set()

        thread = threading.Thread(target=guarded, daemon=True)
        self.threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Wait until each thread has finished its messages."""
        self.stopping.set()
        for thread in list(self.threads):
            thread.join()
        if self.measured.failure is not None:
            raise self.measured.failure

    # --- senders ---------------------------------------------------------------------------------
    def _senders(self) -> None:
        """Send a message of each quiet tenant in turn; one of them makes its worker crash."""
        queue, plan, measured = self.db.queue(QUEUE), self.plan, self.measured
        crash_sent = False
        turn = 0
        while not self.stopping.wait(plan.pause / len(QUIET)):
            passed = time.monotonic() - measured.started
            if passed > plan.sending and crash_sent:
                return
            tenant = QUIET[turn % len(QUIET)]
            turn += 1
            if passed > plan.crash_at and not crash_sent:
                crash_sent = True
                queue.send({"crash": True}, channel=tenant, key=CRASH)
            else:
                queue.send({"hello": turn}, channel=tenant)
            measured.sent(tenant)

    # --- workers ---------------------------------------------------------------------------------
    def _worker(self, number: int) -> None:
        queue = self.db.queue(QUEUE)
        finished: list[LeasedMessage] = []
        while not self.stopping.is_set():
            # One call acks the last batch and leases the next one.
            messages = queue.receive(self.plan.batch, ack=finished, wait=0.05)
            now = time.monotonic()
            for message in messages:
                self.measured.given(message, now)
            if any(message.key == CRASH and message.deliveries == 1 for message in messages):
                self._crash(number, messages)
                return
            finished = [message for message in messages if self._work(message)]
            for message in finished:
                self.measured.returned(message.channel, done=True)
        queue.ack(finished)

    def _work(self, message: LeasedMessage) -> bool:
        """Work on one message; return True if it succeeds."""
        time.sleep(self.plan.limited_work if message.channel == LIMITED else self.plan.work)
        if message.key != BROKEN:
            return True
        self.measured.returned(message.channel, done=False)
        message.fail(ERROR)
        attempt = f"attempt {message.attempts} of {self.plan.max_attempts}"
        self.measured.event(time.monotonic(), f"message {message.id} failed, {attempt}")
        return False

    def _crash(self, number: int, messages: list[LeasedMessage]) -> None:
        """End this worker without finishing its messages, and start another one."""
        now = time.monotonic()
        self.measured.event(now, f"worker {number} crashed and forgot {len(messages)} leases")
        for message in messages:
            self.measured.returned(message.channel, done=False)
            with self.measured.lock:
                self.measured.crashed[message.id] = now
        self._run(self._worker, number)
