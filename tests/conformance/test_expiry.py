"""Messages whose time is over (semantics §2.2a, §9)."""

from __future__ import annotations

import pytest

from fairturn import LeaseLost, MessageNotFound
from tests.conformance.door import bodies, counts, totals


def test_an_expired_message_is_never_given(queue, clock):
    queue.send(1, expires=10)
    queue.send(2)
    clock.tick(10)
    assert bodies(queue.receive(5)) == [2]
    assert totals(queue)["expired"] == 1


def test_a_message_is_given_until_its_last_microsecond(queue, clock):
    queue.send(1, expires=10)
    clock.us += 10_000_000 - 1
    assert bodies(queue.receive()) == [1]


def test_the_queues_expiry_is_the_default(make, clock):
    queue = make(expires=10)
    queue.send(1)
    queue.send(2, expires=20)
    assert [m.expires_at for m in queue.peek()] == [clock.moment(10), clock.moment(20)]
    clock.tick(10)
    assert bodies(queue.receive(5)) == [2]


def test_without_an_expiry_a_message_waits_for_ever(queue, clock):
    queue.send(1)
    clock.tick(86_400 * 365 * 50)
    assert bodies(queue.receive()) == [1]


def test_a_scheduled_message_may_expire_before_it_is_due(queue, clock):
    queue.send(1, delay=60, expires=10)
    clock.tick(60)
    assert queue.receive() == []
    assert totals(queue)["expired"] == 1


def test_a_leased_message_expires_too(queue, clock):
    queue.send(1, expires=10)
    message = queue.one(lease=60)
    clock.tick(10)
    assert queue.receive() == []
    with pytest.raises(LeaseLost):
        message.ack()
    # It ran once: not counted as "never run".
    assert "expired" not in totals(queue)


def test_dead_and_done_messages_expire_too(queue, clock):
    queue.send(1, expires=10, key="a")
    queue.send(2, expires=10, key="b")
    queue.one().kill("boom")
    queue.one().complete()
    clock.tick(10)
    queue.receive()
    assert queue.peek() == []


def test_expired_messages_do_not_exist(queue, clock):
    id = queue.send(1, expires=10, key="k")
    clock.tick(10)
    assert queue.get(id=id) is None
    assert queue.get(key="k") is None
    assert counts(queue) == {}
    with pytest.raises(MessageNotFound):
        queue.explain(id)


def test_the_key_of_an_expired_message_is_free_once_it_is_swept(queue, clock):
    queue.send(1, expires=10, key="k")
    clock.tick(10)
    queue.receive()
    assert queue.send(2, key="k").created


def test_maintain_removes_expired_messages(db, queue, clock):
    queue.send(1, expires=10)
    clock.tick(10)
    db.maintain()
    assert queue.peek() == []
    assert totals(queue)["expired"] == 1


def test_a_defer_or_retry_does_not_move_the_expiry(queue, clock):
    queue.send(1, expires=30)
    queue.one().defer(5)
    clock.tick(5)
    queue.one().fail("boom", delay=5)
    assert queue.peek()[0].expires_at == clock.moment(25)
    clock.tick(25)
    assert queue.receive() == []


def test_expires_0_is_never_given(queue):
    queue.send(1, expires=0)
    assert queue.receive() == []
    assert counts(queue) == {}


def test_the_dead_letter_queues_expiry_counts(make, clock):
    grave = make(expires=100)
    queue = make(dead_letter=grave.name)
    queue.send(1, expires=10)
    queue.one().kill("boom")
    assert grave.peek()[0].expires_at == clock.moment(100)


def test_redrive_keeps_the_expiry(queue, clock):
    queue.send(1, expires=30)
    queue.one().kill("boom")
    queue.redrive()
    assert queue.peek()[0].expires_at == clock.moment(30)
