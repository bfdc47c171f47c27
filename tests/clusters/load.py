"""What runs while a cluster fails: producers, consumers, a wait, a reader of events, a worker.

Each part is a thread with one Database for its whole life, as in a program that is never restarted.
A call may raise a DatabaseError while there is no leader; then the part calls again. Any other
error, and the end of a thread, fails the test. The worker is a process of its own (tests/faults).
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from pathlib import Path
from typing import Any

import fairturn
from fairturn.core.errors import CursorLost, DatabaseError
from tests.faults.crew import Crew, wait_until

LEASE = 3.0
WAIT = 2.0  # seconds that a receive waits for a message
LISTENERS = 7  # of the parts that wait, and of the worker
# The queues: of the worker, of the sync and of the async consumer, of the schedule, of the wait.
# Nobody receives from the last one before the end: it shows every send that a failover has lost.
TASKS, RAW, OTHER, TICKS, ASKED, KEPT = "plain", "raw", "other", "ticks", "asked", "kept"


class Part:
    """One thread. ``times`` are the moments of its successes, ``errors`` its DatabaseErrors."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self.times: list[float] = []
        self.errors: list[DatabaseError] = []
        self.broken: BaseException | None = None
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join()

    def succeeded(self) -> None:
        self.times.append(time.monotonic())

    def failed(self, error: DatabaseError) -> None:
        """As a careful program does: note it, breathe, go on."""
        self.errors.append(error)
        self.stopping.wait(0.05)

    def after(self, moment: float) -> bool:
        """Has it done its work since then? Raises if it has ended."""
        if self.broken is not None:
            raise AssertionError(f"{self.name} has ended: {self.broken!r}") from self.broken
        return bool(self.times) and self.times[-1] > moment

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.broken = error

    def run(self) -> None:
        with fairturn.connect(self.url) as db:
            while not self.stopping.is_set():
                try:
                    self.step(db)
                except DatabaseError as error:
                    self.failed(error)

    def step(self, db: fairturn.Database) -> None:
        """One round of the loop, for parts that do not have a ``run`` of their own."""
        raise AssertionError(f"{self.name} has neither a step nor a run")


class Sender(Part):
    """Sends numbers. ``sent`` was acknowledged (with its message's id), ``maybe`` was not."""

    def __init__(self, name: str, url: str, queue: str, numbers: Any, type: str) -> None:
        super().__init__(name, url)
        self.queue = queue
        self.type = type
        self.numbers = numbers
        self.sent: dict[int, int] = {}
        self.at: dict[int, float] = {}  # when it was acknowledged
        self.maybe: set[int] = set()

    def step(self, db: fairturn.Database) -> None:
        n = next(self.numbers)
        self.maybe.add(n)
        message = db.queue(self.queue).send({"n": n}, type=self.type, channel=f"c{n % 5}")
        self.note(n, message.id)
        self.stopping.wait(0.02)

    def note(self, n: int, id: int) -> None:
        self.maybe.discard(n)
        self.sent[n] = id
        self.succeeded()
        self.at[n] = self.times[-1]


class AsyncSender(Sender):
    """Through the async door, three at a time."""

    def run(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        async with fairturn.connect_async(self.url) as db:
            while not self.stopping.is_set():
                numbers = list(itertools.islice(self.numbers, 3))
                self.maybe.update(numbers)
                sends = [fairturn.Send({"n": n}, type=self.type) for n in numbers]
                try:
                    done = await db.queue(self.queue).send_many(sends)
                except DatabaseError as error:
                    self.failed(error)
                else:
                    for n, sent in zip(numbers, done, strict=True):
                        self.note(n, sent.id)
                    await asyncio.sleep(0.03)


class Consumer(Part):
    """Receives, notes, acks. ``seen`` has every delivery: the number of its body."""

    def __init__(self, name: str, url: str, queue: str) -> None:
        super().__init__(name, url)
        self.queue = queue
        self.seen: list[int] = []

    def step(self, db: fairturn.Database) -> None:
        for message in db.queue(self.queue).receive(10, wait=WAIT):
            self.take(message)
            message.complete({"n": message.body["n"]})

    def take(self, message: Any) -> None:
        self.succeeded()
        self.seen.append(message.body["n"])

    def run(self) -> None:
        with fairturn.connect(self.url) as db:
            while not self.stopping.is_set():
                try:
                    self.step(db)
                except fairturn.LeaseLost:
                    pass  # another consumer has it now
                except DatabaseError as error:
                    self.failed(error)


class AsyncConsumer(Consumer):
    """The same through the async door."""

    def run(self) -> None:
        asyncio.run(self._receive())

    async def _receive(self) -> None:
        async with fairturn.connect_async(self.url) as db:
            while not self.stopping.is_set():
                try:
                    for message in await db.queue(self.queue).receive(10, wait=WAIT):
                        self.take(message)
                        await message.complete({"n": message.body["n"]})
                except fairturn.LeaseLost:
                    pass
                except DatabaseError as error:
                    self.failed(error)


class Asker(Part):
    """Sends one message and waits for its result, again and again."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(name, url)
        self._numbers = itertools.count()
        self._id: int | None = None
        self._n = -1
        self.gone = 0  # a message that the new primary never had

    def step(self, db: fairturn.Database) -> None:
        queue = db.queue(ASKED)
        if self._id is None:
            self._n = next(self._numbers)
            self._id = queue.send({"n": self._n}).id
        try:
            outcome = queue.wait(id=self._id, timeout=2)
        except fairturn.WaitTimeout:
            return
        self._id = None
        if outcome.state == "gone":
            self.gone += 1
        self.succeeded()
        self.stopping.wait(0.02)  # leave some of the machine to the others


class Reader(Part):
    """Follows the events of a queue with one iterator, which goes on after an error. Only if the
    database was set back, it reads from the beginning again."""

    def __init__(self, name: str, url: str, queue: str) -> None:
        super().__init__(name, url)
        self.queue = queue
        self.ids: set[int] = set()
        self.twice = 0
        self.set_back = 0

    def run(self) -> None:
        with fairturn.connect(self.url) as db:
            events = self._from_the_beginning(db)
            while not self.stopping.is_set():
                try:
                    for event in events:
                        assert event.id is not None
                        self.twice += event.id in self.ids
                        self.ids.add(event.id)
                        self.succeeded()
                except CursorLost:
                    self.set_back += 1
                    events = self._from_the_beginning(db)
                except DatabaseError as error:
                    self.failed(error)

    def _from_the_beginning(self, db: fairturn.Database) -> fairturn.Events:
        return db.events(self.queue, kinds=["created"], after="", timeout=1)


class Load:
    """All parts together. ``front`` is the URL through HAProxy, ``direct`` the one of all hosts."""

    def __init__(self, front: str, direct: str, directory: Path) -> None:
        numbers = itertools.count()
        self.front = front
        self.senders: list[Sender] = [
            Sender("sender", front, TASKS, numbers, "plain"),
            AsyncSender("async sender", direct, RAW, numbers, "raw"),
            Sender("direct sender", direct, OTHER, numbers, "raw"),
            Sender("sender of what is kept", direct, KEPT, numbers, "raw"),
        ]
        self.consumers: list[Consumer] = [
            Consumer("consumer", front, RAW),
            AsyncConsumer("async consumer", front, OTHER),
        ]
        self.kept: list[int] = []
        self.ticks = Consumer("consumer of the schedule", direct, TICKS)
        self.asker = Asker("asker", front)
        self.answerer = Consumer("answerer", direct, ASKED)
        self.reader = Reader("reader of events", front, RAW)
        self.parts: list[Part] = [
            *self.senders,
            *self.consumers,
            self.ticks,
            self.asker,
            self.answerer,
            self.reader,
        ]
        self.crew = Crew(front, directory, {"queues": [TASKS], "concurrency": 4})

    def __enter__(self) -> Load:
        with fairturn.connect(self.front) as db:
            db.migrate()
            for name in (TASKS, OTHER, TICKS, ASKED, KEPT):
                db.queue(name).create(lease=LEASE, max_attempts=0)
            db.queue(RAW).create(lease=LEASE, max_attempts=0, events=True)
            db.schedule("tick").set(TICKS, {"n": 0}, every=1, overlap="allow")
        self.crew.__enter__()
        try:
            self.worker = self.crew.start_ready(1)[0]
            for part in self.parts:
                part.start()
        except BaseException as error:
            self.__exit__(type(error), error)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for part in self.parts:
            part.stopping.set()
        self.crew.__exit__(*error)
        if error[0] is None:
            for part in self.parts:
                part.stop()
            return
        # A part may wait for the answer of a server that gives none, as a primary that waits for
        # its standby. It ends when the cluster is stopped.
        for part in self.parts:
            said = part.errors[-1] if part.errors else None
            print(f"--- {part.name}: {len(part.errors)} errors, the last: {said!r}")

    def working(self, since: float) -> bool:
        """Has every part done its work since then?"""
        assert self.worker.alive(), f"the worker has ended:\n{self.worker.text()}"
        starts = self.worker.starts()
        working = [part.after(since) for part in self.parts]  # asks every one: has it ended?
        return all(working) and bool(starts) and starts[-1].at > since

    def idle(self, since: float) -> list[str]:
        """Who has done nothing since then."""
        names = [part.name for part in self.parts if not part.after(since)]
        starts = self.worker.starts()
        return names if starts and starts[-1].at > since else [*names, "worker"]

    def wait_working(self, since: float, seconds: float = 60) -> None:
        try:
            wait_until(lambda: self.working(since), "all parts work again", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; idle: {self.idle(since)}") from error

    def drain(self) -> None:
        """Stop the senders, and wait until everything that they sent is finished."""
        for sender in [*self.senders, self.asker]:
            sender.stop()
            assert sender.broken is None, sender.broken
        with fairturn.connect(self.front) as db:
            db.schedule("tick").remove()
            while messages := db.queue(KEPT).receive(1000, lease=60):
                self.kept += [message.body["n"] for message in messages]
                db.queue(KEPT).ack(messages)
            stats = db.stats

            def empty() -> bool:
                now = stats()
                return now.ready + now.leased + now.scheduled == 0

            wait_until(empty, "everything is finished", 60)
        last = time.monotonic()
        # One event more: the reader has then read all that came before it.
        with fairturn.connect(self.front) as db:
            db.queue(RAW).send({"n": -1})
        wait_until(lambda: self.reader.after(last), "the events are read", 60)

    # --- what was seen ---

    def deliveries(self) -> list[int]:
        """The number of every delivery, to a consumer or to the worker."""
        found = self.kept + [n for consumer in self.consumers for n in consumer.seen]
        return found + [note.n for note in self.worker.starts()]

    def sent(self) -> set[int]:
        return {n for sender in self.senders for n in sender.sent}

    def lost(self, since: float = 0.0, until: float = math.inf) -> set[int]:
        """Acknowledged between these moments, and never delivered."""
        sent = {n for sender in self.senders for n, at in sender.at.items() if since <= at < until}
        return sent - set(self.deliveries())

    def again(self, since: float = 0.0, until: float = math.inf) -> int:
        """How many deliveries of these moments were of what had been delivered before."""
        moments: list[tuple[float, int]] = [(note.at, note.n) for note in self.worker.starts()]
        for consumer in self.consumers:
            moments += zip(consumer.times, consumer.seen, strict=True)
        seen: set[int] = set()
        count = 0
        for at, n in sorted(moments):
            count += n in seen and since <= at < until
            seen.add(n)
        return count

    def unread(self) -> set[int]:
        """Acknowledged sends to the queue with events whose event was never read."""
        return set(self.senders[1].sent.values()) - self.reader.ids

    def skipped(self) -> set[int]:
        """Sends that were not lost, and whose event was never read."""
        sent = self.senders[1].sent.items()
        return {n for n, id in sent if id not in self.reader.ids} - self.lost()

    def unexpected(self) -> set[int]:
        """Delivered, and never sent."""
        maybe = {n for sender in self.senders for n in sender.maybe}
        return set(self.deliveries()) - self.sent() - maybe - {-1}

    def pauses(self, since: float, until: float) -> tuple[float, float]:
        """The longest pauses of sends and of receives between these moments."""
        sends = [part.times for part in self.senders]
        receives = [part.times for part in self.consumers]
        receives.append([note.at for note in self.worker.starts()])
        return longest(sends, since, until), longest(receives, since, until)


def longest(series: list[list[float]], since: float, until: float) -> float:
    """The longest pause in any of the series, between two moments."""
    return max(_longest(times, since, until) for times in series)


def _longest(times: list[float], since: float, until: float) -> float:
    inside = [since, *(moment for moment in times if since < moment < until), until]
    return max(later - earlier for earlier, later in itertools.pairwise(inside))
