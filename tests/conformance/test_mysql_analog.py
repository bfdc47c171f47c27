"""The MySQL SQS analog's acceptance cases (REFERENCE §4, §7), in Fairturn's words.

put_message = send, get_message = receive(1), delete_message = cancel(force=True) or ack,
max_read_cnt = max_attempts, invisibility_time = the message's lease.
"""

from __future__ import annotations

import pytest

from tests.conformance.door import bodies, counts, ids


def test_put_returns_an_id(queue):
    assert queue.send("payload") > 0


def test_get_is_oldest_first(queue):
    sent = [queue.send(n) for n in range(3)]
    assert [queue.one().id for _ in range(3)] == sent


def test_get_returns_the_full_updated_row(queue, clock):
    queue.send("payload", max_attempts=3, lease=20)
    message = queue.one()
    assert (message.body, message.attempts) == ("payload", 1)
    assert message.lease_until == clock.moment(20)


def test_unreadable_during_invisibility_and_readable_after(queue, clock):
    queue.send(1, lease=10)
    queue.one()
    clock.us += 10_000_000 - 1
    assert queue.receive() == []
    clock.us += 1
    assert bodies(queue.receive()) == [1]


@pytest.mark.parametrize("reads", [1, 2, 5])
def test_reading_stops_at_max_read_cnt(queue, clock, reads):
    queue.send(1, max_attempts=reads, lease=1)
    for _ in range(reads):
        assert bodies(queue.receive()) == [1]
        clock.tick(1)
    assert queue.receive() == []
    # Theirs became an invisible zombie; here it is dead, listed and can be redriven.
    assert counts(queue) == {"dead": 1}
    assert queue.redrive() == 1


def test_0_is_unlimited(queue, clock):
    queue.send(1, max_attempts=0, lease=1)
    for _ in range(20):
        assert bodies(queue.receive()) == [1]
        clock.tick(1)


def test_invisibility_0_is_visible_at_once(queue):
    queue.send(1, lease=0, max_attempts=0)
    assert queue.one().id == queue.one().id


def test_delete_is_idempotent_and_hides(queue):
    id = queue.send(1)
    queue.one()
    assert queue.cancel(id=id, force=True) is True
    assert queue.cancel(id=id, force=True) is False
    assert queue.receive() == []
    assert queue.get(id=id) is None


def test_queues_are_isolated(make):
    one, other = make(), make()
    one.send(1)
    assert other.receive() == []
    assert bodies(one.receive()) == [1]


def test_many_getters_never_share_a_message(queue, db):
    """N consumers, interleaved; tests/conformance/test_concurrency.py does it with threads."""
    queue.send_many(range(20))
    clients = [db.another() for _ in range(4)]
    try:
        got = [i for _ in range(5) for c in clients for i in ids(c.queue(queue.name).receive())]
    finally:
        for client in clients:
            client.close()
    assert len(got) == len(set(got)) == 20


def test_large_payloads(queue):
    """Of seven megabytes: MariaDB's default packet holds twice that (test_rules.py)."""
    body = b"0123456789abcdef" * (7 * 65_536)
    queue.send(body)
    assert queue.one().raw == body
