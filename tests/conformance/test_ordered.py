"""Ordered channels: one after the other (semantics §4.7, DESIGN §10.10)."""

from __future__ import annotations

import pytest

from fairturn import Policy, Send
from tests.conformance.door import bodies, channels, ids


@pytest.fixture
def ordered(make):
    return make(policy=Policy(ordered=True))


def test_10_10_a_leased_message_blocks_its_channel(ordered):
    ordered.send_many([1, 2])
    message = ordered.one()
    assert ordered.receive(5) == []
    message.ack()
    assert bodies(ordered.receive(5)) == [2]


def test_10_10_a_retry_blocks_its_channel(ordered, clock):
    ordered.send_many([1, 2])
    ordered.one().fail("boom", delay=60)
    received = ordered.receive(5)
    assert received == []
    assert received.retry_after == 60
    clock.tick(60)
    message = ordered.one()
    assert (message.body, message.attempts) == (1, 2)


def test_10_10_a_retry_goes_first_even_with_a_later_due_time(ordered, clock):
    ordered.send_many([1, 2])
    ordered.one().fail("boom", delay=0)
    assert bodies(ordered.receive(1)) == [1]


def test_10_10_a_retry_goes_before_a_higher_priority(ordered):
    ordered.send(1)
    ordered.one().fail("boom", delay=0)
    ordered.send("urgent", priority=9)
    assert bodies(ordered.receive(1)) == [1]


def test_10_10_a_never_delivered_future_message_does_not_block(ordered, clock):
    ordered.send("later", delay=60)
    ordered.send("now")
    assert bodies(ordered.receive(5)) == ["now"]


def test_10_10_one_receive_may_lease_a_run(ordered):
    ordered.send_many(range(5))
    run = ordered.receive(3)
    assert bodies(run) == [0, 1, 2]
    for message in run:
        assert ordered.receive(5) == []
        message.ack()
    assert bodies(ordered.receive(5)) == [3, 4]


def test_10_10_the_channel_is_closed_until_the_whole_run_is_finished(ordered):
    ordered.send_many(range(4))
    first, second = ordered.receive(2)
    second.ack()
    assert ordered.receive(5) == []
    first.ack()
    assert bodies(ordered.receive(5)) == [2, 3]


def test_a_deferred_message_blocks_too(ordered, clock):
    ordered.send_many([1, 2])
    ordered.one().defer(60)
    assert ordered.receive(5) == []
    clock.tick(60)
    assert bodies(ordered.receive(1)) == [1]


def test_a_released_message_goes_first(ordered):
    ordered.send_many([1, 2])
    ordered.one().release()
    ordered.send("urgent", priority=9)
    assert bodies(ordered.receive(1)) == [1]


def test_an_expired_lease_is_recovered_in_place(ordered, clock):
    ordered.send_many([1, 2, 3])
    ordered.one(lease=5)
    clock.tick(5)
    received = ordered.receive(5)
    assert bodies(received) == [1, 2, 3]
    assert [m.recovered for m in received] == [True, False, False]


@pytest.mark.parametrize("end", ["ack", "complete", "kill"])
def test_a_finished_message_opens_the_channel(ordered, end):
    ordered.send_many([1, 2])
    getattr(ordered.one(), end)()
    assert bodies(ordered.receive(5)) == [2]


def test_a_dead_message_opens_the_channel(make):
    queue = make(policy=Policy(ordered=True), max_attempts=1)
    queue.send_many([1, 2])
    queue.one().fail("boom", delay=60)
    assert bodies(queue.receive(5)) == [2]


def test_a_redriven_message_is_no_longer_begun(ordered, clock):
    ordered.send_many([1, 2])
    ordered.one().kill("boom")
    clock.tick(1)
    ordered.redrive()
    assert bodies(ordered.receive(5)) == [2, 1]


def test_a_redriven_future_message_does_not_block(ordered):
    ordered.send_many([1, 2])
    ordered.one().kill("boom")
    ordered.redrive(delay=60)
    assert bodies(ordered.receive(5)) == [2]


def test_a_replaced_message_is_no_longer_begun(ordered):
    ordered.send(1, key="k")
    ordered.send(2)
    ordered.one().fail("boom", delay=60)
    ordered.send("new", key="k", delay=90, on_conflict="replace")
    assert bodies(ordered.receive(5)) == [2]


def test_cancelling_the_blocking_message_opens_the_channel(ordered):
    sent = ordered.send_many([1, 2])
    ordered.one().fail("boom", delay=60)
    ordered.cancel(id=sent[0])
    assert bodies(ordered.receive(5)) == [2]


def test_rescheduling_the_blocking_message_keeps_the_channel_closed(ordered, clock):
    sent = ordered.send_many([1, 2])
    ordered.one().fail("boom", delay=60)
    ordered.reschedule(id=sent[0], delay=5)
    assert ordered.receive(5) == []
    clock.tick(5)
    assert bodies(ordered.receive(1)) == [1]


def test_a_filter_ends_the_run_at_the_first_that_does_not_fit(ordered):
    ordered.send_many([Send(1, type="a"), Send(2, type="b"), Send(3, type="a")])
    run = ordered.receive(5, types=["a"])
    assert bodies(run) == [1]
    run[0].ack()
    assert ordered.receive(5, types=["a"]) == []
    assert bodies(ordered.receive(5, types=["b"])) == [2]


def test_a_version_filter_ends_the_run_too(ordered):
    ordered.send_many([Send(1, version=0), Send(2, version=1), Send(3, version=0)])
    assert bodies(ordered.receive(5, version=0)) == [1]


def test_only_the_head_may_be_given(ordered):
    ordered.send_many([Send(1, type="a"), Send(2, type="b")])
    assert ordered.receive(5, types=["b"]) == []


def test_min_priority_ends_the_run(ordered):
    ordered.send_many([Send(1, priority=5), Send(2, priority=1), Send(3, priority=5)])
    assert bodies(ordered.receive(5, min_priority=5)) == [1, 3]


def test_priority_orders_what_is_not_begun(ordered):
    ordered.send_many([Send(1), Send(2, priority=5), Send(3)])
    assert bodies(ordered.receive(5)) == [2, 1, 3]


def test_other_channels_go_on(ordered):
    ordered.send_many([Send(n, channel=c) for c in "ab" for n in range(2)])
    ordered.receive(1)
    assert channels(ordered.receive(5)) == ["b", "b"]


def test_max_concurrency_bounds_the_run(make):
    queue = make(policy=Policy(ordered=True, max_concurrency=2))
    queue.send_many(range(5))
    assert bodies(queue.receive(5)) == [0, 1]


def test_turns_are_kept_inside_a_batch(ordered):
    ordered.send_many([Send(n, channel=c) for c in "ab" for n in range(3)])
    assert "".join(channels(ordered.receive(4))) == "abab"


def test_a_channel_made_ordered_later_respects_leases_given_before(queue):
    queue.send_many([1, 2, 3])
    message = queue.one()
    queue.channel("").set_policy(ordered=True)
    assert queue.receive(5) == []
    message.ack()
    assert bodies(queue.receive(5)) == [2, 3]


def test_a_run_that_fails_in_the_middle_is_given_in_order(ordered):
    ordered.send_many([1, 2, 3])
    first, second, third = ordered.receive(3)
    second.fail("boom", delay=0)
    third.ack()
    first.ack()
    assert bodies(ordered.receive(5)) == [2]


def test_begun_messages_keep_their_order_among_themselves(ordered, clock):
    sent = ordered.send_many([1, 2, 3])
    run = ordered.receive(2)
    ordered.release(run)
    assert ids(ordered.receive(1)) == [sent[0]]


@pytest.mark.parametrize("most", [1, 3])
def test_a_life_in_order(make, clock, rng, most):
    """Whatever fails, expires or is released: every delivery goes on where the order stopped."""
    queue = make(policy=Policy(ordered=True), max_attempts=0)
    queue.send_many(range(30))
    finished = 0
    # A run is given back whole; a single one may come back later, and still blocks the others.
    ends = ["release", "expire"] if most > 1 else ["fail", "release", "defer", "expire"]
    while finished < 30:
        received = queue.receive(rng.randrange(1, most + 1), lease=5)
        assert bodies(received) == list(range(finished, finished + len(received)))
        assert received
        good = rng.randrange(len(received) + 1)
        queue.ack(received[:good])
        finished += good
        for message in received[good:]:
            end = rng.choice(ends)
            if end != "expire":
                getattr(message, end)()
        clock.tick(6)


def test_a_retry_is_not_overtaken_by_the_rest_of_its_run(make, clock):
    queue = make(policy=Policy(ordered=True))
    queue.send_many(range(5))
    for attempt in (1, 2):
        first, *others = queue.receive(3)
        assert (first.body, first.attempts) == (0, attempt)
        assert first.ordered
        first.fail("not yet", delay=5)
        queue.release(others)
        assert not queue.receive(3)
        clock.tick(6)
    received = queue.receive(5)
    assert bodies(received) == [0, 1, 2, 3, 4]


def test_only_an_ordered_channel_says_so(make):
    queue = make()
    queue.send("a")
    assert not queue.receive()[0].ordered
