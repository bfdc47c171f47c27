"""A worker that stood still for longer than its leases (RELIABILITY F6, F15): what it does when it
wakes up has no effect, and then it works on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import fairturn
from tests.faults.crew import (
    FULL,
    LEASE,
    ROUNDS,
    Crew,
    Producer,
    effects,
    fresh_url,
    make_effects,
    wait_until,
)

KINDS = ["sqlite", "postgresql", "mysql"]
pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize(
    ("kind", "type"),
    [
        # Not gated on SQLite: there a transaction that stands still keeps all others from writing.
        ("sqlite", "long_effect"),
        ("postgresql", "long_effect"),
        ("postgresql", "gated_effect"),
        ("mysql", "long_effect"),
        ("mysql", "gated_effect"),
    ],
)
def test_a_late_transaction_has_no_effect(kind: str, type: str, tmp_path: Path) -> None:
    """Attempt 2 has committed when attempt 1 wakes up, before or inside of its own transaction."""
    url = fresh_url(kind, tmp_path)
    make_effects(url)
    with (
        fairturn.connect(url) as db,
        Crew(url, tmp_path, {"queues": ["long"], "concurrency": 4}) as crew,
    ):
        queue = db.queue("long")
        queue.create(lease=LEASE, max_attempts=0)
        paused = crew.start_ready(1)[0]
        gate = tmp_path / "gate"
        numbers = set(range(4))
        queue.send_many([fairturn.Send({"n": n, "gate": str(gate)}, type=type) for n in numbers])
        wait_until(lambda: len(paused.running()) == len(numbers), "it works on all")
        paused.send(signal.SIGSTOP)
        other = crew.start()
        wait_until(lambda: len(other.running()) == len(numbers), "another one does")
        gate.touch()
        wait_until(lambda: queue.stats().total == 0, "the other one is done")
        assert other.stop() == 0
        paused.send(signal.SIGCONT)
        queue.send({"n": 100, "gate": str(gate)}, type=type)
        wait_until(lambda: queue.stats().total == 0, "the first one works again")
        assert paused.stop() == 0
        assert queue.stats().acked == len(numbers) + 1
    assert effects(url) == dict.fromkeys([*numbers, 100], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_pauses_under_load(kind: str, tmp_path: Path) -> None:
    url = fresh_url(kind, tmp_path)
    make_effects(url)
    with fairturn.connect(url) as db:
        queue = db.queue("effect")
        queue.create(lease=1, max_attempts=0)
        quick = 0.0 if kind == "sqlite" else 0.02
        producer = Producer(url, "effect", ["effect", "effect_async"], seconds=quick)
        with Crew(url, tmp_path, {"queues": ["effect"], "concurrency": 4}) as crew:
            members = crew.start_ready(2)
            with producer:
                for round in range(min(ROUNDS, 50) if FULL else 2):
                    paused = members[round % 2]
                    wait_until(lambda one=paused: one.alive() and one.running(), "it has work")
                    paused.send(signal.SIGSTOP)
                    # On SQLite it may stand still with the write lock in its hands.
                    producer.pause(2.0)
                    paused.send(signal.SIGCONT)
                    seen = len(paused.starts())
                    wait_until(
                        lambda one=paused, seen=seen: one.alive() and len(one.starts()) > seen + 5,
                        f"it works again: {paused.text()}",
                    )
                producer.stop()
                wait_until(lambda: queue.stats().total == 0, "the queue is empty")
            assert [member.stop() for member in members] == [0, 0]
    assert effects(url) == dict.fromkeys(producer.sent, 1)
