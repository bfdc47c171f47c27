"""Permits: one heartbeat for all leases of a worker (semantics §6, DESIGN §10.16)."""

from __future__ import annotations

import pytest

from fairturn import PermitLost
from tests.conformance.door import bodies, counts, totals


def test_10_16_a_lease_lives_as_long_as_its_permit(db, queue, clock):
    permit = db.permit("w1", ttl=20)
    queue.send(1)
    message = queue.one(lease=5, permit=permit)
    for _ in range(5):
        clock.tick(15)
        permit.extend()
        assert queue.receive() == []
    message.ack()


def test_10_16_recovery_moves_the_deadline_to_the_permits(db, queue, clock):
    permit = db.permit(ttl=20)
    queue.send(1)
    message = queue.one(lease=5, permit=permit)
    clock.tick(5)
    received = queue.receive()
    assert received == []
    assert received.retry_after == 15
    assert queue.get(id=message.id).lease_until == clock.moment(15)


def test_10_16_an_expired_permit_ends_its_leases(db, queue, clock):
    permit = db.permit(ttl=20)
    queue.send_many([1, 2])
    queue.receive(2, lease=5, permit=permit)
    clock.tick(20)
    received = queue.receive(2)
    assert bodies(received) == [1, 2]
    assert all(m.recovered for m in received)


def test_10_16_a_permit_is_over_at_its_deadline(db, queue, clock):
    permit = db.permit(ttl=20)
    clock.us += 20_000_000 - 1
    permit.extend()
    clock.tick(20)
    with pytest.raises(PermitLost):
        permit.extend()


def test_10_16_an_expired_permit_is_never_revived(db, queue, clock):
    permit = db.permit(ttl=20)
    queue.send(1)
    queue.one(lease=5, permit=permit)
    clock.tick(20)
    queue.receive()
    clock.us -= 10_000_000  # even by a clock that was put back
    with pytest.raises(PermitLost):
        permit.extend()


def test_a_lease_longer_than_its_permit_lasts_until_its_own_deadline(db, queue, clock):
    permit = db.permit(ttl=5)
    queue.send(1)
    queue.one(lease=60, permit=permit)
    clock.tick(30)
    assert queue.receive() == []
    clock.tick(30)
    assert queue.one().recovered


def test_closing_a_permit_leaves_the_leases_their_own_deadlines(db, queue, clock):
    permit = db.permit(ttl=100)
    queue.send(1)
    queue.one(lease=10, permit=permit)
    permit.close()
    clock.tick(9)
    assert queue.receive() == []
    clock.tick(1)
    assert queue.one().recovered


def test_a_closed_permit_cannot_be_extended(db):
    permit = db.permit(ttl=100)
    permit.close()
    with pytest.raises(PermitLost):
        permit.extend()
    permit.close()


def test_receive_with_an_expired_permit_leases_nothing(db, queue, clock):
    permit = db.permit(ttl=5)
    queue.send(1)
    clock.tick(5)
    with pytest.raises(PermitLost):
        queue.receive(permit=permit)
    assert counts(queue) == {"ready": 1}
    assert "delivered" not in totals(queue)


def test_receive_with_an_unknown_permit_leases_nothing(db, queue):
    permit = db.permit(ttl=5)
    permit.close()
    queue.send(1)
    with pytest.raises(PermitLost):
        queue.receive(permit=permit)
    assert counts(queue) == {"ready": 1}


def test_verbs_let_go_of_the_permit(db, queue, clock):
    permit = db.permit(ttl=100)
    queue.send(1)
    queue.one(lease=5, permit=permit).release()
    queue.one(lease=5)
    clock.tick(5)
    assert queue.one().recovered


def test_extending_a_lease_keeps_its_permit(db, queue, clock):
    permit = db.permit(ttl=100)
    queue.send(1)
    message = queue.one(lease=5, permit=permit)
    message.extend(10)
    clock.tick(50)
    assert queue.receive() == []
    message.ack()


def test_stats_count_leases_of_live_permits_as_leased(db, queue, clock):
    permit = db.permit(ttl=20)
    queue.send(1)
    queue.one(lease=5, permit=permit)
    clock.tick(10)
    assert counts(queue) == {"leased": 1}
    clock.tick(10)
    assert counts(queue) == {"ready": 1}


def test_a_permit_serves_many_queues(db, make, clock):
    permit = db.permit(ttl=20)
    one, other = make(), make()
    for queue in (one, other):
        queue.send(1)
        queue.one(lease=5, permit=permit)
    clock.tick(10)
    assert one.receive() == other.receive() == []
    clock.tick(10)
    assert one.one().recovered
    assert other.one().recovered


def test_the_late_ack_of_a_lost_permit_is_still_fenced(db, queue, clock):
    from fairturn import LeaseLost

    permit = db.permit(ttl=20)
    queue.send(1)
    stale = queue.one(lease=5, permit=permit)
    clock.tick(20)
    queue.one().ack()
    with pytest.raises(LeaseLost):
        stale.ack()


def test_maintain_respects_live_permits(db, queue, clock):
    permit = db.permit(ttl=20)
    queue.send(1)
    queue.one(lease=5, permit=permit)
    clock.tick(10)
    db.maintain()
    assert counts(queue) == {"leased": 1}


def test_permits_tells_the_live_workers_and_their_leases(db, queue, clock):
    first, second = db.permit("web-1", ttl=20), db.permit("web-2", ttl=60)

    def permits():  # the database is shared with other tests
        return [permit for permit in db.permits() if permit.id in (first.id, second.id)]

    queue.send_many([1, 2, 3])
    queue.receive(2, permit=first)
    [message] = queue.receive(1, permit=second)
    one, two = permits()
    assert (one.id, one.name, one.leases) == (first.id, "web-1", 2)
    assert (one.created_at, one.expires_at) == (clock.moment(0), clock.moment(20))
    assert (two.id, two.name, two.leases) == (second.id, "web-2", 1)
    message.ack()
    clock.tick(20)  # the first is over, the second has nothing left to do
    assert [(permit.name, permit.leases) for permit in permits()] == [("web-2", 0)]
    second.close()
    assert permits() == []
