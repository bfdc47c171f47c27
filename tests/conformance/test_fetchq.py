"""Fetchq's acceptance cases (REFERENCE §7), in Fairturn's words.

subject = key, document = message, planned = scheduled, pending = ready, active = leased,
completed = done, killed = dead; pick = receive, reject = fail, append/push = send,
upsert = send(on_conflict="replace"), reschedule = defer, drop = ack, orphan = expired lease.
"""

from __future__ import annotations

import pytest

from fairturn import BodyTooLarge, DuplicateKey, InvalidName, LeaseLost, QueueNotFound, Send
from tests.conformance.door import bodies, counts, drain, ids, totals, unique


def test_pick_older_first(queue, clock):
    queue.send("a1", at=clock.moment(-10))
    queue.send("a2", at=clock.moment(-20))
    assert bodies(queue.receive(2)) == ["a2", "a1"]


def test_pick_higher_priority_first(queue, clock):
    queue.send("a1", priority=0, at=clock.moment(-20))
    queue.send("a2", priority=1, at=clock.moment(-10))
    assert bodies(queue.receive(2)) == ["a2", "a1"]


def test_pick_limit_is_exact(queue):
    queue.send_many(range(10))
    assert len(queue.receive(4)) == 4


def test_counters_after_pick(queue):
    """cnt 4, act 2, pnd 1, pln 1."""
    queue.send_many([Send(n) for n in range(3)] + [Send(3, delay=60)])
    queue.receive(2)
    assert counts(queue) == {"leased": 2, "ready": 1, "scheduled": 1}
    assert queue.stats().total == 4


def test_sequential_picks(queue):
    queue.send_many(["a", "b", "c"])
    assert [queue.one().body for _ in range(3)] == ["a", "b", "c"]
    assert queue.receive() == []


def test_pick_short_forms(queue, clock):
    queue.send_many(range(4))
    assert len(queue.receive()) == 1
    assert queue.one(lease=300).lease_until == clock.moment(300)
    assert len(queue.receive(1, version=0, lease=60)) == 1
    assert queue.receive(1, version=1) == []


def test_pick_batches_come_back_in_priority_order(queue, rng):
    priorities = list(range(100))
    rng.shuffle(priorities)
    queue.send_many([Send(p, priority=p) for p in priorities])
    assert bodies(queue.receive(12)) == list(range(99, 87, -1))


def test_push_into_the_future_is_planned(queue):
    queue.send(1, key="a1", delay=60)
    assert counts(queue) == {"scheduled": 1}


def test_push_into_the_past_is_pending(queue, clock):
    queue.send(1, key="a1", at=clock.moment(-60))
    assert counts(queue) == {"ready": 1}


def test_bulk_push_counts(queue):
    queue.send(0, key="a1")
    sent = queue.send_many([Send(n, key=f"a{n}", on_conflict="ignore") for n in range(5)])
    assert sum(s.created for s in sent) == 4
    assert queue.stats().total == 5


def test_push_of_a_duplicate_adds_nothing(queue):
    assert queue.send(1, key="a1", on_conflict="ignore").created
    assert not queue.send(2, key="a1", on_conflict="ignore").created
    assert bodies(drain(queue)) == [1]


def test_push_of_an_oversize_subject_is_an_error(queue):
    queue.send(1, key="x" * 255)
    with pytest.raises(InvalidName):
        queue.send(1, key="x" * 256)


def test_append_many_without_collision(queue):
    sent = queue.send_many([{} for _ in range(500)])
    assert len(set(sent)) == 500


def test_append_to_a_missing_queue_is_an_error(db):
    with pytest.raises(QueueNotFound):
        db.queue(unique("missing")).send({})


def test_upsert_inserts_then_updates(queue):
    first = queue.send(1, key="a1", on_conflict="replace")
    second = queue.send(2, key="a1", on_conflict="replace", priority=9)
    assert (first.outcome, second.outcome) == ("sent", "replaced")
    message = queue.one()
    assert (message.body, message.priority) == (2, 9)


def test_upsert_on_an_active_document_does_nothing(queue):
    queue.send(1, key="a1")
    message = queue.one()
    sent = queue.send(2, key="a1", on_conflict="replace")
    assert sent.outcome == "refused"
    assert queue.get(key="a1").body == 1
    message.ack()


@pytest.mark.parametrize("end", ["complete", "kill"])
def test_upsert_of_a_finished_subject_runs_again(queue, end):
    """Fetchq said updated and never ran it."""
    queue.send(1, key="a1")
    getattr(queue.one(), end)()
    queue.send(2, key="a1", on_conflict="replace")
    assert bodies(queue.receive(5)) == [2]


@pytest.mark.parametrize("memo", [None, {"step": 2}])
@pytest.mark.parametrize("delay", [-60, 0, 60])
def test_reschedule_with_and_without_payload(queue, clock, delay, memo):
    """Future: planned. Past and exactly now: pickable without maintenance."""
    queue.send(1)
    options = {} if memo is None else {"memo": memo}
    queue.one().defer(at=clock.moment(delay), **options)
    clock.tick(max(0, delay))
    message = queue.one()
    assert (message.memo, message.attempts, message.deliveries) == (memo, 1, 2)


def test_reject_is_pending_again_with_a_log_row(queue):
    queue.send(1, key="a1")
    queue.one().fail("some error", details={"a": 1}, reference="xxx")
    message = queue.get(key="a1")
    assert (message.state, message.attempts, message.deliveries) == ("ready", 1, 1)
    [failure] = queue.failures(key="a1")
    assert (failure.error, failure.details, failure.reference) == ("some error", {"a": 1}, "xxx")


def test_reject_at_max_attempts_kills(make):
    queue = make(max_attempts=2)
    queue.send(1)
    queue.one().fail("1")
    assert counts(queue) == {"ready": 1}
    queue.one().fail("2")
    assert counts(queue) == {"dead": 1}


def test_complete_fields(queue, clock):
    queue.send(1, key="a1")
    clock.tick(1)
    queue.one().complete({"a": 2})
    message = queue.get(key="a1")
    assert (message.state, message.attempts, message.deliveries) == ("done", 0, 1)
    assert (message.finished_at, message.result) == (clock.moment(), {"a": 2})


def test_kill_fields(queue, clock):
    queue.send(1, key="a1")
    queue.one().kill("why")
    message = queue.get(key="a1")
    assert (message.state, message.error) == ("dead", "why")
    assert message.finished_at == clock.moment()


def test_drop_removes(queue):
    queue.send(1, key="a1")
    queue.one().ack()
    assert queue.get(key="a1") is None


def test_an_orphan_is_rescheduled(db, queue, clock):
    queue.send(1)
    queue.one(lease=5)
    clock.tick(5)
    assert db.maintain().recovered >= 1
    assert counts(queue) == {"ready": 1}
    assert totals(queue)["recovered"] == 1


def test_an_orphan_without_attempts_is_killed_and_logged(db, make, clock):
    queue = make(max_attempts=1, lease=5)
    queue.send(1)
    queue.one()
    clock.tick(5)
    assert db.maintain().killed >= 1
    assert counts(queue) == {"dead": 1}
    assert totals(queue)["errors"] == 1


def test_dynamic_max_attempts(make):
    queue = make(max_attempts=1)
    queue.send_many([1, 2])
    queue.one().fail("boom")
    assert counts(queue) == {"ready": 1, "dead": 1}
    queue.set(max_attempts=3)
    queue.one().fail("boom")
    assert counts(queue) == {"ready": 1, "dead": 1}


def test_maintenance_counts(db, make, clock):
    while tuple(db.maintain(100_000)) != (0, 0, 0, 0):
        pass
    queue = make(max_attempts=2, lease=5)
    queue.send_many([Send(1, delay=5), Send(2, delay=5), Send(3), Send(4, max_attempts=1)])
    queue.receive(2)
    clock.tick(5)
    assert tuple(db.maintain()) == (2, 1, 1, 0)


def test_metrics_add_up_however_often_they_are_packed(db, queue, clock):
    """set 10, +5, -2 = 13, and two packs do not count twice."""
    queue.send_many(range(10))
    db.maintain()
    queue.send_many(range(5))
    db.maintain()
    db.maintain()
    queue.ack(queue.receive(2))
    clock.tick(120)
    db.maintain()
    assert queue.stats().total == 13
    assert totals(queue) == {"sent": 15, "delivered": 2, "acked": 2}


def test_logs_retention_by_setting(db, make, clock):
    queue = make(failure_retention=60)
    queue.send(1)
    for n in range(3):
        queue.one().fail(str(n))
        clock.tick(30)
    db.maintain()
    assert [f.error for f in queue.failures()] == ["2"]


def test_queue_name_limits(db):
    name = unique("x" * 200)[:255]
    assert db.queue(name).create() is True
    db.queue(name).drop()
    with pytest.raises(InvalidName):
        db.queue("x" * 256)


def test_queue_names_with_capitals_work(make):
    queue = make(unique("MyQueue"))
    queue.send(1)
    assert bodies(queue.receive()) == [1]


def test_create_twice(make):
    queue = make()
    created = queue.settings().created_at
    assert queue.create() is False
    assert queue.settings().created_at == created


def test_drop_removes_everything(db, make):
    queue = make()
    queue.send(1, key="a1")
    queue.one().fail("boom")
    queue.drop()
    queue.create()
    assert queue.stats().total == 0
    assert totals(queue) == {}
    assert queue.failures() == []


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("others", [False, True])
def test_truncate(make, reset, others):
    queue, other = make(), make()
    for one in (queue, other):
        one.send_many([1, 2])
        one.one().fail("boom")
    queue.purge(reset=reset)
    if others:
        other.purge(reset=reset)
    assert counts(queue) == {}
    assert (totals(queue) == {}) is reset
    assert (queue.failures() == []) is reset
    assert (counts(other) == {}) is others


def test_top_limit_offset_version(queue):
    queue.send_many([Send(n, version=n % 2) for n in range(6)])
    first = queue.peek(2)
    assert bodies(first) == [0, 1]
    assert bodies(queue.peek(2, after=first[-1].id)) == [2, 3]
    assert queue.stats().versions == {0: 3, 1: 3}
    assert bodies(queue.receive(9, version=1)) == [1, 3, 5]


def test_trace_across_queues(db, make, clock):
    key = unique("subject")
    queues = [make(), make(), make()]
    for queue in queues:
        queue.send(1, key=key)
        clock.tick(1)
    queues[1].one().fail("boom")
    assert [(s.queue, s.kind) for s in db.trace(key)] == [
        (queues[0].name, "message"),
        (queues[1].name, "message"),
        (queues[2].name, "message"),
        (queues[1].name, "error"),
    ]


# --- its defects (REFERENCE §1.6, §9) -------------------------------------------------------------

QUOTED = ["O'Brien", "'); DROP TABLE message; --", "x', 99) --", "\\'", "%s%d", "$1"]


@pytest.mark.parametrize("text", QUOTED)
def test_defect_1_quotes_lose_nothing_and_inject_nothing(queue, text):
    queue.send({"a": text}, key=text, channel=text, type=text)
    message = queue.one()
    assert (message.body, message.key, message.priority) == ({"a": text}, text, 0)
    message.defer(0, memo=text)
    message = queue.one()
    message.fail(text, details=text, reference=text)
    assert queue.failures()[0].error == text
    queue.one().complete({"r": text})
    assert queue.get(key=text).result == {"r": text}


def test_defect_1_an_error_is_never_taken_for_a_duplicate(queue):
    queue.set(max_body=5)
    with pytest.raises(BodyTooLarge):
        queue.send("too large", key="k", on_conflict="ignore")
    queue.send(1, key="k")
    with pytest.raises(DuplicateKey):
        queue.send(2, key="k")


def test_defect_2_a_stale_worker_cannot_complete(queue, clock):
    queue.send(1, key="a1")
    stale = queue.one(lease=5)
    clock.tick(5)
    queue.one()
    with pytest.raises(LeaseLost):
        stale.complete("stale")
    assert queue.get(key="a1").state == "leased"


def test_defect_10_finished_messages_are_purged(db, make, clock):
    queue = make(retention=60, dead_retention=60)
    queue.send_many([1, 2])
    one, two = queue.receive(2)
    one.complete()
    two.kill("boom")
    clock.tick(60)
    db.maintain()
    assert queue.stats().total == 0


@pytest.mark.parametrize("delay", [0, 60])
def test_defect_11_waiting_messages_can_be_cancelled(queue, delay):
    queue.send(1, key="a1", delay=delay)
    assert queue.cancel(key="a1") is True


def test_defect_13_batches_are_ordered(queue, rng):
    queue.send_many([Send(n, priority=rng.randrange(50)) for n in range(50)])
    received = queue.receive(50)
    assert ids(received) == ids(sorted(received, key=lambda m: (-m.priority, m.id)))


def test_defect_15_scheduled_messages_need_no_maintenance(queue, clock):
    queue.send(1, delay=5)
    clock.tick(5)
    assert bodies(queue.receive()) == [1]
