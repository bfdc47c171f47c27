"""Schedules (semantics §18): set, pause, trigger, remove, and what goes wrong; in every variant."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import pytest

import fairturn
from fairturn import InvalidArgument, InvalidName, QueueNotFound, ScheduleNotFound
from tests.conformance.door import START, bodies, drain, totals, unique
from tests.conformance.scheduling import DAY, HOUR, HOURLY, NIGHTLY, ScheduleDoor, at, told

# --- changing -------------------------------------------------------------------------------------


def test_set_creates_then_changes(db, queue, make, clock, scheduled):
    schedule = scheduled(queue, "old", cron=HOURLY, owner="app")
    created = clock.moment()
    clock.tick(60)
    other = make()
    assert schedule.set(other.name, "new", cron=NIGHTLY, timezone="Europe/Rome") is False
    status = schedule.get()
    assert (status.queue, status.body, status.owner) == (other.name, "new", None)
    assert (status.cron, status.timezone) == (NIGHTLY, "Europe/Rome")
    assert status.next_at == at("2030-03-18T02:00:00")
    assert (status.created_at, status.updated_at) == (created, clock.moment())
    clock.tick(DAY)
    db.run_schedules()
    assert bodies(drain(other)) == ["new"]
    assert drain(queue) == []


def test_set_as_it_is_changes_nothing(db, queue, clock, scheduled):
    """As every start of every worker does."""
    options: dict[str, Any] = {"every": 600, "owner": "app", "headers": {"b": 1, "a": 2}}
    schedule = scheduled(queue, {"x": 1}, **options)
    before = schedule.get()
    clock.tick(500)
    assert schedule.set(queue.name, {"x": 1}, **options) is False
    assert schedule.get() == before


def test_set_with_the_same_times_keeps_the_tick_it_waits_for(db, queue, clock, scheduled):
    schedule = scheduled(queue, "old", every=600)
    before = schedule.get()
    clock.tick(500)
    schedule.set(queue.name, "new", every=600, missed="skip")
    after = schedule.get()
    assert (after.next_at, after.body, after.missed) == (before.next_at, "new", "skip")
    schedule.set(queue.name, "new", every=300)
    assert schedule.get().next_at == clock.moment(300)


def test_a_due_tick_survives_a_change_of_the_body(db, queue, clock, scheduled):
    schedule = scheduled(queue, "old", every=60)
    clock.tick(61)
    schedule.set(queue.name, "new", every=60)
    assert db.run_schedules().sent == 1
    assert bodies(drain(queue)) == ["new"]


def test_a_paused_schedule_sends_nothing_and_misses_nothing(db, queue, clock, scheduled):
    schedule = scheduled(queue, cron=HOURLY, missed="backfill", overlap="allow")
    schedule.pause()
    schedule.pause()
    status = schedule.get()
    assert (status.paused, status.next_at, status.finished) == (True, None, False)
    assert schedule.upcoming() == []
    clock.tick(5 * HOUR)
    ran = db.run_schedules()
    assert (ran.sent, ran.next_in) == (0, None)
    schedule.resume()
    schedule.resume()
    assert schedule.get().next_at == at("2030-03-17T23:00:00")
    assert db.run_schedules().sent == 0
    clock.tick(HOUR)
    assert db.run_schedules().sent == 1


def test_set_leaves_a_paused_schedule_paused(db, queue, clock, scheduled):
    schedule = scheduled(queue, every=60)
    schedule.pause()
    schedule.set(queue.name, "new", every=30)
    assert schedule.get().paused is True
    clock.tick(100)
    assert db.run_schedules().sent == 0
    schedule.resume()
    clock.tick(30)
    assert db.run_schedules().sent == 1


def test_a_single_time_is_not_lost_in_a_pause(db, queue, clock, scheduled):
    schedule = scheduled(queue, at=clock.moment(60))
    schedule.pause()
    clock.tick(600)
    assert db.run_schedules().sent == 0
    schedule.resume()
    assert db.run_schedules().sent == 1


def test_remove(db, queue, clock, scheduled):
    schedule = scheduled(queue, every=60)
    assert schedule.remove() is True
    assert schedule.remove() is False
    assert schedule.get() is None
    clock.tick(60)
    assert db.run_schedules().sent == 0


def test_trigger_sends_now_and_leaves_the_ticks_alone(db, queue, clock, scheduled):
    schedule = scheduled(queue, "go", every=60)
    before = schedule.get()
    assert schedule.trigger().outcome == "sent"
    assert schedule.trigger().outcome == "replaced"  # overlap: the waiting one
    assert schedule.get() == before
    message = queue.one()
    assert (message.body, told(message)) == ("go", {"name": schedule.name, "tick": None})
    assert schedule.trigger().outcome == "refused"  # overlap: the running one
    message.ack()
    schedule.pause()
    assert schedule.trigger().outcome == "sent"


def test_trigger_where_overlap_is_allowed(queue, scheduled):
    schedule = scheduled(queue, "go", every=60, overlap="allow")
    assert [schedule.trigger().outcome for _ in range(3)] == ["sent"] * 3
    assert bodies(drain(queue)) == ["go"] * 3


def test_upcoming(queue, clock, scheduled):
    schedule = scheduled(queue, cron="30 2 * * *", timezone="Europe/Rome")
    clock.us = START
    found = schedule.upcoming(16)
    assert len(found) == 16
    shown = [tick.strftime("%d %H:%M %z") for tick in found]
    assert shown[0] == "18 02:30 +0100"
    assert shown[12:15] == ["30 02:30 +0100", "31 03:00 +0200", "01 02:30 +0200"]
    once = scheduled(queue, at=clock.moment(5))
    assert once.upcoming() == [clock.moment(5)]


def test_status_of_all(db, queue, clock, scheduled):
    names = [unique(prefix) for prefix in ("B", "a", "é")]
    scheduled(queue, name=names[2], at=clock.moment(60))
    scheduled(queue, name=names[0], every=90, owner="app")
    scheduled(queue, name=names[1], cron="@daily", timezone="Asia/Tokyo", missed="skip")
    one, two, three = db.schedules()
    assert [one.name, two.name, three.name] == names
    assert (one.every, one.cron, one.at, one.owner, one.spec) == (
        90,
        None,
        None,
        "app",
        "every 90 s",
    )
    assert (two.cron, two.missed, two.spec) == ("@daily", "skip", "@daily (Asia/Tokyo)")
    assert three.spec == "once at 2030-03-17 17:47:40+00:00"
    assert one == ScheduleDoor(db, names[0]).get()


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_broken_schedule_stops_no_other_and_is_not_lost(db, make, clock, scheduled):
    gone, fine = make(), make()
    broken = scheduled(gone, "broken", name="a-" + unique(), every=60)
    scheduled(fine, "fine", name="b-" + unique(), every=60)
    gone.drop()
    clock.tick(60)
    ran = db.run_schedules()
    assert ran.sent == 1
    [(name, error)] = ran.errors
    assert name == broken.name
    assert "no queue is called" in error
    assert ran.next_in == 10  # then it is tried again
    assert bodies(drain(fine)) == ["fine"]
    status = broken.get()
    assert status.error == error
    assert (status.next_at, status.last_at) == (clock.moment(), None)
    assert db.run_schedules().errors == []
    tick = clock.moment()
    gone.create()
    clock.tick(10)
    assert db.run_schedules().sent == 1
    [message] = drain(gone)
    assert datetime.fromisoformat(told(message)["tick"]) == tick
    assert broken.get().error is None


def test_a_full_channel_is_an_error_and_the_tick_waits(db, queue, clock, scheduled):
    queue.channel("small").set_policy(max_size=1)
    queue.send("in the way", channel="small")
    schedule = scheduled(queue, every=60, channel="small")
    clock.tick(60)
    [(_, error)] = db.run_schedules().errors
    assert "channel 'small'" in error
    assert "is full" in error
    assert totals(queue) == {"sent": 1}
    drain(queue)
    clock.tick(10)
    assert db.run_schedules().sent == 1
    assert schedule.get().error is None


def test_a_change_mends_a_broken_schedule_at_once(db, make, clock, scheduled):
    gone, fine = make(), make()
    schedule = scheduled(gone, every=60)
    gone.drop()
    clock.tick(60)
    assert len(db.run_schedules().errors) == 1
    schedule.set(fine.name, "tick", every=60)
    assert schedule.get().error is None
    assert db.run_schedules().sent == 1


def test_what_this_machine_cannot_do_is_left_to_another(db, queue, clock, scheduled, monkeypatch):
    """Without cronsim the intervals go on, and nothing is written to the others."""
    lame = scheduled(queue, "cron", name="a-" + unique(), cron=HOURLY)
    scheduled(queue, "interval", name="b-" + unique(), every=900)
    clock.tick(HOUR)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cronsim", None)
        ran = db.run_schedules(limit=1)
        assert ran.sent == 1
        assert [name for name, _ in ran.errors] == [lame.name]
        assert "pip install 'cronsim" in ran.errors[0][1]
        assert lame.get().error is None
        ran = db.run_schedules()
        assert (ran.sent, ran.next_in) == (0, 900)  # no hot loop over what it cannot do
    assert bodies(drain(queue)) == ["interval"]
    assert db.run_schedules().sent == 1


@pytest.mark.few_variants
def test_unknown_schedules_and_queues(db, queue, scheduled):
    schedule = scheduled()
    assert schedule.get() is None
    for verb in ("pause", "resume", "trigger", "upcoming"):
        with pytest.raises(ScheduleNotFound, match="no schedule is called"):
            getattr(schedule, verb)()
    with pytest.raises(QueueNotFound):
        schedule.set("no such queue", every=60)
    assert schedule.get() is None
    schedule.set(queue.name, every=60)
    with pytest.raises(QueueNotFound):
        schedule.set("no such queue", every=60)
    assert schedule.get().queue == queue.name


@pytest.mark.few_variants
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs cron=, every= or at="),
        ({"cron": HOURLY, "every": 60}, "exactly one"),
        ({"cron": "nonsense"}, "not a cron expression"),
        ({"cron": HOURLY, "timezone": "Mars/Olympus"}, "no time zone"),
        ({"every": 60, "timezone": "Europe/Rome"}, "is for cron= only"),
        ({"every": 0.5}, "at least 1 second"),
        ({"every": -1}, "must not be negative"),
        ({"at": datetime(2030, 1, 1)}, "needs a time zone"),
        ({"every": 60, "missed": "never"}, "missed must be"),
        ({"every": 60, "overlap": "no"}, "overlap must be"),
        ({"every": 60, "missed": "backfill"}, 'overlap="allow"'),
        ({"every": 60, "priority": "high"}, "priority"),
    ],
)
def test_bad_arguments(queue, scheduled, options, words):
    with pytest.raises(InvalidArgument, match=words):
        scheduled().set(queue.name, **options)


@pytest.mark.few_variants
def test_bad_names_and_bodies(db, make, scheduled):
    queue = make(max_body=10)
    for name in ("", "x" * 231, "ä" * 116, "a\0b", 7):
        with pytest.raises(InvalidName):
            db.inner.schedule(name)
    schedule = scheduled(queue, "y" * 5, name="x" * 230, every=60, overlap="allow")
    with pytest.raises(fairturn.BodyTooLarge):
        schedule.set(queue.name, "y" * 20, every=60)
    with pytest.raises(fairturn.InvalidBody):
        schedule.set(queue.name, object(), every=60)
    with pytest.raises(InvalidArgument):
        db.run_schedules(limit=0)


def test_the_longest_name_ticks(db, queue, clock, scheduled):
    scheduled(queue, name="ä" * 115, every=60, overlap="allow")
    scheduled(queue, name="x" * 230, every=60)
    clock.tick(60)
    assert db.run_schedules().sent == 2


# --- your transaction -----------------------------------------------------------------------------


@pytest.mark.yours
def test_in_your_transaction(db, queue, clock, scheduled):
    schedule = scheduled()
    with db.rolled_back() as connection:
        mine = schedule.inner.using(connection)
        assert db.wait(mine.set(queue.name, every=60)) is True
        assert db.wait(mine.get()).every == 60
    assert schedule.get() is None
    with db.transaction() as connection:
        db.wait(schedule.inner.using(connection).set(queue.name, every=60))
    assert schedule.get().every == 60
    with db.rolled_back() as connection:
        assert db.wait(schedule.inner.using(connection).remove()) is True
    clock.tick(60)
    assert db.run_schedules().sent == 1
