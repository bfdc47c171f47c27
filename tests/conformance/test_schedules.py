"""Schedules (semantics §18): ticks, missed ones, overlap; in every variant."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.conformance.door import SECOND, START, bodies, drain, totals, unique
from tests.conformance.scheduling import DAY, FIRST_HOUR, HOUR, HOURLY, NIGHTLY, at, ticks, told

# --- ticking ------------------------------------------------------------------------------------


def test_a_cron_schedule_sends_at_its_ticks(db, queue, clock, scheduled):
    schedule = scheduled(queue, {"n": 1}, cron=HOURLY)
    assert schedule.get().next_at == at("2030-03-17T18:00:00")
    ran = db.run_schedules()
    assert (ran.sent, ran.next_in, ran.errors) == (0, FIRST_HOUR, [])
    clock.tick(FIRST_HOUR)
    ran = db.run_schedules()
    assert (ran.sent, ran.next_in, ran.errors) == (1, HOUR, [])
    assert db.run_schedules().sent == 0
    [message] = drain(queue)
    assert message.body == {"n": 1}
    assert told(message) == {"name": schedule.name, "tick": "2030-03-17T18:00:00+00:00"}
    status = schedule.get()
    assert status.last_at == at("2030-03-17T18:00:00")
    assert status.next_at == at("2030-03-17T19:00:00")
    clock.tick(HOUR)
    assert db.run_schedules().sent == 1
    assert ticks(drain(queue)) == ["19:00:00"]


def test_a_tick_is_told_in_its_time_zone(db, queue, clock, scheduled):
    schedule = scheduled(queue, cron=NIGHTLY, timezone="Europe/Rome")
    assert schedule.get().next_at == at("2030-03-18T02:00:00")
    clock.tick(DAY)
    db.run_schedules()
    assert [told(message)["tick"] for message in drain(queue)] == ["2030-03-18T03:00:00+01:00"]
    clock.tick(14 * DAY)  # summer time begins on the 31st
    assert schedule.get().next_at == at("2030-03-19T02:00:00")
    db.run_schedules()
    assert [told(message)["tick"] for message in drain(queue)] == ["2030-04-01T03:00:00+02:00"]


def test_an_interval_counts_from_its_creation_and_does_not_drift(db, queue, clock, scheduled):
    schedule = scheduled(queue, every=300)
    assert schedule.get().next_at == clock.moment(300)
    seen = []
    for late in (0, 7, 100, 1, 299):
        clock.us = START + (300 * (len(seen) + 1) + late) * SECOND
        ran = db.run_schedules()
        assert (ran.sent, ran.next_in) == (1, 300 - late)
        [message] = drain(queue)
        seen.append(datetime.fromisoformat(told(message)["tick"]))
    first = seen[0]
    assert seen == [first + timedelta(seconds=300 * n) for n in range(5)]
    assert schedule.get().last_at == seen[-1]


def test_a_single_time_comes_once(db, queue, clock, scheduled):
    far = clock.moment(10 * 365 * DAY)
    schedule = scheduled(queue, at=far)
    assert schedule.get().next_at == far
    assert db.run_schedules().sent == 0
    clock.tick(10 * 365 * DAY - 1)
    assert (db.run_schedules().sent, db.run_schedules().next_in) == (0, 1)
    clock.tick(1)
    ran = db.run_schedules()
    assert (ran.sent, ran.next_in) == (1, None)
    status = schedule.get()
    assert (status.finished, status.next_at, status.last_at) == (True, None, far)
    assert [one.name for one in db.schedules()] == [schedule.name]  # until it is removed
    clock.tick(DAY)
    assert db.run_schedules().sent == 0
    assert schedule.set(queue.name, "tick", at=far) is False  # the same again: it has been
    assert schedule.get().finished is True
    schedule.set(queue.name, "tick", at=clock.moment(60))  # another time
    clock.tick(60)
    assert db.run_schedules().sent == 1


def test_a_single_time_in_the_past_is_due_at_once(db, queue, clock, scheduled):
    scheduled(queue, "late", at=clock.moment(-DAY))
    scheduled(queue, "too late", at=clock.moment(-DAY), missed="skip")
    assert db.run_schedules().sent == 1
    assert bodies(drain(queue)) == ["late"]
    assert all(status.finished for status in db.schedules())


def test_the_message_has_the_options_of_send(db, queue, clock, scheduled):
    options = {
        "channel": "tenant ä",
        "priority": -3,
        "version": 2,
        "type": "report",
        "headers": {"trace": "x\0y", "deep": {"a": [1, None]}},
        "lease": 7,
        "max_attempts": 9,
        "expires": 600,
    }
    schedule = scheduled(queue, b"\0raw", every=60, **options)
    status = schedule.get()
    assert status.body == b"\0raw"
    assert {name: getattr(status, name) for name in options} == options
    clock.tick(60)
    db.run_schedules()
    [message] = queue.peek()
    assert message.body == b"\0raw"
    assert (message.channel, message.priority, message.version) == ("tenant ä", -3, 2)
    assert (message.type, message.max_attempts) == ("report", 9)
    assert message.expires_at == clock.moment(600)
    assert {**options["headers"], "fairturn.schedule": told(message)} == message.headers
    assert queue.one().lease_until == clock.moment(7)


def test_the_limit_and_what_is_left(db, queue, clock, scheduled):
    for n in range(5):
        scheduled(queue, n, name=f"{unique()}-{n}", every=60)
    clock.tick(60)
    ran = db.run_schedules(limit=3)
    assert (ran.sent, ran.next_in) == (3, 0)
    assert db.run_schedules(limit=3).sent == 2
    assert sorted(bodies(drain(queue))) == [0, 1, 2, 3, 4]


def test_more_schedules_than_one_look_reads(db, queue, clock, scheduled):
    for n in range(120):
        db.wait(db.inner.schedule(f"many-{n}").set(queue.name, n, every=60))
    clock.tick(60)
    ran = db.run_schedules(limit=1000)
    assert (ran.sent, ran.next_in, ran.errors) == (120, 60, [])
    assert totals(queue) == {"sent": 120}


def test_without_schedules_there_is_nothing_to_wait_for(db, scheduled):
    ran = db.run_schedules()
    assert (ran.sent, ran.next_in, ran.errors) == (0, None, [])
    assert db.schedules() == []


# --- missed ticks ---------------------------------------------------------------------------------


def test_missed_once_sends_one_for_the_latest(db, queue, clock, scheduled):
    schedule = scheduled(queue, cron=HOURLY)
    clock.tick(5 * HOUR)
    assert db.run_schedules().sent == 1
    assert ticks(drain(queue)) == ["22:00:00"]
    assert schedule.get().next_at == at("2030-03-17T23:00:00")


@pytest.mark.parametrize(("late", "sent"), [(60, 1), (60.000001, 0)])
def test_missed_skip_leaves_out_what_is_older_than_a_minute(
    db, queue, clock, scheduled, late, sent
):
    schedule = scheduled(queue, cron=HOURLY, missed="skip")
    clock.tick(FIRST_HOUR + 2 * HOUR + late)
    assert db.run_schedules().sent == sent
    assert ticks(drain(queue)) == ["20:00:00"] * sent
    status = schedule.get()
    assert status.next_at == at("2030-03-17T21:00:00")
    assert status.last_at == (at("2030-03-17T20:00:00") if sent else None)


def test_missed_backfill_sends_each_in_order(db, queue, clock, scheduled):
    schedule = scheduled(queue, cron=HOURLY, missed="backfill", overlap="allow")
    clock.tick(3 * HOUR)
    ran = db.run_schedules()
    assert ran.sent == 3
    assert ticks(drain(queue)) == ["18:00:00", "19:00:00", "20:00:00"]
    assert schedule.get().last_at == at("2030-03-17T20:00:00")


def test_a_long_backfill_goes_on_in_the_next_call(db, queue, clock, scheduled):
    schedule = scheduled(queue, every=1, missed="backfill", overlap="allow")
    clock.tick(2500)
    sent = []
    while True:
        ran = db.run_schedules(limit=1)
        if ran.sent == 0:
            break
        sent.append(ran.sent)
        assert ran.next_in == 0
    assert sent == [1000, 1000, 500]
    assert totals(queue) == {"sent": 2500}
    assert schedule.get().last_at == clock.moment()


# --- overlap ------------------------------------------------------------------------------------


def test_overlap_skip_the_latest_waits(db, queue, clock, scheduled):
    """One that nobody has begun is replaced."""
    scheduled(queue, every=60)
    for _ in range(3):
        clock.tick(60)
        assert db.run_schedules().sent == 1
    [message] = queue.peek()
    assert datetime.fromisoformat(told(message)["tick"]) == clock.moment()
    assert totals(queue) == {"sent": 1}


def test_overlap_skip_a_running_one_keeps_the_tick_out(db, queue, clock, scheduled):
    schedule = scheduled(queue, every=60)
    clock.tick(60)
    db.run_schedules()
    running = queue.one(lease=600)
    first = clock.moment()
    clock.tick(60)
    ran = db.run_schedules()
    assert (ran.sent, ran.errors) == (0, [])
    status = schedule.get()
    assert (status.last_at, status.next_at) == (first, clock.moment(60))
    running.ack()
    assert queue.receive() == []
    clock.tick(60)
    assert db.run_schedules().sent == 1
    assert len(drain(queue)) == 1


def test_overlap_skip_a_kept_one_runs_again(db, make, clock, scheduled):
    queue = make(retention=DAY)
    scheduled(queue, every=60)
    for _ in range(2):
        clock.tick(60)
        assert db.run_schedules().sent == 1
        queue.one().complete("ok")
    assert totals(queue) == {"sent": 1, "delivered": 2, "completed": 2}


def test_overlap_allow(db, queue, clock, scheduled):
    scheduled(queue, every=60, overlap="allow")
    for _ in range(3):
        clock.tick(60)
        assert db.run_schedules().sent == 1
        queue.receive(lease=600)
    assert totals(queue) == {"sent": 3, "delivered": 3}


def test_names_that_could_be_another_ones_key(db, queue, clock, scheduled):
    """A schedule whose name looks like the tick of another is another all the same."""
    clock.tick(1)
    tick = clock.us + 60 * SECOND
    scheduled(queue, "a", name="x", every=60, overlap="allow")
    scheduled(queue, "b", name=f"tick:{tick}:x", every=60)
    scheduled(queue, "c", name=f"x:{tick}", every=60)
    clock.tick(60)
    assert db.run_schedules().sent == 3
    assert sorted(bodies(drain(queue))) == ["a", "b", "c"]
