"""Maintenance: sweep, retention, purge, fold (semantics §10)."""

from __future__ import annotations

import pytest

from fairturn import Policy, Send
from tests.conformance.door import bodies, counts, totals


@pytest.fixture
def quiet(db):
    """Nothing is left to do of earlier tests."""
    for _ in range(50):
        done = db.maintain(100_000)
        if tuple(done) == (0, 0, 0, 0):
            break
    assert tuple(db.maintain(100_000)) == (0, 0, 0, 0)
    return db


def test_nothing_to_do(quiet, queue):
    queue.send(1)
    done = quiet.maintain()
    assert tuple(done) == (0, 0, 0, 0)
    assert done.more is False


def test_maintain_promotes_recovers_and_kills(quiet, make, clock):
    queue = make(max_attempts=2, lease=5)
    queue.send_many([Send(n, delay=5) for n in range(3)])
    queue.send_many(["a", "b"])
    queue.send("dies", max_attempts=1)
    queue.receive(3)
    clock.tick(5)
    done = quiet.maintain()
    assert tuple(done) == (3, 2, 1, 0)
    assert counts(queue) == {"ready": 5, "dead": 1}
    assert [m.state for m in queue.peek()] == ["ready"] * 5 + ["dead"]
    assert tuple(quiet.maintain()) == (0, 0, 0, 0)


def test_maintain_serves_every_queue(quiet, make, clock):
    queues = [make() for _ in range(3)]
    for queue in queues:
        queue.send(1, delay=5)
    clock.tick(5)
    assert quiet.maintain().activated == 3


def test_maintain_stops_at_its_limit_and_says_so(quiet, queue, clock):
    queue.send_many([Send(n, delay=n + 1) for n in range(5)])
    clock.tick(10)
    done = quiet.maintain(limit=2)
    assert (done.activated, done.more) == (2, True)
    assert bodies(queue.peek(state="ready")) == [0, 1]
    assert quiet.maintain(limit=2).activated == 2
    assert quiet.maintain(limit=2).activated == 1
    assert quiet.maintain(limit=2).more is False


def test_done_messages_end_with_the_retention(quiet, make, clock):
    queue = make(retention=60)
    queue.send_many([1, 2])
    queue.ack(queue.receive(1))
    queue.complete(queue.receive(1), "r")
    clock.us += 60_000_000 - 1
    assert quiet.maintain().purged == 0
    clock.us += 1
    assert quiet.maintain().purged == 2
    assert counts(queue) == {}


def test_completed_messages_are_kept_a_day_where_the_retention_is_0(quiet, queue, clock):
    queue.send(1)
    queue.one().complete()
    clock.tick(86_399)
    assert quiet.maintain().purged == 0
    clock.tick(1)
    assert quiet.maintain().purged == 1


def test_results_end_with_their_retention_where_done_messages_have_none(quiet, make, clock):
    queue = make(result_retention=60)
    queue.send(1)
    queue.one().complete("r")
    clock.us += 60_000_000 - 1
    assert quiet.maintain().purged == 0
    clock.us += 1
    assert quiet.maintain().purged == 1
    assert counts(queue) == {}


def test_the_retention_of_done_messages_goes_before_that_of_results(quiet, make, clock):
    queue = make(retention=120, result_retention=60)
    queue.send(1)
    queue.one().complete("r")
    clock.tick(119)
    assert quiet.maintain().purged == 0
    clock.tick(1)
    assert quiet.maintain().purged == 1


def test_dead_messages_end_with_their_retention(quiet, make, clock):
    queue = make(dead_retention=60, failure_retention=10**6)
    queue.send(1)
    queue.one().kill("boom")
    clock.tick(59)
    assert quiet.maintain().purged == 0
    clock.tick(1)
    assert quiet.maintain().purged == 1
    assert counts(queue) == {}
    assert len(queue.failures()) == 1


def test_failures_end_with_their_retention(quiet, make, clock):
    queue = make(failure_retention=60)
    queue.send(1)
    queue.one().fail("first")
    clock.tick(30)
    queue.one().fail("second")
    clock.tick(30)
    assert quiet.maintain().purged == 1
    assert [f.error for f in queue.failures()] == ["second"]


def test_retention_of_failures_by_default_is_a_week(quiet, queue, clock):
    queue.send(1)
    queue.one().fail("boom")
    clock.tick(7 * 86_400 - 1)
    assert quiet.maintain().purged == 0
    clock.tick(1)
    assert quiet.maintain().purged == 1


def test_the_rows_of_a_purged_queue_are_swept(quiet, queue):
    queue.send_many(range(10))
    queue.purge()
    assert quiet.maintain().purged == 10
    assert quiet.maintain().purged == 0
    queue.send(1)
    assert quiet.maintain().purged == 0
    assert bodies(queue.receive()) == [1]


def test_the_rows_of_a_dropped_queue_are_swept(quiet, make):
    queue = make()
    queue.send_many(range(10))
    queue.drop()
    assert quiet.maintain().purged == 10


def test_purged_rows_are_swept_in_chunks(quiet, queue):
    queue.send_many(range(10))
    queue.purge()
    done = quiet.maintain(limit=4)
    assert (done.purged, done.more) == (4, True)
    rest = sum(quiet.maintain(limit=4).purged for _ in range(3))
    assert rest == 6


def test_maintain_folds_without_changing_the_totals(quiet, queue, clock):
    for n in range(5):
        queue.send(n)
        queue.one().ack()
        clock.tick(61)
    before = totals(queue)
    assert before == {"sent": 5, "delivered": 5, "acked": 5}
    quiet.maintain()
    assert totals(queue) == before
    clock.tick(86_400 * 3)
    quiet.maintain()
    quiet.maintain()
    assert totals(queue) == before


def test_10_06_maintain_sweeps_idle_gates_without_changing_limits(quiet, make, clock):
    queue = make(policy=Policy(max_concurrency=1, rate="1/min"))
    queue.send_many([Send(n, channel=c) for c in "ab" for n in range(2)])
    held = queue.receive(5)
    assert len(held) == 2
    quiet.maintain()
    assert queue.receive(5) == []
    clock.tick(60)
    quiet.maintain()
    queue.ack(held)
    assert len(queue.receive(5)) == 2


def test_a_gate_that_still_holds_back_is_not_swept(quiet, make, clock):
    queue = make(policy=Policy(rate="1/h"))
    queue.send_many([1, 2])
    queue.one().ack()
    clock.tick(1800)
    quiet.maintain()
    received = queue.receive()
    assert received == []
    assert received.retry_after == 1800


def test_maintain_moves_the_dead_to_their_queue(quiet, make, clock):
    grave = make()
    queue = make(dead_letter=grave.name, max_attempts=1, lease=5)
    queue.send(1)
    queue.one()
    clock.tick(5)
    assert quiet.maintain().killed == 1
    assert bodies(grave.receive()) == [1]


def test_maintain_of_paused_queues(quiet, queue, clock):
    queue.send(1, delay=5)
    queue.pause()
    clock.tick(5)
    assert quiet.maintain().activated == 1
    assert queue.receive() == []


def test_expired_permits_are_removed(quiet, queue, clock):
    quiet.permit(ttl=5)
    clock.tick(5)
    quiet.maintain()
    assert tuple(quiet.maintain()) == (0, 0, 0, 0)
