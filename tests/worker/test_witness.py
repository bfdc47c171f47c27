"""What becomes of the messages of a worker that dies: the journal, and the witness that reads it.

The whole of it, with workers that are killed, is in tests/faults.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

import fairturn
from fairturn.worker.witness import journal
from fairturn.worker.witness.journal import (
    DONE,
    HELD,
    OWN_PROCESS,
    RUNNING,
    SETTLING,
    Journal,
    Record,
)
from fairturn.worker.witness.witness import DIED, SUSPECTED, settle
from tests.conformance.door import unique


# --- the journal ----------------------------------------------------------------------------------
@pytest.fixture
def file() -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.truncate(journal.SIZE)
        yield file.fileno()


def test_a_journal_says_what_is_held(file: int) -> None:
    held = Journal(file, ["a", "b"])
    held.hold("a", 10, 1, 1, 5)
    held.hold("b", 2**62, 7, 3, 0)
    held.mark(10, RUNNING)
    held.mark(99, RUNNING)  # unknown: nothing
    assert sorted(journal.records(file)) == [
        Record(HELD, 1, 3, 0, 2**62, 7),
        Record(RUNNING, 0, 1, 5, 10, 1),
    ]
    held.hold("a", 10, 2, 2, 5)  # lost, and received again
    assert Record(HELD, 0, 2, 5, 10, 2) in list(journal.records(file))
    held.forget([10, 2**62, 99])
    assert list(journal.records(file)) == []


def test_what_a_journal_has_no_room_for_is_not_noted(file: int) -> None:
    held = Journal(file, ["a"])
    for id in range(journal.RECORDS + 3):
        held.hold("a", id, 1, 1, 0)
    held.mark(journal.RECORDS + 2, RUNNING)
    assert sum(1 for _ in journal.records(file)) == journal.RECORDS
    held.forget(range(journal.RECORDS + 3))
    assert list(journal.records(file)) == []
    held.hold("a", 7, 1, 1, 0)
    assert len(list(journal.records(file))) == 1


# --- the witness ----------------------------------------------------------------------------------
@pytest.fixture
def queue(url: str) -> Iterator[fairturn.Queue]:
    with fairturn.connect(url) as db:
        queue = db.queue(unique("w"))
        queue.create(max_attempts=3)
        yield queue
        queue.drop()


def record(message: fairturn.Message, state: int, most: int = 3) -> Record:
    return Record(state, 0, message.attempts, most, message.id, message.token)


def carry_out(queue: fairturn.Queue, url: str, *records: Record) -> str:
    with fairturn.connect(url) as db:
        return settle(db, [queue.name], records)


def receive_again(queue: fairturn.Queue, times: int) -> list[fairturn.LeasedMessage]:
    """Messages that were leased so often and no longer are, but for the last time."""
    messages = queue.receive(100)
    for _ in range(times - 1):
        queue.fail(messages, "again", delay=0)
        messages = queue.receive(100)
    return messages


def test_each_is_settled_by_what_was_done_with_it(queue: fairturn.Queue, url: str) -> None:
    queue.send_many(["held", "alone", "running", "done", "settling"])
    held, alone, running, done, settling = queue.receive(5)
    said = carry_out(
        queue,
        url,
        record(held, HELD),
        record(alone, OWN_PROCESS),
        record(running, RUNNING),
        record(done, DONE),
        record(settling, SETTLING),
    )
    assert said == "1 running messages failed, 2 were released, 1 were acked"
    found = {message.body: message for message in queue.peek()}
    assert {body: (m.state, m.attempts) for body, m in found.items()} == {
        "held": ("ready", 0),
        "alone": ("ready", 0),
        "running": ("ready", 1),
        "settling": ("leased", 1),  # whatever its verdict was, it may yet arrive
    }
    assert [failure.error.split(":")[0] for failure in queue.failures()] == [DIED]


def test_what_another_worker_has_by_now_is_left_alone(queue: fairturn.Queue, url: str) -> None:
    queue.send("late")
    (first,) = queue.receive(lease=0)
    (second,) = queue.receive()
    assert second.id == first.id
    for state in (HELD, RUNNING, DONE):
        assert carry_out(queue, url, record(first, state)).count("0") == 3
    second.ack()


def test_one_that_ran_alone_in_the_worker_dies_with_its_last_attempt(
    queue: fairturn.Queue, url: str
) -> None:
    queue.send("poison")
    (message,) = receive_again(queue, 3)
    carry_out(queue, url, record(message, RUNNING))
    (dead,) = queue.peek(state="dead")
    assert dead.attempts == 3
    assert dead.error is not None
    assert dead.error.startswith(DIED)


def test_of_several_that_ran_none_dies_for_another(queue: fairturn.Queue, url: str) -> None:
    queue.send_many(["one", "two"])
    one, two = receive_again(queue, 3)
    queue.send("fresh")
    (fresh,) = queue.receive()
    carry_out(queue, url, *(record(message, RUNNING) for message in (one, two, fresh)))
    found = {message.body: (message.state, message.attempts) for message in queue.peek()}
    assert found == {"one": ("ready", 2), "two": ("ready", 2), "fresh": ("ready", 1)}
    assert queue.recall(f"{SUSPECTED}{one.id}")
    assert queue.recall(f"{SUSPECTED}{two.id}")
    assert queue.recall(f"{SUSPECTED}{fresh.id}") is None


def test_what_may_run_only_once_does_not_run_again(queue: fairturn.Queue, url: str) -> None:
    queue.set(max_attempts=1)
    queue.send_many(["one", "two"])
    carry_out(queue, url, *(record(m, RUNNING, most=1) for m in queue.receive(2)))
    assert queue.stats().dead == 2


def test_a_queue_that_was_dropped_is_passed_by(queue: fairturn.Queue, url: str) -> None:
    queue.send("x")
    (message,) = queue.receive()
    queue.drop()
    assert "0 were acked" in carry_out(queue, url, record(message, DONE))
