"""The verbs that end or move a delivery (semantics §5)."""

from __future__ import annotations

import pytest

from fairturn import Backoff, InvalidArgument, LeaseLost
from tests.conformance.door import bodies, counts, drain, ids, totals

# --- ack ----------------------------------------------------------------------------------------


def test_ack_removes_the_message(queue):
    id = queue.send(1)
    queue.one().ack()
    assert queue.get(id=id) is None
    assert totals(queue) == {"sent": 1, "delivered": 1, "acked": 1}


def test_ack_keeps_the_message_where_the_queue_has_a_retention(make, clock):
    queue = make(retention=60)
    id = queue.send(1, key="k")
    queue.one().ack()
    message = queue.get(id=id)
    assert (message.state, message.finished_at, message.result) == ("done", clock.moment(), None)
    assert message.lease_until is None
    assert totals(queue) == {"sent": 1, "delivered": 1, "acked": 1}


def test_ack_of_a_batch(queue):
    queue.send_many(range(5))
    acked = queue.ack(queue.receive(5))
    assert (acked.acked, acked.lost) == (5, [])
    assert queue.stats().total == 0


def test_ack_of_a_large_batch(queue):
    queue.send_many(range(1200))
    assert queue.ack(queue.receive(1200)).acked == 1200
    assert queue.stats().total == 0


def test_ack_of_nothing(queue):
    acked = queue.ack([])
    assert (acked.acked, acked.lost) == (0, [])


def test_a_batch_reports_the_lost_and_does_the_rest(queue):
    queue.send_many(range(3))
    messages = queue.receive(3)
    messages[1].ack()
    acked = queue.ack(messages)
    assert acked.acked == 2
    assert ids(acked.lost) == [messages[1].id]
    assert queue.stats().total == 0


def test_the_same_lease_twice_in_one_call_counts_once(queue):
    queue.send(1)
    message = queue.one()
    assert queue.ack([message, message]).acked == 1
    assert totals(queue) == {"sent": 1, "delivered": 1, "acked": 1}


def test_ack_twice_is_a_lost_lease(queue):
    queue.send(1)
    message = queue.one()
    message.ack()
    with pytest.raises(LeaseLost) as caught:
        message.ack()
    assert caught.value.ids == [message.id]
    assert caught.value.queue == queue.name


# --- complete -----------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [None, {"n": [1, "é'\0"]}, b"\0\xff", "", 0, False])
def test_complete_keeps_the_result(queue, clock, result):
    id = queue.send(1)
    queue.one().complete(result)
    message = queue.get(id=id)
    assert message.state == "done"
    assert message.result == result
    assert type(message.result) is type(result)
    assert (message.attempts, message.deliveries) == (0, 1)
    assert message.finished_at == clock.moment()
    assert totals(queue) == {"sent": 1, "delivered": 1, "completed": 1}


def test_complete_clears_the_error(queue):
    id = queue.send(1)
    queue.one().fail("boom")
    queue.one().complete()
    assert queue.get(id=id).error is None


def test_complete_keeps_body_and_memo(queue):
    id = queue.send({"a": 1})
    queue.one().defer(0, memo=[1])
    queue.one().complete("r")
    message = queue.get(id=id)
    assert (message.body, message.memo, message.result) == ({"a": 1}, [1], "r")


def test_a_completed_message_is_never_given(queue, clock):
    queue.send(1)
    queue.one().complete()
    clock.tick(10**6)
    assert queue.receive(5) == []


def test_complete_of_a_batch(queue):
    queue.send_many(range(3))
    assert queue.complete(queue.receive(3), "same").acked == 3
    assert [m.result for m in queue.peek(state="done")] == ["same"] * 3


# --- defer --------------------------------------------------------------------------------------


def test_defer_is_not_a_failure(queue, clock):
    id = queue.send(1)
    queue.one().fail("boom")
    assert queue.one().attempts == 2
    clock.tick(31)
    queue.one().defer(60)
    message = queue.get(id=id)
    assert (message.state, message.attempts, message.deliveries) == ("scheduled", 0, 3)
    assert message.due_at == clock.moment(60)
    assert message.lease_until is None
    assert totals(queue)["deferred"] == 1


def test_defer_for_ever_never_dies(make):
    queue = make(max_attempts=2)
    queue.send(1)
    for delivery in range(1, 10):
        message = queue.one()
        assert (message.attempts, message.deliveries) == (1, delivery)
        message.defer()
    assert counts(queue) == {"ready": 1}


def test_defer_without_a_delay_is_ready_at_once(queue, clock):
    queue.send(1)
    clock.tick(5)
    queue.one().defer()
    assert queue.peek()[0].due_at == clock.moment()
    assert counts(queue) == {"ready": 1}


def test_defer_to_a_time(queue, clock):
    queue.send(1)
    queue.one().defer(at=clock.moment(90))
    assert queue.peek()[0].due_at == clock.moment(90)


def test_defer_to_the_past_is_ready(queue, clock):
    queue.send(1)
    queue.one().defer(at=clock.moment(-90))
    assert counts(queue) == {"ready": 1}
    assert queue.peek()[0].due_at == clock.moment(-90)


@pytest.mark.parametrize("memo", ["text", {"page": 7}, b"\0\xff", 0, False, "", []])
def test_memo_is_saved(queue, memo):
    queue.send(1)
    queue.one().defer(0, memo=memo)
    message = queue.one()
    assert message.memo == memo
    assert type(message.memo) is type(memo)


def test_memo_is_kept_when_omitted_and_cleared_by_none(queue):
    queue.send(1)
    queue.one().defer(0, memo={"page": 7})
    queue.one().defer(0)
    message = queue.one()
    assert message.memo == {"page": 7}
    message.defer(0, memo=None)
    assert queue.one().memo is None


def test_memo_survives_failure_release_and_recovery(queue, clock):
    queue.send(1)
    queue.one().defer(0, memo=b"m")
    queue.one().fail("boom")
    queue.one().release()
    queue.one(lease=1)
    clock.tick(1)
    assert queue.one().memo == b"m"


def test_memo_and_body_may_be_of_different_kinds(queue):
    queue.send(b"raw")
    queue.one().defer(0, memo={"json": True})
    message = queue.one()
    assert (message.body, message.memo) == (b"raw", {"json": True})


def test_defer_of_a_batch(queue, clock):
    queue.send_many(range(3))
    assert queue.defer(queue.receive(3), 60, memo="m").acked == 3
    assert [(m.due_at, m.memo) for m in queue.peek()] == [(clock.moment(60), "m")] * 3


def test_defer_with_delay_and_at_is_refused(queue, clock):
    queue.send(1)
    message = queue.one()
    with pytest.raises(InvalidArgument):
        message.defer(5, at=clock.moment())
    message.ack()


# --- fail ---------------------------------------------------------------------------------------


def test_fail_counts_and_logs(queue, clock):
    id = queue.send(1, key="k")
    queue.one().fail("boom", delay=60, details={"line": 7}, reference="run-1")
    message = queue.get(id=id)
    assert (message.state, message.attempts, message.error) == ("scheduled", 1, "boom")
    assert message.due_at == clock.moment(60)
    [failure] = queue.failures()
    assert (failure.queue, failure.message_id, failure.key) == (queue.name, id, "k")
    assert (failure.attempt, failure.at, failure.error) == (1, clock.moment(), "boom")
    assert (failure.details, failure.reference) == ({"line": 7}, "run-1")
    assert totals(queue) == {"sent": 1, "delivered": 1, "failed": 1, "errors": 1}


def test_fail_takes_an_exception(queue):
    queue.send(1)
    queue.one().fail(ValueError("no such user"))
    assert queue.failures()[0].error == "ValueError: no such user"


def test_fail_without_a_delay_or_backoff_is_ready_at_once(queue, clock):
    queue.send(1)
    clock.tick(3)
    queue.one().fail("boom")
    assert counts(queue) == {"ready": 1}
    assert queue.peek()[0].due_at == clock.moment()


def test_fail_uses_the_queues_backoff(make, clock):
    queue = make(backoff=Backoff(1, 2, 5), max_attempts=0)
    queue.send(1)
    for expected in (1, 2, 4, 5, 5, 5):
        queue.one().fail("boom")
        assert queue.peek()[0].due_at == clock.moment(expected)
        clock.tick(expected)


def test_the_backoff_of_many_attempts_does_not_overflow(make, clock):
    queue = make(backoff=Backoff(3600, 100, 86_400 * 365), max_attempts=0)
    queue.send(1)
    for _ in range(20):
        queue.one().fail("boom")
        clock.us = round(queue.peek()[0].due_at.timestamp() * 1_000_000)
    assert queue.one().attempts == 21


def test_the_delay_of_the_call_wins_over_the_backoff(make, clock):
    queue = make(backoff=60)
    queue.send(1)
    queue.one().fail("boom", delay=0)
    assert counts(queue) == {"ready": 1}


def test_a_defer_starts_the_backoff_anew(make, clock):
    queue = make(backoff=Backoff(1, 2, 100))
    queue.send(1)
    queue.one().fail("boom")
    clock.tick(1)
    queue.one().defer()
    queue.one().fail("boom")
    assert queue.peek()[0].due_at == clock.moment(1)


def test_fail_of_a_batch(queue):
    queue.send_many(range(3))
    assert queue.fail(queue.receive(3), "all").acked == 3
    assert [f.error for f in queue.failures()] == ["all"] * 3
    assert totals(queue)["failed"] == 3


def test_a_batch_fails_each_by_its_own_attempts(make, clock):
    queue = make(backoff=Backoff(1, 2, 100), max_attempts=2)
    queue.send("old")
    queue.one().fail("boom", delay=0)
    queue.send("new")
    assert queue.fail(queue.receive(2), "boom").acked == 2
    assert counts(queue) == {"scheduled": 1, "dead": 1}
    assert queue.peek(state="dead")[0].body == "old"


def test_a_long_error_is_cut_and_says_so(queue):
    queue.send(1)
    queue.one().fail("é" * 20_000)
    error = queue.failures()[0].error
    assert len(error) <= 10_000
    assert error.endswith("(text cut)")


def test_an_error_may_hold_anything(queue):
    text = 'O\'Brien "quoted" \\ %s $1 :x {} \n\t \U0001f9f5'
    queue.send(1)
    queue.one().fail(text + "\0\ud800")
    assert queue.failures()[0].error == text + "?"
    assert queue.peek()[0].error == text + "?"


# --- kill, release, extend ----------------------------------------------------------------------


def test_kill_buries_at_once(queue, clock):
    id = queue.send(1)
    queue.one().kill("poison", details=[1], reference="r")
    message = queue.get(id=id)
    assert (message.state, message.error, message.attempts) == ("dead", "poison", 1)
    assert message.finished_at == clock.moment()
    [failure] = queue.failures()
    assert (failure.error, failure.details, failure.reference) == ("poison", [1], "r")
    assert totals(queue) == {"sent": 1, "delivered": 1, "killed": 1, "errors": 1}


def test_kill_of_a_batch(queue):
    queue.send_many(range(3))
    assert queue.kill(queue.receive(3), "all").acked == 3
    assert counts(queue) == {"dead": 3}


def test_release_gives_the_attempt_back(queue, clock):
    queue.send(1)
    clock.tick(5)
    queue.one().release()
    message = queue.peek()[0]
    assert (message.state, message.attempts, message.deliveries) == ("ready", 0, 1)
    assert message.due_at == clock.moment(-5)
    assert message.lease_until is None
    assert totals(queue) == {"sent": 1, "delivered": 1, "released": 1}


def test_release_of_a_batch(queue):
    queue.send_many(range(3))
    assert queue.release(queue.receive(3)).acked == 3
    assert bodies(drain(queue, 3)) == [0, 1, 2]


def test_release_keeps_recovered(queue, clock):
    queue.send(1)
    queue.one(lease=1)
    clock.tick(1)
    queue.one().release()
    assert queue.one().recovered is True


@pytest.mark.parametrize("verb", ["defer", "fail"])
def test_other_verbs_clear_recovered(queue, clock, verb):
    queue.send(1)
    queue.one(lease=1)
    clock.tick(1)
    message = queue.one()
    assert message.recovered is True
    getattr(message, verb)()
    assert queue.one().recovered is False


def test_extend_moves_the_deadline(queue, clock):
    queue.send(1)
    message = queue.one(lease=10)
    clock.tick(5)
    message.extend(30)
    assert message.lease_until == clock.moment(30)
    assert queue.get(id=message.id).lease_until == clock.moment(30)
    clock.tick(29)
    assert queue.receive() == []
    clock.tick(1)
    assert queue.one().recovered


def test_extend_never_shortens(queue, clock):
    queue.send(1)
    message = queue.one(lease=100)
    message.extend(5)
    assert message.lease_until == clock.moment(100)


def test_extend_by_default_by_the_messages_lease_or_the_queues(make, clock):
    queue = make(lease=50)
    queue.send(1, lease=70)
    queue.send(2)
    one, two = queue.receive(2, lease=10)
    one.extend()
    two.extend()
    assert (one.lease_until, two.lease_until) == (clock.moment(70), clock.moment(50))


def test_extend_changes_nothing_else(queue):
    queue.send(1)
    message = queue.one()
    message.extend(60)
    stored = queue.get(id=message.id)
    assert (stored.attempts, stored.deliveries, stored.state) == (1, 1, "leased")
    message.ack()


def test_extend_of_a_batch(queue, clock):
    queue.send_many(range(3))
    messages = queue.receive(3)
    messages[0].ack()
    extended = queue.extend(messages, 300)
    assert extended.acked == 2
    assert ids(extended.lost) == [messages[0].id]
    assert {m.lease_until for m in queue.peek()} == {clock.moment(300)}
