"""An upgrade while clients of the version before run: migrate first, then restart one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairturn
from fairturn import doctor
from fairturn.backends.schema import GENERATION
from tests.schema import next_version
from tests.schema.installation import Installation
from tests.server_process import wait_until


class Traffic:
    """A client of the present version that sends, receives and acks without a pause."""

    def __init__(self, url: str) -> None:
        self.errors: list[BaseException] = []
        self.sent: set[int] = set()
        self.got: list[int] = []
        self._done = threading.Event()
        self._db = fairturn.connect(url, pool_size=4)
        self._queue = self._db.queue("rolling")
        self._threads = [
            threading.Thread(target=self._guard, args=(work,))
            for work in (self._send, self._send_many, self._receive, self._receive_with_acks)
        ]
        self._numbers = iter(range(1_000_000))
        self._lock = threading.Lock()

    def _guard(self, work: object) -> None:
        try:
            while not self._done.is_set():
                work()  # type: ignore
        except BaseException as error:
            self.errors.append(error)

    def _next(self, n: int) -> list[int]:
        with self._lock:
            return [next(self._numbers) for _ in range(n)]

    def _send(self) -> None:
        [number] = self._next(1)
        self._queue.send(number, channel=f"c{number % 5}")
        self.sent.add(number)

    def _send_many(self) -> None:
        numbers = self._next(5)
        sends = [fairturn.Send(n, channel=f"c{n % 5}", key=f"k{n}") for n in numbers]
        self._queue.send_many(sends)
        self.sent.update(numbers)

    def _receive(self) -> None:
        messages = self._queue.receive(3)
        self.got += [message.body for message in messages]
        for message in messages:
            message.ack()

    def _receive_with_acks(self) -> None:
        messages = self._queue.receive(20)
        while messages:
            self.got += [message.body for message in messages]
            messages = self._queue.receive(20, ack=messages)

    def went_on(self) -> None:
        """Wait until every thread has done something more."""
        sent, got = len(self.sent), len(self.got)
        wait_until(
            lambda: self.errors or (len(self.sent) > sent + 40 and len(self.got) > got + 40),
            "messages go on",
            60,
        )
        assert self.errors == []

    def __enter__(self) -> Traffic:
        self._queue.create()
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._db.close()


@pytest.fixture
def traffic(installed: Installation) -> Iterator[Traffic]:
    with Traffic(installed.url) as traffic:
        yield traffic


def test_both_versions_work_through_an_upgrade(
    installed: Installation, traffic: Traffic, tmp_path: Path
) -> None:
    traffic.went_on()
    new = next_version.second(tmp_path)
    assert new.run("migrate", installed.url) == ["900_colour", "routines"]
    traffic.went_on()  # it has not noticed
    # One client of each version on the same queue.
    new.run("send", installed.url, 2_000_000, 50)
    wait_until(lambda: set(range(2_000_000, 2_000_050)) <= set(traffic.got), "all are received", 60)
    traffic.went_on()
    assert traffic.errors == []
    traffic.stop()
    # A client of the present version that starts now works, too, and leaves the schema alone.
    late = range(3_000_000, 3_000_010)
    with fairturn.connect(installed.url) as db:
        assert db.migrate() == []
        db.queue("rolling").send_many(late)
        [finding] = [found for found in doctor.examine(db) if found.check == "schema"]
        assert finding.level == "warn"
    got = new.run("consume", installed.url)
    assert set(late) <= set(got)
    everything = [*traffic.sent, *range(2_000_000, 2_000_050), *late]
    assert sorted(traffic.got + got) == sorted(everything)
    table = "fairturn.queue" if installed.engine == "postgresql" else "fairturn_queue"
    [(colour,)] = installed.sql(f"SELECT colour FROM {table} WHERE name = 'rolling'")
    assert colour in ("red", b"red")  # what the new entry point wrote


def test_a_client_beyond_the_range_is_refused(installed: Installation, tmp_path: Path) -> None:
    second = next_version.second(tmp_path / "second")
    third = next_version.third(tmp_path / "third")
    with fairturn.connect(installed.url) as db:
        db.queue("rolling").create()
    assert second.run("migrate", installed.url) == ["900_colour", "routines"]
    assert third.run("migrate", installed.url) == ["routines"]
    with (
        fairturn.connect(installed.url) as db,
        pytest.raises(fairturn.SchemaOutdated, match="Upgrade the Python package") as caught,
    ):
        db.queue("rolling").send(1)
    assert f"of generation {GENERATION + 1} and later" in str(caught.value)
    # The version between is still served.
    second.run("send", installed.url, 0, 5)
    assert sorted(third.run("consume", installed.url)) == [0, 1, 2, 3, 4]
    assert second.run("migrate", installed.url) == []
