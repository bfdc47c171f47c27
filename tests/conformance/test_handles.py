"""queue.lease(id, token): a delivery that is known by its two numbers only."""

from __future__ import annotations

import pytest

from fairturn import InvalidArgument, LeaseLost, UsageError
from tests.conformance.door import bodies, counts, ids, totals

VERBS = {
    "ack": (lambda m: m.ack(), {}),
    "complete": (lambda m: m.complete({"a": 1}), {"done": 1}),
    "defer": (lambda m: m.defer(5, memo="later"), {"scheduled": 1}),
    "fail": (lambda m: m.fail("boom", delay=5), {"scheduled": 1}),
    "kill": (lambda m: m.kill("boom"), {"dead": 1}),
    "extend": (lambda m: m.extend(1000), {"leased": 1}),
    "extend exactly": (lambda m: m.extend(0, exact=True), {"ready": 1}),
    "release": (lambda m: m.release(), {"ready": 1}),
    "progress": (lambda m: m.progress(0.5, note="half"), {"leased": 1}),
}
UNKNOWN = (
    *("channel", "raw", "body", "headers", "key", "version", "type", "priority", "due_at"),
    *("created_at", "attempts", "memo", "ordered", "lease_until", "recovered", "group"),
    *("origin", "first_delivered_at"),
)


def handle(queue, message):
    return queue.lease(message.id, message.token)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_works(queue, verb):
    queue.send(1)
    message = queue.one()
    use, left = VERBS[verb]
    use(handle(queue, message))
    assert counts(queue) == left


@pytest.mark.parametrize("verb", VERBS)
def test_an_old_delivery_is_lost(queue, clock, verb):
    queue.send(1)
    stale = queue.one(lease=5)
    clock.tick(5)
    live = queue.one()
    with pytest.raises(LeaseLost) as caught:
        VERBS[verb][0](handle(queue, stale))
    assert caught.value.ids == [stale.id]
    handle(queue, live).ack()


def test_one_that_never_was_is_lost(queue):
    sent = queue.send(1)
    for id, token in ((sent, 1), (sent, 2**53 - 1), (sent + 10**6, 1), (2**63 - 1, 1)):
        with pytest.raises(LeaseLost):
            queue.lease(id, token).ack()
    assert counts(queue) == {"ready": 1}


def test_of_another_queue_it_is_lost(queue, make):
    queue.send(1)
    message = queue.one()
    with pytest.raises(LeaseLost):
        handle(make(), message).ack()
    message.ack()


def test_it_knows_its_numbers_and_its_queue(queue):
    sent = queue.send(1)
    found = queue.lease(sent, 3)
    assert (found.id, found.token, found.queue) == (sent, 3, queue.name)
    assert type(found.id) is int
    assert repr(found.inner) in (
        f"<LeasedMessage {sent} queue={queue.name!r} token=3>",
        f"<AsyncLeasedMessage {sent} queue={queue.name!r} token=3>",
    )


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_nobody_has_read_is_an_error(queue, name):
    queue.send(1)
    found = handle(queue, queue.one())
    with pytest.raises(UsageError, match=rf"queue\.get\(id={found.id}\) reads the message"):
        getattr(found, name)


def test_an_extended_handle_knows_the_end_of_its_lease(queue, clock):
    queue.send(1)
    found = handle(queue, queue.one())
    found.extend(60)
    assert found.lease_until == clock.moment(60)
    with pytest.raises(UsageError):
        found.body  # noqa: B018
    found.ack()


def test_in_a_batch_with_others(queue):
    queue.send_many([1, 2, 3, 4])
    one, two, three, four = queue.receive(4)
    four.ack()
    done = queue.ack([one, handle(queue, two), handle(queue, three), handle(queue, four)])
    assert (done.acked, ids(done.lost)) == (3, [four.id])
    assert queue.stats().total == 0


def test_a_receive_carries_them(queue):
    queue.send_many([1, 2, 3])
    one, two = queue.receive(2)
    two.ack()
    received = queue.receive(1, ack=[handle(queue, one), handle(queue, two)])
    assert (bodies(received), ids(received.lost)) == ([3], [two.id])
    assert totals(queue)["acked"] == 2


def test_a_group_ends_with_the_last_member(db, queue, grouped):
    group = grouped(queue, end="end")
    group.send_many([1, 2])
    group.start()
    one, two = queue.receive(2)
    handle(queue, one).ack()
    queue.ack([handle(queue, two)])
    db.settled()
    assert group.status().state == "ended"
    assert bodies(queue.receive(2)) == ["end"]


def test_a_group_that_this_client_has_not_met_ends_with_the_next_sweep(db, queue, grouped):
    """It does not know that these are members (§12.10)."""
    group = grouped(queue, end="end")
    group.send(1)
    group.start()
    message = queue.one()
    other = db.another()
    try:
        handle(other.queue(queue.name), message).ack()
    finally:
        other.close()
    db.maintain()
    assert group.status().state == "ended"


@pytest.mark.few_variants
@pytest.mark.parametrize(
    ("id", "token"),
    [("1", 1), (-1, 1), (2**63, 1), (None, 1), (1, 0), (1, 2**53), (1, "1"), (1, True), (1, 1.0)],
)
def test_two_whole_numbers_are_wanted(queue, id, token):
    with pytest.raises(InvalidArgument):
        queue.lease(id, token)
