"""Looking without touching: stats, peek, get, explain, failures, trace (semantics §9)."""

from __future__ import annotations

from collections import Counter

import pytest

from fairturn import MessageNotFound, Policy, Send
from tests.conformance.door import bodies, counts, ids, totals, unique

# --- stats --------------------------------------------------------------------------------------


def test_stats_of_an_empty_queue(queue):
    stats = queue.stats()
    assert stats.total == 0
    assert stats.oldest_ready is None
    assert stats.versions == {}
    assert totals(queue) == {}


def test_stats_count_each_state(queue):
    queue.send_many([Send(1), Send(2, delay=60), Send(3), Send(4), Send(5)])
    first, second, third = queue.receive(3)
    second.complete()
    third.kill("boom")
    assert counts(queue) == {"ready": 1, "scheduled": 1, "leased": 1, "done": 1, "dead": 1}
    assert queue.stats().total == 5
    first.ack()


def test_10_08_stats_show_due_messages_as_ready(queue, clock):
    queue.send_many([Send(1, delay=5), Send(2, delay=9)])
    clock.tick(5)
    assert counts(queue) == {"ready": 1, "scheduled": 1}


def test_stats_leave_out_what_has_expired(queue, clock):
    queue.send_many([Send(1, expires=5), Send(2)])
    clock.tick(5)
    assert counts(queue) == {"ready": 1}


def test_stats_versions(queue):
    queue.send_many([Send(1), Send(2, version=3), Send(3, version=3), Send(4, version=7)])
    queue.one(version=7).complete()
    assert queue.stats().versions == {0: 1, 3: 2, 7: 1}


def test_stats_oldest_ready(queue, clock):
    queue.send_many([Send(1, at=clock.moment(-5)), Send(2, delay=3), Send(3)])
    assert queue.stats().oldest_ready == clock.moment(-5)
    queue.one().ack()
    assert queue.stats().oldest_ready == clock.moment()
    queue.one().ack()
    assert queue.stats().oldest_ready is None
    clock.tick(3)
    assert queue.stats().oldest_ready == clock.moment()


def test_stats_oldest_ready_counts_expired_leases(queue, clock):
    queue.send(1)
    queue.one(lease=5)
    clock.tick(9)
    assert queue.stats().oldest_ready == clock.moment(-9)


def test_stats_touch_nothing(queue, clock):
    queue.send(1, delay=5)
    queue.send(2)
    queue.one(lease=5)
    clock.tick(10)
    queue.stats()
    assert [m.state for m in queue.peek()] == ["scheduled", "leased"]


def test_the_totals_are_exact_after_every_kind_of_end(db, make, clock):
    queue = make(max_attempts=1)
    queue.send_many([Send(n, expires=1000 if n == 8 else None) for n in range(10)])
    m = queue.receive(7)
    m[0].ack()
    m[1].complete()
    m[2].defer(2000)
    m[3].fail("boom")
    m[4].kill("boom")
    m[5].release()
    queue.cancel(id=m[6].id, force=True)
    queue.send(10, key="k")
    queue.send(11, key="k", on_conflict="ignore")
    queue.send(12, key="k", on_conflict="replace")
    queue.discard(limit=1)
    clock.tick(1000)
    db.maintain()
    assert totals(queue) == {
        "sent": 11,
        "delivered": 7,
        "acked": 1,
        "completed": 1,
        "deferred": 1,
        "failed": 1,
        "killed": 2,
        "released": 1,
        "cancelled": 2,
        "expired": 1,
        "errors": 2,
    }


def test_i9_counters_equal_rows_whatever_happens(db, make, clock, rng):
    """A random life; after it the totals add up to the rows that are left."""
    queue = make(max_attempts=3, retention=0)
    seen: Counter[str] = Counter()
    for step in range(150):
        action = rng.choice(["send", "send", "receive", "receive", "tick", "cancel", "redrive"])
        if action == "send":
            count = rng.randrange(1, 4)
            queue.send_many([Send(step, channel=rng.choice("abc")) for _ in range(count)])
            seen["sent"] += count
        elif action == "receive":
            for message in queue.receive(rng.randrange(1, 5), lease=10):
                seen["delivered"] += 1
                end = rng.choice(["ack", "complete", "defer", "fail", "kill", "release", None])
                if end:
                    getattr(message, end)()
                    seen[end] += 1
        elif action == "tick":
            clock.tick(rng.choice([1, 10, 60]))
        elif action == "cancel":
            waiting = queue.peek(1, state="ready")
            seen["cancelled"] += sum(queue.cancel(id=m.id) for m in waiting)
        else:
            seen["redriven"] += queue.redrive(limit=2)
    stats = queue.stats()
    assert stats.sent == seen["sent"]
    assert stats.delivered == seen["delivered"]
    assert (stats.acked, stats.completed) == (seen["ack"], seen["complete"])
    assert (stats.deferred, stats.released) == (seen["defer"], seen["release"])
    assert stats.failed == seen["fail"]
    assert stats.total == stats.sent - stats.acked - stats.cancelled
    assert stats.dead == stats.killed - seen["redriven"]
    assert stats.total == len(queue.peek(1000))


def test_db_stats_sum_over_the_queues(db, make):
    one, other = make(), make()
    before = db.stats()
    one.send_many([Send(1), Send(2, version=1)])
    other.send(3, delay=60)
    after = db.stats()
    assert after.ready - before.ready == 2
    assert after.scheduled - before.scheduled == 1
    assert after.sent - before.sent == 3
    assert after.queues[one.name].ready == 2
    assert after.queues[other.name].scheduled == 1
    assert after.queues[one.name] == one.stats()


# --- peek and get -------------------------------------------------------------------------------


def test_peek_goes_by_id_and_leases_nothing(queue):
    sent = queue.send_many([Send(n, priority=n) for n in range(5)])
    assert ids(queue.peek()) == list(sent)
    assert ids(queue.peek(2)) == list(sent[:2])
    assert ids(queue.peek(2, after=sent[1])) == list(sent[2:4])
    assert counts(queue) == {"ready": 5}


def test_peek_by_state(queue):
    queue.send_many([Send(1), Send(2, delay=60), Send(3)])
    queue.one()
    assert bodies(queue.peek(state="leased")) == [1]
    assert bodies(queue.peek(state="scheduled")) == [2]
    assert bodies(queue.peek(state="ready")) == [3]
    assert queue.peek(state="dead") == []
    assert queue.peek(state="held") == []


def test_peek_by_channel(queue):
    queue.send_many([Send(n, channel=c) for n, c in enumerate(["a", "b", "", "a"])])
    assert bodies(queue.peek(channel="a")) == [0, 3]
    assert bodies(queue.peek(channel="")) == [2]
    assert bodies(queue.peek(channel="a", after=queue.peek(1)[0].id)) == [3]
    assert queue.peek(channel="a", state="dead") == []


def test_peek_shows_the_stored_state(queue, clock):
    queue.send(1, delay=5)
    clock.tick(5)
    assert queue.peek()[0].state == "scheduled"


def test_peek_of_a_large_queue_by_pages(queue):
    queue.send_many(range(250))
    seen: list[int] = []
    after = 0
    while page := queue.peek(100, after=after):
        seen += bodies(page)
        after = page[-1].id
    assert seen == list(range(250))


def test_get_by_id_and_key(queue):
    id = queue.send({"a": 1}, key="k", headers={"h": 2})
    for message in (queue.get(id=id), queue.get(key="k")):
        assert (message.id, message.body, message.headers) == (id, {"a": 1}, {"h": 2})
    assert queue.get(id=2**62) is None
    assert queue.get(key="other") is None


def test_get_knows_only_its_own_queue(make):
    one, other = make(), make()
    id = one.send(1, key="k")
    assert other.get(id=id) is None
    assert other.get(key="k") is None


def test_get_shows_a_leased_message(queue, clock):
    queue.send(1)
    message = queue.one()
    stored = queue.get(id=message.id)
    assert (stored.state, stored.lease_until) == ("leased", clock.moment(30))


# --- explain ------------------------------------------------------------------------------------


def test_explain_a_ready_message(queue):
    sent = queue.send_many([1, 2, 3])
    explanation = queue.explain(sent[2])
    assert (explanation.state, explanation.reason) == ("ready", "ready")
    assert explanation.position == 3
    assert "3rd in line" in str(explanation)


def test_explain_positions_follow_the_order(queue):
    low, high = queue.send_many([Send(1), Send(2, priority=5)])
    queue.send(3, channel="other", priority=9)
    assert queue.explain(high).position == 1
    assert queue.explain(low).position == 2


def test_explain_by_key(queue):
    id = queue.send(1, key="k")
    assert queue.explain(key="k").id == id


def test_explain_a_scheduled_message(queue, clock):
    id = queue.send(1, delay=90)
    explanation = queue.explain(id)
    assert (explanation.state, explanation.reason) == ("scheduled", "scheduled")
    assert explanation.next_at == clock.moment(90)
    assert "90 s" in str(explanation)


def test_explain_a_due_message_is_ready(queue, clock):
    id = queue.send(1, delay=5)
    clock.tick(5)
    assert queue.explain(id).state == "ready"


def test_explain_a_retry(queue):
    queue.send(1)
    message = queue.one()
    message.fail("boom", delay=60)
    assert "due in 60 s after it failed once" in str(queue.explain(message.id))


def test_explain_a_leased_message(queue, clock):
    queue.send(1)
    message = queue.one()
    explanation = queue.explain(message.id)
    assert (explanation.state, explanation.reason) == ("leased", "leased")
    assert explanation.next_at == clock.moment(30)
    clock.tick(30)
    assert queue.explain(message.id).reason == "expired"


def test_explain_done_and_dead_messages(queue):
    queue.send_many([1, 2])
    one, two = queue.receive(2)
    one.complete()
    two.kill("poison")
    assert queue.explain(one.id).reason == "done"
    explanation = queue.explain(two.id)
    assert explanation.reason == "dead"
    assert "poison" in str(explanation)
    assert "redrive" in str(explanation)


def test_explain_a_paused_queue_and_channel(queue):
    id = queue.send(1, channel="c")
    queue.channel("c").set_policy(paused=True)
    assert queue.explain(id).reason == "paused"
    assert "'c'" in str(queue.explain(id))
    queue.channel("c").clear_policy()
    queue.pause()
    assert "resume" in str(queue.explain(id))


def test_explain_concurrency(queue, clock):
    queue.channel("tenant-7").set_policy(max_concurrency=2)
    sent = queue.send_many([Send(n, channel="tenant-7") for n in range(4)])
    queue.receive(5)
    explanation = queue.explain(sent[3])
    assert explanation.reason == "blocked"
    assert "channel 'tenant-7' has 2 of 2 leases" in str(explanation)
    assert explanation.next_at == clock.moment(30)
    assert explanation.position == 2


def test_explain_a_rate(queue, clock):
    queue.channel("").set_policy(rate="1/min")
    sent = queue.send_many([1, 2])
    queue.one().ack()
    clock.tick(20)
    explanation = queue.explain(sent[1])
    assert explanation.reason == "blocked"
    assert explanation.next_at == clock.moment(40)
    assert "1/min" in str(explanation)


def test_explain_the_limit_of_the_queue(queue):
    queue.set_limit(max_concurrency=1)
    sent = queue.send_many([Send(1, channel="a"), Send(2, channel="b")])
    queue.one()
    assert "the queue has 1 of 1 leases" in str(queue.explain(sent[1]))


def test_explain_the_rate_of_the_queue(queue, clock):
    queue.set_limit(rate="1/10s")
    sent = queue.send_many([Send(1, channel="a"), Send(2, channel="b")])
    queue.one().ack()
    explanation = queue.explain(sent[1])
    assert explanation.reason == "blocked"
    assert explanation.next_at == clock.moment(10)


def test_explain_an_ordered_channel(make):
    queue = make(policy=Policy(ordered=True))
    sent = queue.send_many([1, 2])
    queue.one()
    explanation = queue.explain(sent[1])
    assert explanation.reason == "blocked"
    assert f"waits for message {sent[0]}" in str(explanation)


def test_explain_an_unknown_message(queue):
    with pytest.raises(MessageNotFound):
        queue.explain(2**62)
    with pytest.raises(MessageNotFound):
        queue.explain(key="nobody")


# --- failures and trace -------------------------------------------------------------------------


def test_failures_newest_first(queue, clock):
    queue.send(1)
    for n in range(3):
        queue.one().fail(str(n))
        clock.tick(1)
    assert [(f.error, f.attempt) for f in queue.failures()] == [("2", 3), ("1", 2), ("0", 1)]
    assert [f.error for f in queue.failures(2)] == ["2", "1"]


def test_failures_of_one_message(queue):
    sent = queue.send_many([Send(1, key="a"), Send(2, key="b")])
    queue.fail(queue.receive(2), "boom")
    assert [f.message_id for f in queue.failures(id=sent[1])] == [sent[1]]
    assert [f.message_id for f in queue.failures(key="a")] == [sent[0]]
    assert queue.failures(key="nobody") == []


def test_failures_outlive_their_message(queue):
    queue.send(1, key="k")
    queue.one().fail("boom")
    queue.one().ack()
    [failure] = queue.failures(key="k")
    assert failure.error == "boom"


def test_failures_belong_to_their_queue(make):
    one, other = make(), make()
    one.send(1)
    one.one().fail("boom")
    assert other.failures() == []


def test_trace_tells_the_life_of_a_key_across_queues(db, make, clock):
    one, other = make(), make()
    key = unique("key")
    a = one.send(1, key=key)
    clock.tick(1)
    one.one().fail("first")
    clock.tick(1)
    b = other.send(2, key=key)
    clock.tick(1)
    other.one().kill("second")
    steps = db.trace(key)
    assert [(s.queue, s.kind, s.message_id, s.state, s.text) for s in steps] == [
        (one.name, "message", a, "ready", ""),
        (one.name, "error", a, "ready", "first"),
        (other.name, "message", b, "dead", ""),
        (other.name, "error", b, "dead", "second"),
    ]
    assert [s.at for s in steps] == [clock.moment(n) for n in (-3, -2, -1, 0)]


def test_trace_of_an_unknown_key(db):
    assert db.trace(unique("nobody")) == []


def test_trace_keeps_the_failures_of_removed_messages(db, queue, clock):
    key = unique("key")
    queue.send(1, key=key)
    queue.one().fail("boom")
    queue.one().ack()
    assert [(s.kind, s.text) for s in db.trace(key)] == [("error", "boom")]
