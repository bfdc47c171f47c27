"""Where a message died, and when it was first delivered (semantics §2.4, §2.6)."""

from __future__ import annotations

import pytest

from fairturn import Send
from tests.conformance.door import ids


@pytest.fixture
def pair(make):
    """A queue whose messages die at the first failure, and its dead-letter queue."""
    grave = make(max_attempts=1)
    return make(dead_letter=grave.name, max_attempts=1), grave


def origins(queue):
    """By every way to look at its messages that leaves them alone."""
    peeked = queue.peek(100)
    got = [queue.get(id=message.id) for message in peeked]
    assert [m.origin for m in got] == [m.origin for m in peeked]
    return [message.origin for message in peeked]


def firsts(queue):
    peeked = queue.peek(100)
    got = [queue.get(id=message.id) for message in peeked]
    assert [m.first_delivered_at for m in got] == [m.first_delivered_at for m in peeked]
    return [message.first_delivered_at for message in peeked]


# --- origin -------------------------------------------------------------------------------------


def test_a_message_has_no_origin(queue):
    queue.send_many([Send(1), Send(2, key="k", channel="c"), Send(3, delay=9)])
    assert origins(queue) == [None] * 3
    assert [message.origin for message in queue.receive(2)] == [None] * 2
    assert queue.get(key="k").origin is None


def test_death_in_its_own_queue_gives_none(queue):
    queue.send(1)
    queue.one().kill("boom")
    assert origins(queue) == [None]


def test_where_it_died(pair):
    queue, grave = pair
    sent = queue.send_many([1, 2, 3])
    one, two, three = queue.receive(3)
    one.kill("boom")
    two.fail("boom")
    assert origins(grave) == [queue.name] * 2
    three.kill("boom")
    messages = grave.receive(3)
    assert ids(messages) == sent
    assert [message.origin for message in messages] == [queue.name] * 3


def test_death_by_the_end_of_a_lease(make, clock):
    grave = make()
    queue = make(dead_letter=grave.name, max_attempts=1, lease=5)
    queue.send(1)
    queue.one()
    clock.tick(5)
    assert queue.receive() == []
    assert grave.one().origin == queue.name


def test_one_at_a_time_and_several_of_one_channel(pair):
    queue, grave = pair
    queue.send_many([Send(n, channel="c") for n in range(8)])
    queue.kill(queue.receive(8), "boom")
    found = [grave.one() for _ in range(4)] + list(grave.receive(4))
    assert [message.origin for message in found] == [queue.name] * 8


def test_several_queues_bury_in_one(make):
    grave = make()
    queues = [make(dead_letter=grave.name) for _ in range(3)]
    for queue in queues:
        queue.send(1)
        queue.one().kill("boom")
    assert grave.send(2)
    assert origins(grave) == [*(queue.name for queue in queues), None]
    assert [m.origin for m in grave.receive(4)] == [*(queue.name for queue in queues), None]


def test_it_stays_through_the_work_in_the_grave(pair, clock):
    queue, grave = pair
    grave.set(max_attempts=0)
    queue.send(1)
    queue.one().kill("boom")
    grave.one().fail("again", delay=1)
    clock.tick(1)
    grave.one().defer(1)
    clock.tick(1)
    grave.one().release()
    message = grave.one()
    assert message.origin == queue.name
    message.extend(60)
    assert (message.origin, message.lease_until) == (queue.name, clock.moment(60))
    message.complete("ok")
    assert origins(grave) == [queue.name]


def test_a_second_death_within_the_grave_and_back(pair):
    queue, grave = pair
    queue.send(1)
    queue.one().kill("boom")
    grave.one().kill("boom")
    assert origins(grave) == [queue.name]
    assert grave.redrive() == 1
    assert grave.one().origin == queue.name


def test_a_second_death_that_moves_it_on(make):
    last = make()
    middle = make(dead_letter=last.name)
    first = make(dead_letter=middle.name)
    first.send(1)
    first.one().kill("boom")
    middle.one().kill("boom")
    assert last.one().origin == middle.name


def test_redriven_into_another_queue_it_has_none(pair, make):
    queue, grave = pair
    elsewhere = make()
    id = queue.send(1)
    queue.one().kill("boom")
    grave.one().kill("boom")
    assert grave.redrive(to=elsewhere.name) == 1
    assert origins(elsewhere) == [None]
    assert queue.wait(id=id, timeout=0).state == "gone"
    assert elsewhere.one().origin is None


def test_a_queue_that_was_dropped_is_no_origin(pair):
    queue, grave = pair
    queue.send_many([1, 2])
    queue.kill(queue.receive(2), "boom")
    queue.drop()
    assert origins(grave) == [None] * 2
    assert grave.one().origin is None
    assert queue.create() is True  # another queue of the same name
    assert grave.one().origin is None
    assert origins(grave) == [None] * 2


def test_a_purged_queue_is_still_the_origin(pair):
    queue, grave = pair
    queue.send(1)
    queue.one().kill("boom")
    queue.purge(reset=True)
    assert grave.one().origin == queue.name


def test_any_name(make):
    grave = make()
    nasty = make(name="é'\"\\ %s $1 😀", dead_letter=grave.name)
    nasty.send(1)
    nasty.one().kill("boom")
    assert origins(grave) == [nasty.name]
    assert grave.one().origin == nasty.name


def test_it_goes_with_a_group_in_the_grave(pair, grouped):
    queue, grave = pair
    queue.send(1)
    queue.one().kill("boom")
    grouped(grave).start()
    message = grave.one()
    assert (message.origin, message.group) == (queue.name, None)


# --- the first delivery -------------------------------------------------------------------------


def test_never_delivered(queue):
    queue.send_many([Send(1), Send(2, delay=9)])
    assert firsts(queue) == [None, None]


def test_the_first_delivery_counts(make, clock):
    queue = make(lease=5)
    queue.send(1)
    clock.tick(3)
    first = clock.moment()
    assert queue.one().first_delivered_at == first
    assert firsts(queue) == [first]
    clock.tick(5)  # the lease ends
    message = queue.one()
    assert (message.first_delivered_at, message.deliveries) == (first, 2)
    assert firsts(queue) == [first]


def test_each_message_has_its_own(queue, clock):
    queue.send_many([1, 2, 3])
    times = []
    for _ in range(3):
        clock.tick(1)
        times.append(clock.moment())
        assert queue.one().first_delivered_at == times[-1]
    assert firsts(queue) == times


def test_every_verb_keeps_it(make, clock):
    queue = make(retention=60, max_attempts=9)
    queue.send(1)
    clock.tick(1)
    first = clock.moment()
    for verb, args in (("release", ()), ("defer", (1,)), ("fail", ("no",)), ("kill", ("no",))):
        message = queue.one()
        assert message.first_delivered_at == first
        message.extend(60)
        message.progress(0.5)
        assert message.first_delivered_at == first
        clock.tick(1)
        getattr(message, verb)(*args)
        assert firsts(queue) == [first], verb
        clock.tick(1)
    queue.send_many([2, 3])
    given = clock.moment()
    done, kept = queue.receive(2)
    clock.tick(1)
    done.complete("ok")
    kept.ack()
    assert firsts(queue) == [first, given, given]


def test_a_reschedule_keeps_it(queue, clock):
    id = queue.send(1)
    first = clock.moment()
    queue.one().defer(9)
    clock.tick(1)
    assert queue.reschedule(id=id, delay=0)
    assert queue.one().first_delivered_at == first


def test_a_dead_letter_keeps_it(pair, clock):
    queue, grave = pair
    queue.send(1)
    first = clock.moment()
    message = queue.one()
    clock.tick(1)
    message.kill("boom")
    assert firsts(grave) == [first]
    clock.tick(1)
    assert grave.one().first_delivered_at == first


def test_a_redrive_forgets_it(queue, clock):
    queue.send(1)
    queue.one().kill("boom")
    clock.tick(1)
    assert queue.redrive() == 1
    assert firsts(queue) == [None]
    message = queue.one()
    assert (message.first_delivered_at, message.deliveries) == (clock.moment(), 2)


def test_a_redrive_elsewhere_forgets_it(queue, make, clock):
    elsewhere = make()
    queue.send(1)
    queue.one().kill("boom")
    clock.tick(1)
    assert queue.redrive(to=elsewhere.name) == 1
    assert firsts(elsewhere) == [None]
    clock.tick(1)
    assert elsewhere.one().first_delivered_at == clock.moment()


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "in a batch"])
def test_a_replaced_message_forgets_it(queue, clock, others):
    queue.send(1, key="k")
    queue.one().defer(9)
    clock.tick(1)
    items = [Send(2, key="k", on_conflict="replace"), *(Send(n) for n in range(others))]
    assert queue.send_many(items)[0].outcome == "replaced"
    assert firsts(queue) == [None] * (1 + others)
    clock.tick(1)
    again = queue.one()
    assert (again.body, again.first_delivered_at) == (2, clock.moment())


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "in a batch"])
def test_a_rearmed_message_forgets_it(make, clock, others):
    queue = make(retention=60)
    queue.send(1, key="k")
    queue.one().ack()
    clock.tick(1)
    items = [Send(2, key="k", on_conflict="replace"), *(Send(n) for n in range(others))]
    assert queue.send_many(items)[0].outcome == "replaced"
    assert firsts(queue) == [None] * (1 + others)


def test_a_refused_replacement_changes_nothing(queue, clock):
    queue.send(1, key="k")
    first = clock.moment()
    queue.one()
    clock.tick(1)
    assert queue.send(2, key="k", on_conflict="replace").outcome == "refused"
    assert firsts(queue) == [first]


def test_the_work_of_a_group_has_none_before_it_is_delivered(queue, grouped, db, clock):
    grouped(queue, end="end").start()
    db.settled()
    assert firsts(queue) == [None]
    clock.tick(1)
    assert queue.one().first_delivered_at == clock.moment()


def test_in_ordered_and_limited_channels(make, clock):
    for policy in ({"ordered": True}, {"max_concurrency": 1}, {"rate": "100/s", "burst": 100}):
        queue = make()
        queue.channel("c").set_policy(**policy)
        queue.send_many([Send(n, channel="c") for n in range(3)])
        for _ in range(3):
            clock.tick(1)
            message = queue.one()
            assert message.first_delivered_at == clock.moment(), policy
            message.ack()
