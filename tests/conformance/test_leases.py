"""Fenced leases: a stale one changes nothing and says so (semantics §5, promise 4)."""

from __future__ import annotations

import pytest

from fairturn import LeaseLost
from tests.conformance.door import counts, ids, totals

VERBS = {
    "ack": lambda m: m.ack(),
    "complete": lambda m: m.complete("r"),
    "defer": lambda m: m.defer(5, memo="stale"),
    "fail": lambda m: m.fail("stale"),
    "kill": lambda m: m.kill("stale"),
    "extend": lambda m: m.extend(1000),
    "release": lambda m: m.release(),
}
BATCH = {
    "ack": lambda q, m: q.ack([m]),
    "complete": lambda q, m: q.complete([m], "r"),
    "defer": lambda q, m: q.defer([m], 5, memo="stale"),
    "fail": lambda q, m: q.fail([m], "stale"),
    "kill": lambda q, m: q.kill([m], "stale"),
    "extend": lambda q, m: q.extend([m], 1000),
    "release": lambda q, m: q.release([m]),
}


def _state(queue, message):
    stored = queue.get(id=message.id)
    row = None if stored is None else stored._row
    return row, totals(queue), [f.error for f in queue.failures()]


@pytest.mark.parametrize("verb", VERBS)
def test_promise_04_a_stale_lease_changes_nothing(queue, clock, verb):
    queue.send(1)
    stale = queue.one(lease=5)
    clock.tick(5)
    live = queue.one()
    before = _state(queue, live)
    with pytest.raises(LeaseLost) as caught:
        VERBS[verb](stale)
    assert caught.value.ids == [stale.id]
    assert _state(queue, live) == before
    live.ack()


@pytest.mark.parametrize("verb", BATCH)
def test_promise_04_a_stale_lease_in_a_batch_is_reported(queue, clock, verb):
    queue.send(1)
    stale = queue.one(lease=5)
    clock.tick(5)
    live = queue.one()
    before = _state(queue, live)
    done = BATCH[verb](queue, stale)
    assert (done.acked, ids(done.lost)) == (0, [stale.id])
    assert _state(queue, live) == before


@pytest.mark.parametrize("verb", VERBS)
def test_promise_04_an_expired_lease_that_nobody_recovered_is_still_good(queue, clock, verb):
    queue.send(1)
    message = queue.one(lease=5)
    clock.tick(500)
    VERBS[verb](message)


@pytest.mark.parametrize("verb", VERBS)
def test_a_lease_that_was_recovered_but_not_given_again_is_lost(db, queue, clock, verb):
    queue.send(1)
    message = queue.one(lease=5)
    clock.tick(5)
    assert db.maintain().recovered >= 1
    with pytest.raises(LeaseLost):
        VERBS[verb](message)
    assert counts(queue) == {"ready": 1}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("end", ["ack", "complete", "defer", "fail", "kill", "release"])
def test_a_lease_ends_with_its_first_verb(queue, end, verb):
    queue.send(1)
    message = queue.one()
    VERBS[end](message)
    with pytest.raises(LeaseLost):
        VERBS[verb](message)


@pytest.mark.parametrize("verb", VERBS)
def test_a_lease_of_another_queue_is_no_lease_here(make, verb):
    one, other = make(), make()
    one.send(1)
    other.send(2)
    message = one.one()
    done = BATCH[verb](other, message)
    assert ids(done.lost) == [message.id]
    assert counts(one) == {"leased": 1}
    assert counts(other) == {"ready": 1}


def test_a_cancelled_message_is_a_lost_lease(queue):
    queue.send(1)
    message = queue.one()
    queue.cancel(id=message.id, force=True)
    with pytest.raises(LeaseLost):
        message.ack()


def test_a_token_is_never_used_twice(queue, clock):
    queue.send(1)
    seen = set()
    for end in ("release", "fail", "defer", "expire", "release"):
        message = queue.one(lease=5)
        assert message.token not in seen
        assert message.token == queue.get(id=message.id).token
        seen.add(message.token)
        if end == "expire":
            clock.tick(5)
        else:
            getattr(message, end)()
    assert queue.get(id=message.id).token is None
    assert queue.one().deliveries == 6


@pytest.mark.parametrize("verb", ["ack", "complete", "defer", "fail", "kill", "extend", "release"])
def test_another_token_is_another_lease(queue, verb):
    """After a failover or a restore an old lease may have the id of a new message, and the same
    delivery number. (tests/clusters has the real thing.)"""
    queue.send(1)
    message = queue.one()
    old = queue.lease(message.id, message.token % (2**53 - 1) + 1)
    with pytest.raises(LeaseLost):
        getattr(old, verb)()
    assert [m.id for m in getattr(queue, verb)([old]).lost] == [message.id]
    message.ack()


def test_another_token_among_carried_acks(queue):
    queue.send_many([1, 2])
    message = queue.one()
    old = queue.lease(message.id, message.token % (2**53 - 1) + 1)
    received = queue.receive(ack=[old])
    assert [m.id for m in received.lost] == [message.id]
    message.ack()


@pytest.mark.parametrize("verb", ["ack", "complete", "defer", "fail", "kill", "extend", "release"])
def test_a_batch_of_several_receives(queue, verb):
    """Each lease is compared with its own token, whatever the order of the batch."""
    ids = queue.send_many(range(12))
    messages = [message for n in (1, 5, 2, 4) for message in queue.receive(n)]
    first, *_, last = messages
    swapped = [queue.lease(first.id, last.token), queue.lease(last.id, first.token)]
    batch = [swapped[1], *reversed(messages[1:-1]), swapped[0]]
    outcome = getattr(queue, verb)(batch)
    assert outcome.acked == len(ids) - 2
    assert {m.id for m in outcome.lost} == {first.id, last.id}
    first.ack()
    last.ack()


def test_the_number_of_deliveries_survives_a_dead_letter_queue(make):
    grave = make()
    queue = make(dead_letter=grave.name)
    queue.send(1)
    stale = queue.one()
    stale.kill("boom")
    message = grave.one()
    assert (message.id, message.deliveries) == (stale.id, 2)
    with pytest.raises(LeaseLost):
        stale.ack()


def test_a_stale_extend_does_not_keep_the_new_lease_alive(queue, clock):
    queue.send(1)
    stale = queue.one(lease=5)
    clock.tick(5)
    queue.one(lease=10)
    with pytest.raises(LeaseLost):
        stale.extend(1000)
    clock.tick(10)
    assert queue.one().deliveries == 3


def test_the_stale_and_the_live_in_one_batch(queue, clock):
    queue.send_many([1, 2])
    stale = queue.receive(2, lease=5)
    clock.tick(5)
    live = queue.receive(1)
    done = queue.ack([*stale, *live])
    assert done.acked == 1
    assert [(m.id, m.deliveries) for m in done.lost] == [(m.id, 1) for m in stale]
    assert counts(queue) == {"ready": 1}
    assert totals(queue)["acked"] == 1


def test_the_stale_and_the_live_among_carried_acks(queue, clock):
    queue.send(1)
    stale = queue.receive(1, lease=5)
    clock.tick(5)
    live = queue.receive(1)
    received = queue.receive(ack=[*live, *stale])
    assert [(m.id, m.deliveries) for m in received.lost] == [(stale[0].id, 1)]
    assert counts(queue) == {}


def test_a_message_that_kills_its_worker_dies(make, clock):
    queue = make(max_attempts=3, lease=5)
    queue.send(1)
    for attempt in (1, 2, 3):
        assert queue.one().attempts == attempt
        clock.tick(5)
    assert queue.receive() == []
    assert counts(queue) == {"dead": 1}
    [message] = queue.peek(state="dead")
    assert message.error == "lease expired with no attempts left"
    assert message.attempts == 3
    assert [f.error for f in queue.failures()] == ["lease expired with no attempts left"]
    assert totals(queue) == {
        "sent": 1,
        "delivered": 3,
        "recovered": 2,
        "killed": 1,
        "errors": 1,
    }


def test_expiry_adds_no_backoff(make, clock):
    queue = make(backoff=1000, lease=5)
    queue.send(1)
    queue.one()
    clock.tick(5)
    assert queue.one().attempts == 2


def test_max_attempts_is_the_queues_at_that_moment(make, clock):
    queue = make(max_attempts=1, lease=5)
    queue.send(1)
    queue.one()
    queue.set(max_attempts=2)
    clock.tick(5)
    assert queue.one().attempts == 2
    queue.set(max_attempts=1)
    clock.tick(5)
    assert queue.receive() == []
    assert counts(queue) == {"dead": 1}
