"""The ten promises of DESIGN §4, one by one (some have more tests in their own files)."""

from __future__ import annotations

import time

import pytest

import fairturn
from fairturn import LeaseLost, Policy, Send
from tests.conformance.door import bodies, counts, drain


@pytest.fixture
def another(db):
    """A second, independent client of the same database."""
    door = db.another()
    yield door
    door.close()


def test_promise_01_what_was_sent_is_there_for_another_client(queue, another):
    id = queue.send({"a": 1}, key="k")
    other = another.queue(queue.name)
    assert other.get(id=id).body == {"a": 1}
    assert other.one().id == id


def test_promise_02_what_failed_left_nothing(queue, another):
    queue.send(0, key="taken")
    with pytest.raises(fairturn.DuplicateKey):
        queue.send_many([Send(1), Send(2, key="taken")])
    assert bodies(another.queue(queue.name).peek()) == [0]


def test_promise_03_what_was_not_acked_comes_again(queue, another, clock):
    queue.send(1)
    queue.one(lease=5)
    clock.tick(5)
    message = another.queue(queue.name).one()
    assert (message.body, message.attempts, message.recovered) == (1, 2, True)


def test_promise_03_what_was_acked_never_comes_again(queue, another, clock):
    queue.send_many(range(5))
    queue.ack(queue.receive(5))
    clock.tick(10**6)
    assert another.queue(queue.name).receive(5) == []


def test_promise_04_a_stale_worker_cannot_ack_the_delivery_of_another(queue, another, clock):
    queue.send(1)
    stale = queue.one(lease=5)
    clock.tick(5)
    live = another.queue(queue.name).one()
    with pytest.raises(LeaseLost):
        stale.ack()
    live.ack()


def test_promise_05_times_are_microseconds(queue, clock):
    clock.us += 123_457
    queue.send(1, delay=0.000_001)
    message = queue.peek()[0]
    assert (message.due_at - message.created_at).microseconds == 1
    assert message.created_at == clock.moment()
    assert message.due_at.tzinfo is not None


def test_promise_05_the_databases_clock_is_the_default(db):
    """clock() is the database's, whatever clock the test passes to the operations."""
    if db.variant.backend == "memory":
        assert db.database_clock() == db.clock.us
        return
    before = time.time_ns() // 1000
    found = db.database_clock()
    assert before <= found <= time.time_ns() // 1000


def test_promise_06_limits_are_counted_from_the_rows(queue, another, clock):
    """Two clients, one limit: nobody keeps a counter of their own."""
    queue.channel("").set_policy(max_concurrency=2)
    queue.send_many(range(6))
    other = another.queue(queue.name)
    held = queue.receive(1) + other.receive(5)
    assert len(held) == 2
    assert queue.receive(5) == other.receive(5) == []
    queue.cancel(id=held[0].id, force=True)
    held[1].fail("boom", delay=60)
    assert len(other.receive(5)) == 2


def test_promise_06_a_worker_that_vanished_frees_its_slots(queue, another, clock):
    queue.channel("").set_policy(max_concurrency=1)
    queue.send_many([1, 2])
    queue.one(lease=5)
    other = another.queue(queue.name)
    assert other.receive(5) == []
    clock.tick(5)
    assert bodies(other.receive(5)) == [1]


def test_promise_07_every_channel_is_served_in_turn_by_each_consumer(queue, another):
    queue.send_many([Send(n, channel=f"c{n % 5}") for n in range(50)])
    other = another.queue(queue.name)
    for consumer in (queue, other):
        assert len({m.channel for m in consumer.receive(5)}) == 5


def test_promise_08_batches_keep_the_order(queue):
    queue.send_many([Send(n, priority=n % 3) for n in range(9)])
    assert [m.priority for m in queue.receive(9)] == [2, 2, 2, 1, 1, 1, 0, 0, 0]


def test_promise_08_ordered_across_clients(make, another):
    queue = make(policy=Policy(ordered=True))
    queue.send_many([1, 2])
    message = queue.one()
    other = another.queue(queue.name)
    assert other.receive(5) == []
    message.ack()
    assert bodies(other.receive(5)) == [2]


def test_promise_09_scheduled_and_expired_need_no_daemon(queue, clock):
    queue.send(1, delay=5)
    queue.send(2)
    queue.one(lease=5)
    clock.tick(5)
    assert sorted(bodies(queue.receive(5))) == [1, 2]


def test_promise_09_more_than_a_sweep_falls_due_at_once(queue, clock):
    """More than one receive promotes: the earliest due come first all the same."""
    queue.send_many([Send(n, delay=5 + n / 1_000_000) for n in range(1500)])
    clock.tick(6)
    assert bodies(drain(queue, 500)) == list(range(1500))


def test_promise_09_a_thousand_due_at_one_instant(queue, clock):
    queue.send_many([Send(n, delay=5) for n in range(1500)])
    clock.tick(5)
    assert sorted(bodies(drain(queue, 500))) == list(range(1500))


def test_promise_10_nothing_is_swallowed(db, queue):
    with pytest.raises(fairturn.QueueNotFound):
        db.queue("nobody").send(1)
    with pytest.raises(fairturn.InvalidName):
        queue.send(1, channel="\0")
    queue.set(max_body=1)
    with pytest.raises(fairturn.BodyTooLarge):
        queue.send("xx")
    queue.send(1, key="k")
    with pytest.raises(fairturn.DuplicateKey):
        queue.send(1, key="k")
    assert counts(queue) == {"ready": 1}
