"""extend(exact=True): a lease that ends earlier, also under a live permit (semantics §5.6)."""

from __future__ import annotations

import pytest

from fairturn import InvalidArgument, LeaseLost
from tests.conformance.door import bodies, counts, ids, totals
from tests.conformance.looks import receiver


def test_it_ends_earlier_than_before(queue, clock):
    queue.send(1)
    message = queue.one(lease=60)
    message.extend(5, exact=True)
    assert message.lease_until == clock.moment(5)
    assert queue.get(id=message.id).lease_until == clock.moment(5)
    clock.tick(4)
    assert queue.receive() == []
    clock.tick(1)
    assert queue.one().recovered


def test_it_ends_later_as_well(queue, clock):
    queue.send(1)
    message = queue.one(lease=5)
    message.extend(60, exact=True)
    clock.tick(59)
    assert queue.receive() == []
    clock.tick(1)
    assert queue.one().recovered


def test_without_exact_it_never_ends_earlier(queue, clock):
    queue.send(1)
    message = queue.one(lease=60)
    message.extend(5)
    assert message.lease_until == clock.moment(60)


def test_at_zero_the_next_receive_has_it(queue):
    queue.send(1)
    message = queue.one(lease=60)
    message.extend(0, exact=True)
    again = queue.one()
    assert (again.id, again.attempts, again.deliveries) == (message.id, 2, 2)
    assert again.recovered
    assert totals(queue) == {"sent": 1, "delivered": 2, "recovered": 1}
    with pytest.raises(LeaseLost):
        message.ack()


def test_at_zero_it_counts_as_ready(queue):
    queue.send(1)
    queue.one(lease=60).extend(0, exact=True)
    assert counts(queue) == {"ready": 1}


def test_until_it_is_recovered_the_lease_is_still_good(queue):
    queue.send(1)
    message = queue.one(lease=60)
    message.extend(0, exact=True)
    message.ack()
    assert queue.stats().total == 0


def test_at_zero_the_last_attempt_is_the_last(make):
    queue = make(max_attempts=1)
    queue.send(1)
    message = queue.one(lease=60)
    message.extend(0, exact=True)
    assert queue.receive() == []
    dead = queue.get(id=message.id)
    assert (dead.state, dead.error) == ("dead", "lease expired with no attempts left")


@pytest.mark.parametrize(("own", "seconds"), [(None, 30), (7, 7)])
def test_without_a_number_it_is_the_messages_lease_or_the_queues(make, clock, own, seconds):
    queue = make(lease=30)
    queue.send(1, lease=own)
    message = queue.one(lease=500)
    message.extend(exact=True)
    assert message.lease_until == clock.moment(seconds)


def test_a_live_permit_does_not_revive_it(db, queue, clock):
    permit = db.permit(ttl=1000)
    queue.send_many([1, 2])
    first, second = queue.receive(2, lease=5, permit=permit)
    first.extend(0, exact=True)
    assert ids(queue.receive(2)) == [first.id]
    clock.tick(500)
    permit.extend()
    second.ack()


def test_off_its_permit_it_ends_at_its_own_time(db, queue, clock):
    permit = db.permit(ttl=1000)
    queue.send(1)
    message = queue.one(lease=5, permit=permit)
    message.extend(60, exact=True)
    clock.tick(59)
    permit.extend()
    assert queue.receive() == []
    clock.tick(1)
    assert queue.one().id == message.id


def test_without_exact_it_stays_on_its_permit(db, queue, clock):
    permit = db.permit(ttl=1000)
    queue.send(1)
    message = queue.one(lease=5, permit=permit)
    message.extend(10)
    clock.tick(20)
    assert queue.receive() == []
    message.ack()


def test_its_permit_counts_it_no_more(db, queue):
    permit = db.permit(ttl=1000)
    queue.send_many([1, 2])
    message, _ = queue.receive(2, permit=permit)
    message.extend(60, exact=True)
    [found] = [one for one in db.permits() if one.id == permit.id]
    assert found.leases == 1


def test_a_batch_of_it(db, queue, clock):
    permit = db.permit(ttl=1000)
    queue.send_many([1, 2, 3])
    batch = queue.receive(3, lease=60, permit=permit)
    batch[1].ack()
    done = queue.extend(batch, 0, exact=True)
    assert (done.acked, ids(done.lost)) == (2, [batch[1].id])
    assert sorted(bodies(queue.receive(3))) == [1, 3]


def test_a_stale_lease_changes_nothing(queue, clock):
    queue.send(1)
    stale = queue.one(lease=5)
    clock.tick(5)
    live = queue.one(lease=60)
    with pytest.raises(LeaseLost):
        stale.extend(0, exact=True)
    assert [m.id for m in queue.extend([stale], 0, exact=True).lost] == [live.id]
    assert queue.get(id=live.id).lease_until == clock.moment(60)


def test_a_waiting_receive_is_woken(db, queue, monkeypatch):
    queue.send(1)
    message = queue.one(lease=3600)
    waiting = receiver(db, monkeypatch)(queue)
    message.extend(0, exact=True)
    assert ids(waiting.result()) == [message.id]


@pytest.mark.few_variants
@pytest.mark.parametrize("exact", ["yes", None, 2])
def test_exact_is_true_or_false(queue, exact):
    queue.send(1)
    message = queue.one()
    with pytest.raises(InvalidArgument, match="exact"):
        message.extend(5, exact=exact)
    with pytest.raises(InvalidArgument, match="exact"):
        queue.extend([message], 5, exact=exact)
