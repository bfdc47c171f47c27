"""Clients on several nodes of a cluster at once: threads, each with its own Database."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import fairturn
from fairturn import Database

Work = Callable[[Database, int], object]


class Crew:
    """Runs ``work(db, number)`` in a thread for each URL and collects the errors."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = urls
        self.errors: Counter[str] = Counter()
        self.stopping = threading.Event()
        self._lock = threading.Lock()

    def run(self, work: Work) -> None:
        """Returns when all have ended. If one fails, ``stopping`` tells the others."""
        barrier = threading.Barrier(len(self.urls))

        def body(number: int) -> None:
            try:
                with fairturn.connect(self.urls[number]) as db:
                    barrier.wait()
                    work(db, number)
            except BaseException as error:
                self.note(error)
                self.stopping.set()

        threads = [
            threading.Thread(target=body, args=(number,), name=f"client-{number}")
            for number in range(len(self.urls))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def note(self, error: BaseException) -> None:
        with self._lock:
            self.errors[f"{type(error).__name__}: {str(error)[:150]}"] += 1


class Held:
    """Counts what is in the hands of clients right now. A client has a message between its receive
    and its ack, so it is leased during this time: more than the limit here is more than the limit
    in the database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.deliveries: list[tuple[str, int, int]] = []  # channel, id, delivery, as they came
        self.order: dict[str, list[Any]] = {}

    def take(self, where: str, message: fairturn.Message) -> None:
        with self._lock:
            self._held[where] += 1
            self.most[where] = max(self.most[where], self._held[where])
            self.deliveries.append((message.channel, message.id, message.deliveries))
            self.order.setdefault(message.channel, []).append(message.body)

    def give(self, where: str) -> None:
        with self._lock:
            self._held[where] -= 1
