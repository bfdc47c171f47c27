"""kill -9 of random workers under load (RELIABILITY F1): everything is done, what is done in the
message's own transaction is done once, and what a dead worker held comes back.

`make test-deep` runs a few kills; `make faults` as many as FAIRTURN_FAULTS says. Both print how
long it took.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

import fairturn
from tests.faults.crew import (
    LEASE,
    ROUNDS,
    Crew,
    Member,
    Producer,
    effects,
    fresh_url,
    make_effects,
    percentiles,
    wait_until,
)
from tests.keeper import state

WORKERS = 4
pytestmark = pytest.mark.timeout(max(300, ROUNDS * 10))
KINDS = ["sqlite", "postgresql", "mysql"]


def stop_in_handler(member: Member) -> None:
    """It stands still, and there is a message in its hands that it has not finished."""

    def stopped() -> bool:
        member.send(signal.SIGSTOP)
        wait_until(lambda: state(member.pid) == "T", "it stands still")
        if member.running():
            return True
        member.send(signal.SIGCONT)
        return False

    wait_until(stopped, "it stands still in a handler")


def storm(
    queue: fairturn.Queue, crew: Crew, producer: Producer, rng: random.Random
) -> dict[int, float]:
    """Kill and replace workers until the last message is done; when each was killed, by pid."""
    killed: dict[int, float] = {}
    members = crew.start_ready(WORKERS)
    with producer:
        while len(killed) < ROUNDS:
            at = rng.randrange(WORKERS)
            victim = members[at]
            wait_until(lambda: all(member.ready() for member in members), "all of them work")
            wait_until(victim.running, "it has work")
            if killed:
                time.sleep(rng.uniform(0, 0.2))  # in a handler, a receive, an ack: anywhere
            else:
                stop_in_handler(victim)
            killed[victim.pid] = victim.kill()
            members[at] = crew.start()
        producer.stop()
        wait_until(lambda: queue.stats().total == 0, "the queue is empty", 60 + ROUNDS / 10)
    wait_until(lambda: all(member.ready() for member in members), "the last ones are ready")
    assert [member.stop() for member in members] == [0] * WORKERS
    return killed


def check(queue: fairturn.Queue, crew: Crew, producer: Producer) -> None:
    assert not producer.maybe
    stats = queue.stats()
    assert (stats.total, stats.sent, stats.killed) == (0, len(producer.sent), 0)
    assert crew.notes.numbers("start") == producer.sent


def redeliveries(
    db: fairturn.Database, crew: Crew, killed: dict[int, float]
) -> tuple[list[float], list[float], list[float]]:
    """For each message that a dead worker was working on, the seconds from its death until the
    message was given to another worker; until it started there; and until it started in a process
    of its own, which has to be made first."""
    clock = time.time() - time.monotonic()
    given = {
        (event.id, event.data["deliveries"]): event.at.timestamp() - clock
        for event in db.events("plain", kinds=["leased"], after="", timeout=0)
    }
    workers = {member.pid for member in crew.all}
    starts = crew.notes.of("start")
    started = {(note.id, note.delivery): note for note in starts}
    again: list[float] = []
    there: list[float] = []
    alone: list[float] = []
    for note in starts:
        key = (note.id, note.delivery + 1)
        if note.pid in killed and key in given:
            again.append(given[key] - killed[note.pid])
            if key in started:  # else that worker was killed, too, before it could start
                next_start = started[key]
                where = there if next_start.pid in workers else alone
                where.append(next_start.at - killed[note.pid])
    return again, there, alone


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_killed_worker_held_is_done_by_others(
    kind: str, tmp_path: Path, rng: random.Random
) -> None:
    url = fresh_url(kind, tmp_path)
    with fairturn.connect(url) as db:
        queue = db.queue("plain")
        queue.create(lease=LEASE, max_attempts=0, events=True)
        producer = Producer(url, "plain", ["plain", "plain_async"])
        with Crew(url, tmp_path, {"queues": ["plain"], "concurrency": 4}) as crew:
            killed = storm(queue, crew, producer, rng)
            check(queue, crew, producer)
            assert crew.notes.numbers("end") == producer.sent
            print(f"{kind}: {len(producer.sent)} messages, {len(killed)} kills")
            again, there, alone = redeliveries(db, crew, killed)
            percentiles(f"{kind}: redelivered after", again)
            for how, seconds in (("", there), (" in a process of its own", alone)):
                if seconds:
                    percentiles(f"{kind}: started again{how} after", seconds)


@pytest.mark.parametrize("type", ["effect", "effect_async"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_effect_in_the_messages_transaction_happens_once(
    kind: str, type: str, tmp_path: Path, rng: random.Random
) -> None:
    url = fresh_url(kind, tmp_path)
    make_effects(url)
    with fairturn.connect(url) as db:
        queue = db.queue("effect")
        queue.create(lease=LEASE, max_attempts=0)
        # On SQLite a transaction that dawdles holds up everybody.
        producer = Producer(url, "effect", [type], seconds=0.0 if kind == "sqlite" else 0.02)
        with Crew(url, tmp_path, {"queues": ["effect"], "concurrency": 4}) as crew:
            storm(queue, crew, producer, rng)
            check(queue, crew, producer)
    assert effects(url) == dict.fromkeys(producer.sent, 1)
