"""queue.move: ready messages go to another queue as new ones (semantics §8.3)."""

from __future__ import annotations

import pytest

from fairturn import InvalidArgument, InvalidName, LeaseLost, Policy, QueueNotFound, Send
from tests.conformance.door import bodies, counts, drain, ids, totals, unique
from tests.conformance.looks import LONG, receiver


@pytest.fixture
def other(make):
    return make()


def bury(queue, *items):
    """Send these and let them die in the queue."""
    queue.send_many(items)
    queue.kill(queue.receive(len(items)), "boom")


def test_a_moved_message_is_a_new_one(queue, other, clock):
    old = queue.send(
        {"a": 1},
        channel="c",
        priority=3,
        key="k",
        version=2,
        type="t",
        headers={"h": 1},
        lease=7,
        max_attempts=9,
    )
    queue.one().defer(0, memo={"m": 1})
    queue.one().fail("boom", delay=0)
    clock.tick(100)
    assert queue.move(other.name) == 1
    assert queue.get(id=old) is None
    [message] = other.peek()
    assert message.id > old
    assert (message.created_at, message.due_at) == (clock.moment(), clock.moment())
    assert (message.state, message.attempts, message.deliveries) == ("ready", 0, 0)
    assert (message.body, message.channel, message.priority) == ({"a": 1}, "c", 3)
    assert (message.version, message.type, message.headers) == (2, "t", {"h": 1})
    assert (message.key, message.memo, message.error) == (None, None, None)
    assert (message.recovered, message.group, message.expires_at) == (False, None, None)
    leased = other.one()
    assert (leased.lease_until, leased.max_attempts) == (clock.moment(7), None)
    assert other.get(id=leased.id).max_attempts == 9


def test_bytes_stay_bytes(queue, other):
    queue.send(b"\x00[1]")
    queue.one().defer(0, memo={"json": True})
    queue.move(other.name)
    assert other.one().body == b"\x00[1]"


def test_the_key_is_free_again(queue, other):
    queue.send(1, key="k")
    queue.move(other.name)
    queue.send(2, key="k")
    other.send(3, key="k")
    assert sorted(bodies(other.peek())) == [1, 3]


def test_the_oldest_go_first_and_stay_in_order(queue, other):
    # By their ids, whatever their priority and their channel.
    queue.send_many([Send(n, channel="ab"[n % 2], priority=n % 3) for n in range(9)])
    assert queue.move(other.name, limit=4) == 4
    assert bodies(other.peek()) == [0, 1, 2, 3]
    assert queue.move(other.name, limit=4) == 4
    assert queue.move(other.name, limit=4) == 1
    assert queue.move(other.name, limit=4) == 0
    assert bodies(other.peek()) == list(range(9))


def test_more_than_one_portion(queue, other):
    queue.send_many(list(range(2300)))
    assert queue.move(other.name) == 1000
    assert queue.move(other.name, limit=5000) == 1300
    assert bodies(other.peek(5000)) == list(range(2300))
    assert queue.stats().total == 0


def test_only_what_is_ready(queue, other, clock):
    queue.send_many(["leased", "done", "dead"])
    leased, done, dead = queue.receive(3, lease=60)
    done.complete()
    dead.kill("boom")
    queue.send("later", delay=10)
    queue.send("held", group=unique("g"))
    queue.send("now")
    assert queue.move(other.name) == 1
    assert bodies(other.peek()) == ["now"]
    left = {"scheduled": 1, "leased": 1, "done": 1, "dead": 1, "held": 1}
    assert counts(queue) == left
    leased.ack()


def test_what_is_due_is_ready(queue, other, clock):
    queue.send("due", delay=10)
    queue.send("later", delay=11)
    clock.tick(10)
    assert queue.move(other.name) == 1
    assert bodies(other.peek()) == ["due"]


def test_an_ended_lease_is_ready(queue, other, clock):
    queue.send(1)
    message = queue.one(lease=5)
    clock.tick(5)
    assert queue.move(other.name) == 1
    assert totals(queue) == {"sent": 1, "delivered": 1, "recovered": 1}
    with pytest.raises(LeaseLost):
        message.ack()
    [moved] = other.peek()
    assert (moved.recovered, moved.attempts) == (False, 0)


def test_a_lease_without_attempts_left_dies(make, other, clock):
    queue = make(max_attempts=1)
    queue.send(1)
    queue.one(lease=5)
    clock.tick(5)
    assert queue.move(other.name) == 0
    assert counts(queue) == {"dead": 1}
    assert totals(queue)["killed"] == totals(queue)["errors"] == 1


def test_a_lease_of_a_live_permit_is_left(db, queue, other, clock):
    permit = db.permit(ttl=100)
    queue.send(1)
    message = queue.one(lease=5, permit=permit)
    clock.tick(50)
    assert queue.move(other.name) == 0
    message.ack()


def test_what_has_expired_is_gone(queue, other, clock):
    queue.send(1, expires=5)
    queue.send(2, expires=6)
    clock.tick(5)
    assert queue.move(other.name) == 1
    assert totals(queue)["expired"] == 1
    [message] = other.peek()
    assert (message.body, message.expires_at) == (2, None)


def test_it_expires_as_the_target_says(queue, make, clock):
    other = make(expires=50)
    queue.send(1, expires=1000)
    clock.tick(3)
    queue.move(other.name)
    assert other.peek()[0].expires_at == clock.moment(50)


# --- home -----------------------------------------------------------------------------------------


def test_without_a_name_each_goes_where_it_died(make, clock):
    grave = make()
    first, second = make(dead_letter=grave.name), make(dead_letter=grave.name, expires=9)
    bury(first, 1, 2)
    bury(second, 3)
    bury(first, 4)
    grave.send("a stranger")
    assert grave.move() == 4
    assert bodies(first.peek()) == [1, 2, 4]
    [message] = second.peek()
    assert (message.body, message.error, message.attempts) == (3, None, 0)
    assert message.expires_at == clock.moment(9)
    assert bodies(grave.peek()) == ["a stranger"]
    assert grave.move() == 0


def test_those_without_a_home_do_not_count(make):
    grave = make()
    queue = make(dead_letter=grave.name)
    grave.send_many(range(5))
    bury(queue, "a", "b", "c")
    grave.send_many(range(5))
    assert grave.move(limit=2) == 2
    assert bodies(queue.peek()) == ["a", "b"]
    assert grave.move(limit=2) == 1
    assert grave.stats().ready == 10


def test_one_whose_home_was_dropped_stays(make, db):
    grave = make()
    queue = make(dead_letter=grave.name)
    bury(queue, 1)
    queue.drop()
    assert grave.move() == 0
    queue.create()  # another queue of the same name
    assert grave.move() == 0
    assert bodies(grave.peek()) == [1]


def test_a_purged_home_is_still_home(make):
    grave = make()
    queue = make(dead_letter=grave.name)
    bury(queue, 1)
    queue.purge()
    assert grave.move() == 1
    assert bodies(queue.peek()) == [1]


def test_a_moved_message_has_no_home(make):
    grave, other = make(), make()
    queue = make(dead_letter=grave.name)
    bury(queue, 1)
    assert grave.move(other.name) == 1
    assert other.move() == 0


def test_a_message_that_was_redriven_to_another_queue_has_no_home(make):
    grave, other = make(), make()
    queue = make(dead_letter=grave.name)
    bury(queue, 1)
    grave.one().kill("again")
    assert grave.redrive(to=other.name) == 1
    assert other.move() == 0
    assert bodies(other.peek()) == [1]


def test_it_may_die_and_go_home_again(make):
    grave = make()
    queue = make(dead_letter=grave.name, max_attempts=1)
    queue.send("stubborn")
    for _ in range(3):
        queue.one().fail("boom")
        assert grave.move() == 1
    assert drain(queue)[0].body == "stubborn"
    assert [f.error for f in queue.failures()] == ["boom"] * 3


# --- what it does not do --------------------------------------------------------------------------


def test_limits_and_pauses_do_not_matter(make):
    queue = make(policy=Policy(ordered=True, max_concurrency=1))
    other = make(policy=Policy(max_size=1, paused=True), max_body=1)
    queue.set_limit(max_concurrency=1)
    queue.send_many(["first", "second", "third"])
    first = queue.one()
    queue.pause()
    assert queue.move(other.name) == 2
    assert bodies(other.peek()) == ["second", "third"]
    first.ack()


def test_the_order_of_an_ordered_channel_is_kept(make):
    queue, other = make(policy=Policy(ordered=True)), make(policy=Policy(ordered=True))
    queue.send_many([1, 2, 3])
    queue.one().release()
    queue.move(other.name)
    assert bodies(drain(other)) == [1, 2, 3]


def test_only_the_targets_sent_counts(queue, other):
    queue.send_many([1, 2])
    queue.move(other.name)
    assert (totals(queue), totals(other)) == ({"sent": 2}, {"sent": 2})


def test_both_queues_tell_it(make, db):
    queue, other = make(events=True), make(events=True)
    old = queue.send_many([Send(1, key="k", channel="c"), Send(2)])
    start = db.events(after="").cursor
    queue.move(other.name)
    new = ids(other.peek())
    told = [(e.kind, e.queue, e.id, e.key, e.channel) for e in db.events(after=start)]
    assert sorted(told) == sorted(
        [
            ("created", other.name, new[0], None, "c"),
            ("created", other.name, new[1], None, ""),
            ("deleted", queue.name, int(old[0]), "k", "c"),
            ("deleted", queue.name, int(old[1]), None, ""),
        ]
    )
    assert [e.delay for e in db.events(other.name, after=start)] == [0, 0]


def test_a_member_leaves_its_group(db, queue, other, grouped):
    group = grouped(queue, end="end")
    group.send_many([1, 2])
    group.start()
    assert queue.move(other.name, limit=1) == 1
    assert group.status().state == "running"
    assert queue.move(other.name, limit=1) == 1
    db.settled()
    status = group.status()
    assert (status.state, status.sent, status.done, status.dead) == ("ended", 2, 0, 0)
    assert bodies(queue.receive(2)) == ["end"]
    assert [m.group for m in other.peek()] == [None, None]


# --- those who wait -------------------------------------------------------------------------------


def test_a_waiting_receive_of_the_target_is_woken(db, queue, other, monkeypatch):
    queue.send("here")
    waiting = receiver(db, monkeypatch)(other)
    queue.move(other.name)
    assert bodies(waiting.result()) == ["here"]


def test_who_waits_for_the_old_one_learns_that_it_is_gone(db, queue, other):
    old = queue.send(1)
    waiting = db.background(lambda: queue.inner.wait(id=old, timeout=LONG))
    queue.move(other.name)
    assert waiting.result().state == "gone"


# --- mistakes and transactions --------------------------------------------------------------------


def test_an_unknown_queue_is_an_error(queue):
    queue.send(1)
    with pytest.raises(QueueNotFound) as caught:
        queue.move("no such queue")
    assert caught.value.queue == "no such queue"
    assert counts(queue) == {"ready": 1}


def test_an_unknown_source_is_an_error(db, queue):
    for to in (None, queue.name):
        with pytest.raises(QueueNotFound) as caught:
            db.queue("no such queue").move(to)
        assert caught.value.queue == "no such queue"


@pytest.mark.few_variants
def test_bad_arguments(queue, other):
    with pytest.raises(InvalidArgument, match="itself"):
        queue.move(queue.name)
    for limit in (0, -1, 1.5, None, "1", 2**31):
        with pytest.raises(InvalidArgument, match="limit"):
            queue.move(other.name, limit=limit)
    for name in ("", "a\0", 7):
        with pytest.raises(InvalidName):
            queue.move(name)


@pytest.mark.yours
def test_a_rollback_takes_it_back(db, queue, other):
    sent = queue.send_many([Send(1, key="k"), Send(2)])
    with db.rolled_back() as connection:
        bound = queue.inner.using(connection)
        assert db.wait(bound.move(other.name)) == 2
    assert ids(queue.peek()) == list(map(int, sent))
    assert queue.get(key="k").body == 1
    assert other.stats().total == other.stats().sent == 0


@pytest.mark.writers
def test_an_open_move_keeps_only_what_it_moves_from_receivers(db, queue, other):
    queue.send_many([1, 2, 3, 4])
    with db.rolled_back() as connection:
        db.wait(queue.inner.using(connection).move(other.name, limit=2))
        received = db.wait(queue.inner.receive(4))
        assert bodies(received) == [3, 4]
        queue_send = db.wait(queue.inner.send(5))
    assert bodies(queue.peek(state="ready")) == [1, 2, 5]
    assert queue_send == queue.peek(state="ready")[-1].id
