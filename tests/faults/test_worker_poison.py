"""Handlers that take their process down: dead after exactly their attempts, and nobody else is."""

from __future__ import annotations

from pathlib import Path

import pytest

import fairturn
from tests.faults.crew import Crew, Member, fresh_url, wait_until

ATTEMPTS = 3
NEIGHBOURS = 40
WAYS = ["segfault", "exit", "killed", "memory"]
MEMORY = 1024**3  # bytes of data that a process of these workers may have
KINDS = ["sqlite", "postgresql", "mysql"]


def send(queue: fairturn.Queue, type: str) -> dict[int, str]:
    """Neighbours, with one message in the middle for each way to die; those by their id."""
    bodies = [{"n": n, "seconds": 0.02 * (n % 3)} for n in range(NEIGHBOURS)]
    for i, how in enumerate(WAYS):
        bodies.insert(5 + 10 * i, {"n": 1000 + i, "seconds": 0.05, "how": how})
    ids = queue.send_many([fairturn.Send(body, type=type) for body in bodies])
    return {id: str(body["how"]) for id, body in zip(ids, bodies, strict=True) if "how" in body}


def check_dead(queue: fairturn.Queue, poison: dict[int, str]) -> None:
    dead = {message.id: message for message in queue.peek(100, state="dead")}
    others = {
        id: (message.attempts, message.error) for id, message in dead.items() if id not in poison
    }
    assert others == {}, "neighbours are dead, too"
    assert dead.keys() == poison.keys()
    for id, how in poison.items():
        assert (how, dead[id].attempts) == (how, ATTEMPTS)
    assert queue.stats().total == len(poison)


def over(queue: fairturn.Queue) -> bool:
    stats = queue.stats()
    return stats.dead == stats.total


@pytest.mark.parametrize("kind", KINDS)
def test_in_processes_of_their_own(kind: str, tmp_path: Path) -> None:
    url = fresh_url(kind, tmp_path)
    with (
        fairturn.connect(url) as db,
        Crew(url, tmp_path, {"queues": ["process"], "concurrency": 4}) as crew,
    ):
        queue = db.queue("process")
        queue.create(lease=60, max_attempts=ATTEMPTS)  # nothing here has to expire
        worker = crew.start(memory=MEMORY)
        poison = send(queue, "process_work")
        wait_until(lambda: worker.alive() and over(queue), "all is done or dead")
        check_dead(queue, poison)
        # Each of its runs failed, and the log says how.
        failures = sorted(
            (f.message_id, f.attempt, f.error.split(":")[0]) for f in queue.failures(100)
        )
        told = {"memory": "MemoryError"}
        assert failures == sorted(
            (id, attempt, told.get(how, "ProcessDied"))
            for id, how in poison.items()
            for attempt in range(1, ATTEMPTS + 1)
        )
        # The neighbours ran once, and never knew.
        ended = [note for note in crew.notes.of("end") if note.n < NEIGHBOURS]
        assert sorted(note.n for note in ended) == list(range(NEIGHBOURS))
        assert {note.attempt for note in ended} == {1}
        assert worker.stop() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_in_threads_of_a_worker_that_is_started_again(kind: str, tmp_path: Path) -> None:
    """The whole worker dies, and something restarts it, as systemd does."""
    url = fresh_url(kind, tmp_path)
    with (
        fairturn.connect(url) as db,
        Crew(url, tmp_path, {"queues": ["thread"], "concurrency": 4}) as crew,
    ):
        queue = db.queue("thread")
        queue.create(lease=10, max_attempts=ATTEMPTS)  # the witnesses are quicker
        poison = send(queue, "thread_work")
        supervise(crew, queue)
        check_dead(queue, poison)
        ended = {note.n for note in crew.notes.of("end")}
        assert ended == set(range(NEIGHBOURS))
        assert len(crew.all) > 1, "no handler took its worker down"
        assert crew.all[-1].stop() == 0


def supervise(crew: Crew, queue: fairturn.Queue) -> None:
    running: list[Member] = [crew.start(memory=MEMORY)]

    def done() -> bool:
        if not running[-1].alive():
            running.append(crew.start(memory=MEMORY))
        return over(queue)

    wait_until(done, "all is done or dead")
