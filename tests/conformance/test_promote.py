"""queue.promote: scheduled messages are ready ahead of their time (semantics §7.3)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fairturn import InvalidArgument, QueueNotFound, Send
from tests.conformance.door import bodies, counts, drain, totals, unique
from tests.conformance.looks import receiver


def test_what_is_due_soon_is_ready_and_keeps_its_due_time(queue, clock):
    id = queue.send("soon", delay=600, key="k", channel="c", priority=2)
    assert queue.receive() == []
    assert queue.promote(900) == 1
    [message] = queue.peek()
    assert (message.state, message.due_at, message.created_at) == (
        "ready",
        clock.moment(600),
        clock.moment(),
    )
    assert (message.key, message.channel, message.priority) == ("k", "c", 2)
    message = queue.one()
    assert (message.id, message.due_at) == (id, clock.moment(600))
    assert (message.attempts, message.deliveries) == (1, 1)
    message.ack()
    assert counts(queue) == {}


def test_the_end_of_the_time_is_included(queue, clock):
    queue.send_many([Send("at", at=clock.moment(900)), Send("after", at=clock.moment(900.000001))])
    assert queue.promote(timedelta(minutes=15)) == 1
    assert bodies(queue.peek(state="ready")) == ["at"]
    assert bodies(queue.peek(state="scheduled")) == ["after"]
    clock.tick(0.000001)
    assert queue.promote(900) == 1


def test_far_ones_are_left(queue, clock):
    queue.send_many([Send(n, delay=delay) for n, delay in enumerate((901, 3600, 10 * 365 * 86400))])
    assert queue.promote(900) == 0
    assert counts(queue) == {"scheduled": 3}
    assert queue.receive() == []


def test_within_nothing_only_what_is_due(queue, clock):
    queue.send_many([Send("due", delay=5), Send("later", delay=6)])
    assert queue.promote(0) == 0
    clock.tick(5)
    assert queue.promote(0) == 1
    assert bodies(queue.peek(state="ready")) == ["due"]


def test_a_hundred_years(queue):
    queue.send("later", delay=timedelta(days=365 * 99))
    assert queue.promote(timedelta(days=36500)) == 1


def test_the_earliest_due_first_up_to_the_limit(queue):
    # Whatever their age, their priority and their channel.
    delays = (50, 20, 40, 10, 30)
    queue.send_many([Send(d, delay=d, channel="ab"[d // 10 % 2], priority=d % 3) for d in delays])
    assert queue.promote(45, limit=3) == 3
    assert sorted(bodies(queue.peek(state="ready"))) == [10, 20, 30]
    assert queue.promote(45, limit=3) == 1
    assert queue.promote(45, limit=3) == 0
    assert bodies(queue.peek(state="scheduled")) == [50]


def test_more_than_one_portion(queue):
    queue.send_many([Send(n, delay=1 + n) for n in range(2300)])
    assert queue.promote(2200) == 1000
    assert bodies(queue.peek(5000, state="ready")) == list(range(1000))
    assert queue.promote(2200, limit=5000) == 1200
    assert bodies(queue.peek(5000, state="scheduled")) == list(range(2200, 2300))


def test_many_of_one_instant(queue):
    queue.send_many([Send(n, delay=60) for n in range(2100)])
    assert queue.promote(60, limit=2050) == 2050
    assert queue.promote(60, limit=2050) == 50
    assert counts(queue) == {"ready": 2100}


def test_what_has_expired_is_left_alone(queue, clock):
    queue.send_many([Send("expired", delay=600, expires=5), Send("alive", delay=700, expires=6)])
    clock.tick(5)
    assert queue.promote(900, limit=1) == 1
    assert bodies(queue.peek()) == ["alive"]
    assert totals(queue).get("expired", 0) == 0
    assert bodies(queue.receive(5)) == ["alive"]
    assert totals(queue)["expired"] == 1


def test_one_that_expires_before_it_is_due(queue, clock):
    """Promoted in time, it is given; and it expires all the same."""
    queue.send_many([Send(n, delay=600, expires=60) for n in range(2)])
    assert queue.promote(900) == 2
    queue.one().ack()
    clock.tick(60)
    assert queue.receive() == []


def test_only_what_is_scheduled(queue):
    queue.send_many(["leased", "done", "dead"])
    leased, done, dead = queue.receive(3, lease=60)
    done.complete()
    dead.kill("boom")
    queue.send("held", group=unique("g"), delay=5)
    queue.send("ready")
    before = counts(queue)
    assert queue.promote(900) == 0
    assert counts(queue) == before
    leased.ack()


def test_a_pause_is_left_alone(make, clock):
    """What was delivered before waits for its back-off, or was deferred: that comes first."""
    queue = make(backoff=100)
    queue.send_many(["failed", "deferred"])
    queue.one().fail("boom")
    queue.one().defer(50)
    queue.send("new", delay=80)
    assert queue.promote(900) == 1
    message = queue.one()
    assert message.body == "new"
    message.ack()
    assert queue.receive() == []
    clock.tick(100)
    assert sorted(bodies(queue.receive(3))) == ["deferred", "failed"]


def test_a_new_life_has_no_pause(make, clock):
    """Replaced or redriven, it was never delivered (semantics §2.6)."""
    queue = make(max_attempts=1)
    queue.send("old", key="k")
    queue.one().defer(100)
    queue.send("new", key="k", on_conflict="replace", delay=100)
    queue.send("dead")
    queue.one().kill("boom")
    queue.redrive(delay=100)
    assert queue.promote(900) == 2
    assert sorted(bodies(queue.receive(3))) == ["dead", "new"]


def test_a_released_one_keeps_its_due_time(queue, clock):
    queue.send("early", delay=600)
    queue.promote(900)
    queue.one().release()
    [message] = queue.peek()
    assert (message.state, message.due_at) == ("ready", clock.moment(600))
    assert queue.one().attempts == 1


def test_a_recovered_one_keeps_its_due_time(queue, clock):
    queue.send("early", delay=600)
    queue.promote(900)
    queue.one(lease=5)
    clock.tick(5)
    message = queue.one()
    assert (message.recovered, message.due_at) == (True, clock.moment(595))
    message.ack()


def test_defer_moves_it(queue, clock):
    queue.send("early", delay=600)
    queue.promote(900)
    queue.one().defer(30, memo={"due": 1})
    [message] = queue.peek()
    assert (message.state, message.due_at) == ("scheduled", clock.moment(30))
    assert queue.receive() == []
    clock.tick(30)
    assert queue.one().memo == {"due": 1}


def test_a_failed_one_is_scheduled_again(queue, clock):
    queue.send("early", delay=600)
    queue.promote(900)
    queue.one().fail("boom", delay=10)
    [message] = queue.peek()
    assert (message.state, message.due_at) == ("scheduled", clock.moment(10))


def test_replace_by_key_schedules_it_again(queue, clock):
    id = queue.send("old", delay=600, key="k")
    queue.promote(900)
    assert queue.send("new", delay=700, key="k", on_conflict="replace") == id
    assert counts(queue) == {"scheduled": 1}
    assert queue.receive() == []
    assert queue.promote(700) == 1
    assert queue.one().body == "new"


def test_reschedule(queue, clock):
    queue.send("early", delay=600, key="k")
    queue.promote(900)
    assert queue.reschedule(key="k", priority=5)
    assert queue.get(key="k").state == "ready"
    assert queue.reschedule(key="k", delay=600)
    assert queue.get(key="k").state == "scheduled"
    assert queue.cancel(key="k")


def test_those_that_are_due_go_first(queue):
    queue.send("early", delay=600)
    queue.send("now")
    queue.promote(900)
    queue.send("also now")
    assert bodies(drain(queue)) == ["now", "also now", "early"]


def test_a_paused_queue(queue):
    queue.send("early", delay=600)
    queue.pause()
    assert queue.promote(900) == 1
    assert queue.receive() == []
    queue.resume()
    assert bodies(queue.receive()) == ["early"]


def test_other_queues_are_left(queue, make):
    other = make()
    other.send("there", delay=600)
    assert queue.promote(900) == 0
    assert counts(other) == {"scheduled": 1}


def test_it_counts_nothing_and_tells_nothing(db, make):
    queue = make(events=True)
    queue.send("early", delay=600)
    queue.promote(900)
    assert [event.kind for event in db.events(queue.name, after="")] == ["created"]
    assert totals(queue) == {"sent": 1}


def test_stats_and_explain(queue, clock):
    id = queue.send("early", delay=600)
    queue.promote(900)
    stats = queue.stats()
    assert (stats.ready, stats.scheduled) == (1, 0)
    assert stats.oldest_ready == clock.moment(600)
    why = queue.explain(id=id)
    assert (why.state, why.reason, why.position) == ("ready", "ready", 1)
    assert "ready ahead of its time, due in 10 min" in why.text
    clock.tick(600)
    assert "ahead of its time" not in queue.explain(id=id).text


@pytest.mark.yours
def test_a_rollback_takes_it_back(db, queue):
    queue.send("early", delay=600)
    with db.rolled_back() as connection:
        assert db.wait(queue.inner.using(connection).promote(900)) == 1
    assert counts(queue) == {"scheduled": 1}
    assert queue.promote(900) == 1


@pytest.mark.writers
def test_an_open_promotion_keeps_nobody_waiting(db, queue):
    """Others take what it has left, and schedule more in between."""
    queue.send_many([Send(n, delay=10 * n) for n in (1, 2, 3, 4)])
    with db.rolled_back() as connection:
        assert db.wait(queue.inner.using(connection).promote(900, limit=2)) == 2
        db.wait(queue.inner.send(1.5, delay=15))
        assert db.wait(queue.inner.promote(30)) == 2
        assert bodies(db.wait(queue.inner.receive(5))) == [1.5, 3]
    assert bodies(queue.peek(state="scheduled")) == [1, 2, 4]


def test_a_receive_that_waits_is_woken(db, queue, monkeypatch):
    queue.send("early", delay=600)
    waiting = receiver(db, monkeypatch)(queue)
    assert queue.promote(900) == 1
    assert bodies(waiting.result()) == ["early"]


def test_an_unknown_queue(db):
    with pytest.raises(QueueNotFound):
        db.queue(unique()).promote(900)


@pytest.mark.few_variants
@pytest.mark.parametrize("within", [-1, "900", None, float("nan"), True])
def test_bad_times(queue, within):
    with pytest.raises(InvalidArgument, match="within"):
        queue.promote(within)


@pytest.mark.few_variants
@pytest.mark.parametrize("limit", [0, -1, None, 1.5])
def test_bad_limits(queue, limit):
    with pytest.raises(InvalidArgument, match="limit"):
        queue.promote(900, limit=limit)
