"""Death, dead-letter queues, redrive, discard, cancel, reschedule (semantics §2.4, §7, §8)."""

from __future__ import annotations

import pytest

from fairturn import MessageLeased, QueueNotFound, Send
from tests.conformance.door import bodies, channels, counts, drain, ids, totals


def bury(queue, *items, **options):
    sent = queue.send_many([Send(item, **options) for item in items])
    queue.kill(queue.receive(len(items)), "boom")
    return sent


# --- death --------------------------------------------------------------------------------------


def test_fail_without_attempts_left_is_death(make, clock):
    queue = make(max_attempts=2)
    id = queue.send(1, key="k")
    queue.one().fail("first")
    clock.tick(1)
    queue.one().fail("second", delay=60)
    message = queue.get(id=id)
    assert (message.state, message.attempts, message.error) == ("dead", 2, "second")
    assert (message.finished_at, message.key) == (clock.moment(), "k")
    assert [f.error for f in queue.failures()] == ["second", "first"]
    assert totals(queue) == {"sent": 1, "delivered": 2, "failed": 2, "killed": 1, "errors": 2}


def test_the_dead_are_kept_for_ever_by_default(db, queue, clock):
    bury(queue, 1)
    clock.tick(86_400 * 365 * 10)
    db.maintain()
    assert counts(queue) == {"dead": 1}


def test_the_dead_are_never_given(queue, clock):
    bury(queue, 1, 2)
    clock.tick(10**6)
    assert queue.receive(5) == []


# --- dead-letter queues -------------------------------------------------------------------------


def test_the_dead_move_to_the_dead_letter_queue(make, clock):
    grave = make()
    queue = make(dead_letter=grave.name)
    id = queue.send(
        {"a": 1},
        channel="c",
        priority=3,
        key="k",
        version=2,
        type="t",
        headers={"h": 1},
        max_attempts=7,
    )
    queue.one().defer(0, memo="m")
    clock.tick(9)
    queue.one().kill("boom")
    assert queue.get(id=id) is None
    message = grave.get(id=id)
    assert (message.body, message.channel, message.priority) == ({"a": 1}, "c", 3)
    assert (message.version, message.type, message.headers) == (2, "t", {"h": 1})
    assert (message.key, message.memo, message.error) == (None, "m", "boom")
    assert (message.state, message.due_at, message.attempts) == ("ready", clock.moment(), 0)
    assert (message.deliveries, message.max_attempts) == (2, 7)
    assert message.finished_at is None
    assert totals(grave) == {"sent": 1}
    assert totals(queue)["killed"] == 1


def test_a_moved_message_can_be_worked_on(make):
    grave = make()
    queue = make(dead_letter=grave.name, max_attempts=1)
    queue.send(1)
    queue.one().fail("boom")
    grave.one().ack()
    assert grave.stats().total == queue.stats().total == 0


def test_a_lease_that_expires_for_the_last_time_moves_too(make, clock):
    grave = make()
    queue = make(dead_letter=grave.name, max_attempts=1, lease=5)
    queue.send(1)
    queue.one()
    clock.tick(5)
    assert queue.receive() == []
    assert bodies(grave.receive()) == [1]
    assert queue.failures()[0].error == "lease expired with no attempts left"


def test_a_missing_dead_letter_queue_keeps_the_dead_here(make):
    queue = make(dead_letter="no such queue")
    bury(queue, 1)
    assert counts(queue) == {"dead": 1}


def test_a_queue_may_not_bury_into_itself(make):
    queue = make()
    queue.set(dead_letter=queue.name)
    bury(queue, 1)
    assert counts(queue) == {"dead": 1}


def test_the_key_is_free_after_the_move(make):
    grave = make()
    queue = make(dead_letter=grave.name)
    bury(queue, 1, key="k")
    assert queue.send(2, key="k").created
    assert grave.send(3, key="k").created


def test_a_batch_moves_together(make):
    grave = make()
    queue = make(dead_letter=grave.name)
    sent = bury(queue, 1, 2, 3)
    assert ids(grave.receive(5)) == sent
    assert totals(grave)["sent"] == 3


def test_dead_letter_queues_may_be_chained(make):
    last = make()
    middle = make(dead_letter=last.name, max_attempts=1)
    first = make(dead_letter=middle.name, max_attempts=1)
    id = first.send(1)
    first.one().fail("one")
    middle.one().fail("two")
    message = last.one()
    assert (message.id, message.deliveries) == (id, 3)


# --- redrive ------------------------------------------------------------------------------------


def test_redrive_gives_a_new_life(queue, clock):
    [id] = bury(queue, 1, key="k")
    clock.tick(5)
    assert queue.redrive() == 1
    message = queue.get(id=id)
    assert (message.state, message.attempts, message.error) == ("ready", 0, "boom")
    assert (message.due_at, message.finished_at, message.key) == (clock.moment(), None, "k")
    assert queue.one().deliveries == 2


def test_redrive_of_nothing(queue):
    queue.send(1)
    assert queue.redrive() == 0
    assert counts(queue) == {"ready": 1}


def test_redrive_takes_the_earliest_dead_first(queue, clock):
    queue.send_many([1, 2, 3])
    first, second, third = queue.receive(3)
    for message in (second, third, first):
        message.kill("boom")
        clock.tick(1)
    assert queue.redrive(limit=2) == 2
    assert sorted(bodies(queue.receive(5))) == [2, 3]
    assert counts(queue) == {"leased": 2, "dead": 1}


def test_redrive_ties_go_by_id(queue):
    sent = bury(queue, 1, 2, 3)
    queue.redrive(limit=2)
    assert ids(queue.peek(state="ready")) == list(sent[:2])


def test_redrive_with_a_delay(queue, clock):
    bury(queue, 1)
    queue.redrive(delay=60)
    assert counts(queue) == {"scheduled": 1}
    assert queue.peek()[0].due_at == clock.moment(60)


def test_redrive_to_another_queue(make, clock):
    queue, other = make(), make()
    sent = bury(queue, 1, 2, channel="c")
    queue.send("waiting")
    assert queue.redrive(to=other.name) == 2
    received = other.receive(5)
    assert ids(received) == sent
    assert channels(received) == ["c", "c"]
    assert counts(queue) == {"ready": 1}
    assert totals(other)["sent"] == 2


def test_redrive_to_another_queue_drops_the_key(make):
    queue, other = make(), make()
    bury(queue, 1, key="k")
    queue.redrive(to=other.name)
    assert other.one().key is None
    assert queue.send(2, key="k").created


def test_redrive_to_an_unknown_queue_moves_nothing(queue):
    bury(queue, 1)
    with pytest.raises(QueueNotFound):
        queue.redrive(to="no such queue")
    assert counts(queue) == {"dead": 1}


def test_a_redriven_message_may_die_again(make):
    queue = make(max_attempts=1)
    queue.send(1)
    for n in range(3):
        queue.one().fail(str(n))
        assert counts(queue) == {"dead": 1}
        assert queue.redrive() == 1
    assert totals(queue)["killed"] == 3


# --- discard ------------------------------------------------------------------------------------


def test_discard_deletes_the_dead(queue):
    bury(queue, 1, 2)
    queue.send(3)
    assert queue.discard() == 2
    assert counts(queue) == {"ready": 1}
    assert totals(queue)["cancelled"] == 2


def test_discard_deletes_the_done(queue):
    queue.send_many([1, 2])
    queue.complete(queue.receive(2))
    bury(queue, 3)
    assert queue.discard(state="done") == 2
    assert counts(queue) == {"dead": 1}


def test_discard_takes_the_oldest_first(queue, clock):
    queue.send_many([1, 2, 3])
    first, second, third = queue.receive(3)
    for message in (third, first, second):
        message.kill("boom")
        clock.tick(1)
    assert queue.discard(limit=2) == 2
    assert bodies(queue.peek()) == [2]


def test_discard_of_nothing(queue):
    assert queue.discard() == 0


# --- cancel -------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 60])
def test_cancel_a_waiting_message(queue, delay):
    id = queue.send(1, delay=delay)
    assert queue.cancel(id=id) is True
    assert queue.cancel(id=id) is False
    assert queue.stats().total == 0
    assert totals(queue) == {"sent": 1, "cancelled": 1}


def test_cancel_a_leased_message_needs_force(queue):
    queue.send(1)
    message = queue.one()
    with pytest.raises(MessageLeased):
        queue.cancel(id=message.id)
    assert counts(queue) == {"leased": 1}
    assert "cancelled" not in totals(queue)
    assert queue.cancel(id=message.id, force=True) is True


@pytest.mark.parametrize("end", ["complete", "kill"])
def test_cancel_a_finished_message_needs_force(queue, end):
    queue.send(1)
    message = queue.one()
    getattr(message, end)()
    assert queue.cancel(id=message.id) is False
    assert queue.stats().total == 1
    assert queue.cancel(id=message.id, force=True) is True
    assert queue.stats().total == 0


def test_cancel_an_unknown_message(queue):
    assert queue.cancel(id=2**62) is False
    assert queue.cancel(key="no such key") is False
    assert queue.cancel(id=2**62, force=True) is False


def test_cancel_knows_only_its_own_queue(make):
    one, other = make(), make()
    id = one.send(1)
    assert other.cancel(id=id, force=True) is False
    assert counts(one) == {"ready": 1}


def test_a_failed_message_that_waits_can_be_cancelled(queue):
    queue.send(1)
    message = queue.one()
    message.fail("boom", delay=60)
    assert queue.cancel(id=message.id) is True


# --- reschedule ---------------------------------------------------------------------------------


def test_reschedule_to_later_and_to_now(queue, clock):
    id = queue.send(1)
    assert queue.reschedule(id=id, delay=60) is True
    assert counts(queue) == {"scheduled": 1}
    assert queue.get(id=id).due_at == clock.moment(60)
    assert queue.reschedule(id=id, delay=0) is True
    assert counts(queue) == {"ready": 1}
    assert queue.reschedule(id=id, at=clock.moment(-60)) is True
    assert queue.get(id=id).due_at == clock.moment(-60)


def test_reschedule_only_the_priority(queue, clock):
    id = queue.send(1, delay=60, priority=1)
    assert queue.reschedule(id=id, priority=-7) is True
    message = queue.get(id=id)
    assert (message.priority, message.due_at) == (-7, clock.moment(60))
    assert message.state == "scheduled"


def test_reschedule_only_the_time(queue):
    id = queue.send(1, priority=4)
    queue.reschedule(id=id, delay=5)
    assert queue.get(id=id).priority == 4


def test_reschedule_both(queue, clock):
    id = queue.send(1)
    queue.reschedule(id=id, delay=5, priority=2)
    message = queue.get(id=id)
    assert (message.due_at, message.priority) == (clock.moment(5), 2)


def test_reschedule_keeps_attempts(queue):
    queue.send(1)
    message = queue.one()
    message.fail("boom", delay=60)
    queue.reschedule(id=message.id, delay=0)
    assert queue.one().attempts == 2


def test_reschedule_a_leased_message_is_an_error(queue):
    queue.send(1)
    message = queue.one()
    with pytest.raises(MessageLeased):
        queue.reschedule(id=message.id, delay=5)
    message.ack()


@pytest.mark.parametrize("end", ["complete", "kill"])
def test_reschedule_a_finished_message_does_nothing(queue, end):
    queue.send(1)
    message = queue.one()
    getattr(message, end)()
    before = queue.get(id=message.id)._row
    assert queue.reschedule(id=message.id, delay=5) is False
    assert queue.get(id=message.id)._row == before


def test_reschedule_an_unknown_message(queue):
    assert queue.reschedule(id=2**62, delay=5) is False


def test_all_that_died_can_be_drained(queue):
    bury(queue, *range(20))
    assert queue.redrive() == 20
    assert sorted(bodies(drain(queue, 7))) == list(range(20))
