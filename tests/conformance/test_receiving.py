"""Receiving: batches, filters, leases, carried acks, retry_after (semantics §4)."""

from __future__ import annotations

from fairturn import Send
from tests.conformance.door import bodies, channels, counts, drain, ids, totals


def test_an_empty_queue_gives_nothing(queue):
    received = queue.receive(10)
    assert received == []
    assert received.retry_after is None


def test_receive_gives_at_most_n(queue):
    queue.send_many(range(5))
    assert len(queue.receive(3)) == 3
    assert len(queue.receive(3)) == 2


def test_receive_gives_one_by_default(queue):
    queue.send_many(range(2))
    assert bodies(queue.receive()) == [0]


def test_a_leased_message_is_not_given_again(queue):
    queue.send(1)
    queue.one()
    assert queue.receive() == []


def test_receive_more_than_a_thousand(queue):
    queue.send_many(range(1500))
    assert bodies(queue.receive(1500)) == list(range(1500))


def test_receive_fills_its_batch_over_many_channels(queue):
    queue.send_many([Send(n, channel=f"c{n % 10}") for n in range(100)])
    assert len(queue.receive(100)) == 100


def test_the_lease_of_the_call_wins(queue, clock):
    queue.send(1, lease=5)
    assert queue.one(lease=9).lease_until == clock.moment(9)


def test_the_lease_of_the_queue_is_the_last_choice(make, clock):
    queue = make(lease=12)
    queue.send(1)
    assert queue.one().lease_until == clock.moment(12)


def test_a_lease_of_0_is_over_at_once(queue):
    queue.send(1)
    first = queue.one(lease=0)
    second = queue.one(lease=0)
    assert (first.id, first.deliveries) == (second.id, 1)
    assert second.deliveries == 2
    assert second.recovered


def test_attempts_and_deliveries_are_counted_at_the_lease(queue):
    queue.send(1)
    message = queue.one()
    assert (message.attempts, message.deliveries) == (1, 1)
    stored = queue.get(id=message.id)
    assert (stored.attempts, stored.deliveries, stored.state) == (1, 1, "leased")


def test_delivered_counts_leases(queue, clock):
    queue.send_many([1, 2])
    queue.receive(2, lease=5)
    clock.tick(5)
    queue.receive(2)
    assert totals(queue) == {"sent": 2, "delivered": 4, "recovered": 2}


# --- filters ------------------------------------------------------------------------------------


def test_version_is_an_exact_match(queue):
    queue.send_many([Send("v0"), Send("v1", version=1), Send("v2", version=2)])
    assert bodies(queue.receive(5, version=1)) == ["v1"]
    assert bodies(queue.receive(5, version=0)) == ["v0"]
    assert bodies(queue.receive(5, version=3)) == []
    assert bodies(queue.receive(5)) == ["v2"]


def test_10_13_no_version_merges_all_by_priority_and_due(queue):
    queue.send_many(
        [
            Send("a", version=2),
            Send("b", version=0, priority=1),
            Send("c", version=1, priority=2),
            Send("d", version=0),
            Send("e", version=1, priority=1),
        ]
    )
    assert bodies(queue.receive(5)) == ["c", "b", "e", "a", "d"]


def test_10_13_no_version_merges_one_by_one_too(queue):
    queue.send_many([Send(n, version=n % 3) for n in range(9)])
    assert bodies(drain(queue)) == list(range(9))


def test_a_version_in_the_way_is_passed_by(queue):
    queue.send_many([Send(n, version=1, priority=9) for n in range(20)])
    queue.send("wanted", version=0)
    assert bodies(queue.receive(5, version=0)) == ["wanted"]


def test_types_are_a_set(queue):
    queue.send_many([Send(1, type="a"), Send(2, type="b"), Send(3, type="c"), Send(4)])
    assert sorted(bodies(queue.receive(5, types=["a", "c"]))) == [1, 3]
    assert bodies(queue.receive(5, types=["x"])) == []
    assert bodies(queue.receive(5, types=["b", "b"])) == [2]
    assert bodies(queue.receive(5)) == [4]


def test_no_types_fit_nothing(queue):
    queue.send_many([Send(1, type="a"), Send(2)])
    assert queue.receive(5, types=[]) == []
    assert len(queue.receive(5)) == 2


def test_a_message_without_a_type_fits_no_list(queue):
    queue.send(1)
    assert queue.receive(5, types=["a"]) == []


def test_types_compare_byte_by_byte(queue):
    queue.send_many([Send(1, type="a"), Send(2, type="A"), Send(3, type="a ")])
    assert bodies(queue.receive(5, types=["A"])) == [2]
    assert bodies(queue.receive(5, types=["a "])) == [3]


def test_min_priority(queue):
    queue.send_many([Send(n, priority=n) for n in (-2, -1, 0, 1, 2)])
    assert bodies(queue.receive(5, min_priority=1)) == [2, 1]
    assert bodies(queue.receive(5, min_priority=-1)) == [0, -1]
    assert bodies(queue.receive(5, min_priority=-1)) == []


def test_filters_work_together(queue):
    queue.send_many(
        [
            Send("no type", version=1, priority=5),
            Send("wrong version", type="t", priority=5),
            Send("low", version=1, type="t", priority=1),
            Send("yes", version=1, type="t", priority=5),
        ]
    )
    assert bodies(queue.receive(9, version=1, types=["t"], min_priority=2)) == ["yes"]


def test_filters_look_into_every_channel(queue):
    queue.send_many([Send(n, channel=f"c{n}", type="other") for n in range(10)])
    queue.send("yes", channel="c7", type="t")
    assert bodies(queue.receive(3, types=["t"])) == ["yes"]


# --- max_bytes ----------------------------------------------------------------------------------


def test_max_bytes_caps_the_batch(queue):
    queue.send_many([b"x" * 10] * 5)
    assert len(queue.receive(5, max_bytes=30)) == 3
    assert len(queue.receive(5, max_bytes=19)) == 1


def test_max_bytes_always_gives_the_first(queue):
    queue.send_many([b"x" * 100, b"y"])
    assert len(queue.receive(5, max_bytes=10)) == 1


def test_max_bytes_cuts_before_the_first_that_does_not_fit(queue):
    queue.send_many([b"x" * 6, b"x" * 6, b"x"])
    received = queue.receive(5, max_bytes=10)
    assert len(received) == 1
    assert counts(queue) == {"ready": 2, "leased": 1}


def test_what_max_bytes_cut_off_is_untouched(queue):
    queue.send_many([b"x" * 10] * 2)
    queue.receive(5, max_bytes=10)
    [_, second] = queue.peek()
    assert (second.state, second.attempts, second.deliveries) == ("ready", 0, 0)
    assert totals(queue)["delivered"] == 1


def test_what_max_bytes_cut_off_is_next_in_turn(queue):
    queue.send_many([Send(b"x" * 10, channel=c) for c in "abc"])
    assert channels(queue.receive(5, max_bytes=10)) == ["a"]
    assert channels(queue.receive(5, max_bytes=10)) == ["b"]


def test_what_max_bytes_cut_off_costs_no_rate(queue, clock):
    queue.channel("").set_policy(rate="1/min", burst=5)
    queue.send_many([b"x" * 10] * 5)
    assert len(queue.receive(5, max_bytes=20)) == 2
    assert len(queue.receive(5)) == 3


# --- carried acks -------------------------------------------------------------------------------


def test_receive_carries_acks(queue):
    queue.send_many([1, 2, 3])
    first = queue.receive(2)
    second = queue.receive(2, ack=first)
    assert bodies(second) == [3]
    assert second.lost == []
    assert counts(queue) == {"leased": 1}
    assert totals(queue) == {"sent": 3, "delivered": 3, "acked": 2}


def test_carried_acks_that_are_lost_are_reported(queue, clock):
    queue.send_many([1, 2])
    first = queue.receive(1, lease=5) + queue.receive(1, lease=60)
    clock.tick(5)
    queue.receive(1)
    received = queue.receive(2, ack=first)
    assert ids(received.lost) == [first[0].id]
    assert totals(queue)["acked"] == 1


def test_carried_acks_are_done_even_if_nothing_is_there(queue):
    queue.send(1)
    first = queue.receive()
    assert queue.receive(ack=first) == []
    assert counts(queue) == {}


def test_carried_acks_free_the_slots_of_their_channel(queue):
    queue.channel("").set_policy(max_concurrency=1)
    queue.send_many([1, 2])
    first = queue.receive()
    assert bodies(queue.receive(ack=first)) == [2]


def test_carried_acks_are_done_on_a_paused_queue(queue):
    queue.send(1)
    first = queue.receive()
    queue.pause()
    assert queue.receive(ack=first) == []
    assert counts(queue) == {}


def test_carried_acks_keep_messages_where_the_queue_has_a_retention(make):
    queue = make(retention=60)
    queue.send(1)
    queue.receive(ack=queue.receive())
    assert counts(queue) == {"done": 1}


# --- sweeping on the way --------------------------------------------------------------------------


def test_promise_09_due_messages_need_no_daemon(queue, clock):
    queue.send_many([Send(n, delay=n) for n in range(1, 4)])
    clock.tick(2)
    assert bodies(queue.receive(5)) == [1, 2]


def test_promise_09_expired_leases_need_no_daemon(queue, clock):
    queue.send_many([1, 2])
    queue.receive(2, lease=10)
    clock.tick(10)
    received = queue.receive(2)
    assert bodies(received) == [1, 2]
    assert all(m.recovered for m in received)


def test_a_lease_is_over_at_its_deadline_and_not_before(queue, clock):
    queue.send(1)
    queue.one(lease=10)
    clock.us += 10_000_000 - 1
    assert queue.receive() == []
    clock.us += 1
    assert queue.one().recovered


def test_recovered_messages_keep_their_place(queue, clock):
    queue.send_many([1, 2, 3])
    queue.one(lease=5)
    clock.tick(5)
    assert bodies(queue.receive(3)) == [1, 2, 3]


def test_due_messages_take_their_place_by_due_time(queue, clock):
    queue.send("later", at=clock.moment(2))
    queue.send("sooner", at=clock.moment(1))
    clock.tick(3)
    queue.send("now")
    assert bodies(queue.receive(3)) == ["sooner", "later", "now"]


def test_a_receive_that_fills_its_batch_from_the_ready_still_sweeps_in_tests(queue, clock):
    """§4.1: with a given now the sweep is never skipped, so an earlier due time comes first."""
    queue.send("early", at=clock.moment(1))
    clock.tick(2)
    queue.send("late")
    assert bodies(queue.receive(1)) == ["early"]


# --- retry_after ----------------------------------------------------------------------------------


def test_retry_after_the_next_due_time(queue):
    queue.send_many([Send(1, delay=7), Send(2, delay=9)])
    assert queue.receive().retry_after == 7


def test_retry_after_the_next_lease_ends(queue):
    queue.send_many([1, 2])
    queue.one(lease=4)
    queue.one(lease=3)
    assert queue.receive().retry_after == 3


def test_retry_after_is_the_smallest(queue, clock):
    queue.send(1, delay=5)
    queue.send(2)
    queue.one(lease=3)
    assert queue.receive().retry_after == 3
    clock.tick(1)
    assert queue.receive().retry_after == 2


def test_retry_after_the_next_slot_of_a_rate(queue, clock):
    queue.channel("").set_policy(rate="1/10s")
    queue.send_many([1, 2])
    message = queue.one(lease=60)
    assert queue.receive().retry_after == 10
    clock.tick(4)
    assert queue.receive().retry_after == 6
    message.ack()
    assert queue.receive().retry_after == 6


def test_retry_after_looks_at_channels_closed_by_rate_only(queue):
    queue.channel("").set_policy(rate="1/10s", max_concurrency=1)
    queue.send_many([1, 2])
    queue.one(lease=60)
    assert queue.receive().retry_after == 60


def test_retry_after_is_none_when_nothing_is_on_its_way(queue):
    queue.channel("").set_policy(paused=True)
    queue.send(1)
    assert queue.receive().retry_after is None


def test_retry_after_ignores_messages_that_no_filter_wants(queue):
    queue.channel("").set_policy(rate="1/10s")
    queue.send_many([Send(1), Send(2, type="t")])
    queue.one().ack()
    assert queue.receive(types=["other"]).retry_after is None
    assert queue.receive(types=["t"]).retry_after == 10


# --- waiting --------------------------------------------------------------------------------------


def test_wait_answers_at_once_when_something_is_there(queue):
    queue.send(1)
    assert bodies(queue.receive(wait=20)) == [1]


def test_wait_ends_empty_at_its_deadline(queue):
    assert queue.receive(wait=0.01) == []


def test_wait_reports_the_lost_of_its_first_look_once(queue):
    queue.send(1)
    [message] = queue.receive()
    queue.cancel(id=message.id, force=True)
    received = queue.receive(wait=0.01, ack=[message])
    assert ids(received.lost) == [message.id]
