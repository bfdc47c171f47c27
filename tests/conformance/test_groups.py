"""Groups (semantics §12), and rsqueue's group cases (REFERENCE §7)."""

from __future__ import annotations

import pytest

from fairturn import LeaseLost, Send
from tests.conformance.door import bodies, counts, drain, gauges, told, totals, unique

# --- rsqueue --------------------------------------------------------------------------------------


def test_rsqueue_an_unstarted_group_is_hidden_even_with_better_priority(queue, grouped):
    group = grouped(queue)
    group.send("hidden", priority=9)
    queue.send("plain", priority=-9)
    assert bodies(drain(queue)) == ["plain"]
    assert counts(queue) == {"held": 1}
    assert group.status().state == "open"


def test_rsqueue_start_shows_the_group(queue, grouped):
    group = grouped(queue)
    group.send("a")
    group.send("b", priority=1)
    assert queue.receive() == []
    assert group.start() is True
    assert group.status().state == "running"
    assert bodies(queue.receive(5)) == ["b", "a"]


def test_rsqueue_complete(db, queue, grouped):
    group = grouped(queue, end="end", abort="abort")
    group.send_many(["a", "b"])
    group.start()
    first, second = queue.receive(2)
    first.ack()
    db.settled()
    assert group.status().state == "running"
    second.ack()
    db.settled()
    status = group.status()
    assert (status.state, status.sent, status.done, status.dead) == ("ended", 2, 2, 0)
    assert bodies(drain(queue)) == ["end"]
    assert counts(queue) == {}


def test_rsqueue_clear_means_done_not_cancelled(db, queue, grouped):
    group = grouped(queue, end="end", abort="abort")
    sent = group.send_many(["a", "b"])
    group.start()
    for id in sent:
        queue.cancel(id=id)
    db.settled()
    assert group.status().state == "ended"
    [message] = drain(queue)
    assert message.body == "end"
    assert told(message) == {"outcome": "ended", "sent": 2, "done": 0, "dead": 0}


def test_rsqueue_cancel_and_clear_means_done_and_cancelled(db, queue, grouped):
    group = grouped(queue, end="end", abort="abort")
    group.send_many(["a", "b"])
    group.start()
    assert group.cancel() is True
    status = group.status()
    assert (status.state, gauges(status)) == ("cancelled", {})
    [message] = drain(queue)
    assert message.body == "abort"
    assert told(message) == {"outcome": "cancelled", "sent": 2, "done": 0, "dead": 0}
    assert group.cancel() is False


def test_rsqueue_a_name_belongs_to_one_open_group(db, make, grouped):
    """Theirs is an error; ours joins the open group, and what it was opened with stands."""
    queue, other = make(), make()
    group = grouped(queue, end="first")
    group.send("a")
    again = db.group(group.name, other.name, end="second", on_dead="abort")
    again.send("b")
    assert again.status().queue == queue.name
    assert group.start() is True
    assert again.start() is False
    queue.one().kill()
    other.one().ack()
    db.settled()
    status = again.status()
    assert (status.state, status.sent, status.done, status.dead) == ("ended", 2, 1, 1)
    assert bodies(drain(queue)) == ["first"]
    assert drain(other) == []


# --- opening and starting -------------------------------------------------------------------------


def test_an_empty_group_closes_when_it_is_started(db, queue, grouped, clock):
    group = grouped(queue, end="end")
    assert group.status() is None
    assert group.start() is True
    db.settled()
    status = group.status()
    assert status.state == "ended"
    assert status.created_at == status.started_at == status.closed_at == clock.moment()
    [message] = drain(queue)
    assert told(message) == {"outcome": "ended", "sent": 0, "done": 0, "dead": 0}


def test_the_first_send_makes_the_group_with_its_works(queue, grouped):
    group = grouped(queue, end="end", abort="abort")
    group.send("a")
    assert counts(queue) == {"held": 3}
    assert totals(queue) == {"sent": 1}
    status = group.status()
    assert (status.name, status.queue, status.state) == (group.name, queue.name, "open")
    assert (status.sent, gauges(status)) == (1, {"held": 1})
    assert (status.started_at, status.closed_at) == (None, None)


def test_a_plain_send_joins_or_makes_a_group(db, queue):
    name = unique("g")
    queue.send("a", group=name)
    queue.send_many([Send("b", group=name), Send("c")])
    status = db.group(name).status()
    assert (status.queue, status.sent, status.held) == (queue.name, 2, 2)
    assert bodies(drain(queue)) == ["c"]
    assert db.group(name).start() is True
    assert bodies(drain(queue)) == ["a", "b"]
    db.settled()
    assert db.group(name).status().state == "ended"


def test_one_call_may_send_to_several_groups(db, queue):
    one, two = unique("g"), unique("g")
    queue.send_many([Send(1, group=one), Send(2, group=two), Send(3, group=one)])
    db.group(two).start()
    assert bodies(drain(queue)) == [2]
    db.settled()
    assert db.group(two).status().state == "ended"
    assert (db.group(one).status().state, db.group(one).status().held) == ("open", 2)


def test_starting_again_changes_nothing(queue, grouped, clock):
    group = grouped(queue)
    group.send("a")
    assert group.start() is True
    started = group.status().started_at
    clock.tick(1)
    assert group.start() is False
    assert group.status().started_at == started


def test_start_and_cancel_of_an_unknown_group(db):
    group = db.group(unique("g"))
    assert group.start() is False
    assert group.cancel() is False
    assert group.status() is None


def test_held_members_get_their_state_when_the_group_starts(queue, grouped, clock):
    group = grouped(queue)
    group.send("soon", delay=5)
    group.send("later", delay=50)
    clock.tick(10)
    assert queue.receive() == []
    group.start()
    assert counts(queue) == {"ready": 1, "scheduled": 1}
    message = queue.one()
    assert (message.body, message.due_at) == ("soon", clock.moment(-5))
    assert gauges(group.status()) == {"waiting": 1, "leased": 1}
    message.ack()
    clock.tick(40)
    assert bodies(queue.receive(5)) == ["later"]


def test_a_member_of_a_running_group_is_not_held(queue, grouped):
    group = grouped(queue)
    group.send("a")
    group.start()
    group.send("b")
    group.send("c", delay=5)
    assert counts(queue) == {"ready": 2, "scheduled": 1}


def test_messages_know_their_group(queue, grouped):
    group = grouped(queue, end="end")
    sent = group.send("a", key="k")
    plain = queue.send("b")
    assert queue.get(id=sent).group == group.name
    assert queue.get(id=plain).group is None
    group.start()
    groups = {message.body: message.group for message in queue.receive(5)}
    assert groups == {"a": group.name, "b": None}


def test_held_messages_cannot_be_rescheduled_but_cancelled(db, queue, grouped):
    group = grouped(queue)
    sent = group.send("a")
    assert queue.reschedule(id=sent, delay=0) is False
    assert queue.cancel(id=sent) is True
    assert gauges(group.status()) == {}
    db.settled()
    assert group.status().state == "open"


# --- closing --------------------------------------------------------------------------------------


def test_members_add_members_while_it_runs(db, queue, grouped):
    group = grouped(queue, end="end")
    group.send(3)
    group.start()
    done = []
    while messages := queue.receive():
        [message] = messages
        done.append(message.body)
        if message.body != "end" and message.body > 0:
            queue.send(message.body - 1, group=message.group)
        message.ack()
        db.settled()
    assert done == [3, 2, 1, 0, "end"]
    status = group.status()
    assert (status.state, status.sent, status.done) == ("ended", 4, 4)


def test_the_end_work_reads_the_counts_from_its_headers(db, make, grouped):
    queue = make(max_attempts=1)
    group = grouped(queue, end=Send({"sum": 1}, headers={"mine": 1}, priority=-5, type="t"))
    group.send_many(["acked", "completed", "killed", "failed", Send("gone", expires=1)])
    group.start()
    by_body = {message.body: message for message in queue.receive(4)}
    by_body["acked"].ack()
    by_body["completed"].complete(7)
    by_body["killed"].kill()
    by_body["failed"].fail("boom")
    db.settled()
    assert group.status().state == "running"
    assert queue.cancel(id=queue.peek(state="ready")[0].id)
    db.settled()
    message = queue.one()
    assert (message.body, message.type, message.group) == ({"sum": 1}, "t", None)
    assert message.headers == {
        "mine": 1,
        "fairturn.group": {
            "name": group.name,
            "outcome": "ended",
            "sent": 5,
            "done": 2,
            "dead": 2,
        },
    }


def test_cancelling_a_group_that_was_never_started_sends_the_abort_work(queue, grouped):
    group = grouped(queue, end="end", abort="abort")
    group.send("a")
    assert group.cancel() is True
    assert bodies(drain(queue)) == ["abort"]
    assert counts(queue) == {}
    status = group.status()
    assert (status.state, status.started_at, status.sent) == ("cancelled", None, 1)


def test_leases_are_lost_when_the_group_is_cancelled(make, grouped):
    queue = make(retention=60)
    group = grouped(queue)
    group.send_many(["a", "b", "c"])
    group.start()
    done, leased = queue.receive(2)
    done.ack()
    group.cancel()
    with pytest.raises(LeaseLost):
        leased.ack()
    with pytest.raises(LeaseLost):
        leased.extend()
    assert counts(queue) == {"done": 1}
    assert totals(queue) == {"sent": 3, "delivered": 2, "acked": 1, "cancelled": 2}


def test_a_group_may_span_queues(db, make, grouped):
    first, second = make(), make()
    group = grouped(first, abort="abort")
    group.send("a")
    second.send("b", group=group.name)
    second.send("c")
    group.start()
    leased = second.one()
    group.cancel()
    with pytest.raises(LeaseLost):
        leased.ack()
    assert bodies(drain(first)) == ["abort"]
    assert bodies(drain(second)) == ["c"]
    assert (totals(first)["cancelled"], totals(second)["cancelled"]) == (1, 1)


def test_the_last_member_may_be_in_another_queue(db, make, grouped):
    first, second = make(), make()
    group = grouped(first, end="end")
    group.send("a")
    second.send("b", group=group.name)
    group.start()
    assert bodies(drain(first)) == ["a"]
    db.settled()
    assert group.status().state == "running"
    assert bodies(drain(second)) == ["b"]
    db.settled()
    assert bodies(drain(first)) == ["end"]


def test_carried_acks_end_members_too(db, queue, grouped):
    group = grouped(queue, end="end")
    group.send("a")
    group.start()
    messages = queue.receive()
    # Where the group closes in that very transaction, the end work is given at once.
    given = list(queue.receive(ack=messages))
    db.settled()
    assert bodies(given + drain(queue)) == ["end"]


def test_a_batch_of_acks_ends_a_group_once(db, queue, grouped):
    group = grouped(queue, end="end")
    group.send_many(list(range(20)))
    group.start()
    assert queue.ack(queue.receive(20)).acked == 20
    db.settled()
    assert bodies(drain(queue)) == ["end"]
    assert group.status().done == 20


def test_a_retried_member_keeps_the_group_open(db, queue, grouped, clock):
    group = grouped(queue, end="end")
    group.send("a")
    group.start()
    queue.one().fail("no", delay=5)
    db.settled()
    assert gauges(group.status()) == {"waiting": 1}
    clock.tick(5)
    queue.one().defer(5)
    db.settled()
    clock.tick(5)
    queue.one().release()
    db.settled()
    assert bodies(drain(queue)[:1]) == ["a"]
    db.settled()
    assert group.status().state == "ended"


def test_an_expired_member_leaves_its_group(db, queue, grouped, clock):
    group = grouped(queue, end="end")
    group.send("a", expires=5)
    group.start()
    clock.tick(5)
    db.maintain()
    db.settled()
    [message] = drain(queue)
    assert told(message) == {"outcome": "ended", "sent": 1, "done": 0, "dead": 0}


def test_a_client_that_never_met_a_group_may_end_one(db, queue, grouped):
    group = grouped(queue, end="end")
    sent = group.send("a")
    group.start()
    other = db.another()
    try:
        assert other.queue(queue.name).cancel(id=sent) is True
        other.settled()
    finally:
        other.close()
    assert group.status().state == "ended"


def test_receives_alone_end_what_their_sweeps_ended(db, make, grouped, clock):
    """Without maintenance: the sweep kills the last member, a later receive gives the end work."""
    if db.variant.backend == "mysql" and db.variant.yours:
        pytest.skip("nothing is settled inside your transaction there (§12.10)")
    queue = make(max_attempts=1, lease=5)
    group = grouped(queue, end="end")
    group.send("a")
    group.start()
    queue.one()
    clock.tick(5)
    given = [message for _ in range(3) for message in queue.receive()]
    assert bodies(given) == ["end"]
    assert told(given[0]) == {"outcome": "ended", "sent": 1, "done": 0, "dead": 1}


def test_a_held_member_expires_too(db, queue, grouped, clock):
    group = grouped(queue)
    group.send("a", expires=5)
    clock.tick(5)
    db.maintain()
    assert counts(queue) == {}
    assert (group.status().state, gauges(group.status())) == ("open", {})


def test_purged_members_leave_when_maintenance_sweeps_them(db, make, grouped):
    queue, members = make(), make()
    group = grouped(queue, end="end")
    group.send("a")
    members.send("b", group=group.name)
    group.start()
    queue.one().ack()
    members.purge()
    assert group.status().state == "running"
    db.maintain()
    db.settled()
    assert bodies(drain(queue)) == ["end"]


def test_members_of_a_dropped_queue_leave_too(db, make, grouped):
    queue, members = make(), make()
    group = grouped(queue, end="end")
    group.send("a")
    members.send("b", group=group.name)
    group.start()
    assert bodies(drain(queue)) == ["a"]
    db.settled()
    assert group.status().state == "running"
    members.drop()
    db.maintain()
    db.settled()
    assert bodies(drain(queue)) == ["end"]
    assert group.status().done == 1


# --- your transaction -----------------------------------------------------------------------------


@pytest.mark.yours
def test_rolling_back_the_last_ack_leaves_the_group_running(db, queue, grouped):
    group = grouped(queue, end="end")
    group.send("a")
    group.start()
    message = queue.one()
    with db.rolled_back() as connection:
        db.wait(message.inner.using(connection).ack())
    db.settled()
    status = group.status()
    assert (status.state, status.done, gauges(status)) == ("running", 0, {"leased": 1})
    message.ack()
    db.settled()
    assert group.status().done == 1
    assert bodies(drain(queue)) == ["end"]


@pytest.mark.yours
def test_a_group_of_one_transaction(db, queue, grouped):
    """Opened, filled, started, worked off and closed, all or nothing."""
    group = grouped(queue, end="end")
    with db.rolled_back() as connection:
        bound = group.inner.using(connection)
        db.wait(bound.send("a"))
        db.wait(bound.start())
    assert group.status() is None
    assert counts(queue) == {}
    with db.transaction() as connection:
        bound, mine = group.inner.using(connection), queue.inner.using(connection)
        db.wait(bound.send("a"))
        assert db.wait(bound.start()) is True
        [message] = db.wait(mine.receive())
        db.wait(message.ack())
    db.settled()
    assert group.status().state == "ended"
    assert bodies(drain(queue)) == ["end"]


@pytest.mark.yours
def test_a_cancel_that_is_rolled_back_never_happened(db, queue, grouped):
    group = grouped(queue, abort="abort")
    group.send("a")
    group.start()
    message = queue.one()
    with db.rolled_back() as connection:
        assert db.wait(group.inner.using(connection).cancel()) is True
    message.ack()
    db.settled()
    assert group.status().state == "ended"
    assert counts(queue) == {}
