"""LonnyMQ's acceptance cases (REFERENCE §2, §7), in Fairturn's words.

create = send, dequeue = receive, delete = ack, numAttempts = deliveries, isUnlocked = recovered,
dequeueAt = due_at, state = memo, heartbeat = extend, releaseIntervalMs = rate.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from fairturn import ChannelFull, LeaseLost, Policy, Send
from tests.conformance.door import bodies, channels, counts


def test_create_persists(queue):
    id = queue.send(b"hello", channel="alpha")
    message = queue.get(id=id)
    assert (message.raw, message.channel) == (b"hello", "alpha")
    assert (message.attempts, message.deliveries, message.lease_until) == (0, 0, None)


def test_create_is_refused_when_the_channel_is_full(queue):
    queue.channel("alpha").set_policy(max_size=1)
    queue.send(b"1", channel="alpha")
    with pytest.raises(ChannelFull):
        queue.send(b"2", channel="alpha")
    queue.one()  # a locked message still counts
    with pytest.raises(ChannelFull):
        queue.send(b"3", channel="alpha")


def test_a_smaller_dequeue_at_becomes_the_head(queue, clock):
    queue.send(1, channel="alpha", at=clock.moment(-1))
    queue.send(2, channel="alpha", at=clock.moment(-2))
    queue.send(3, channel="alpha", at=clock.moment(-3))
    assert bodies(queue.receive(3)) == [3, 2, 1]


def test_the_channels_size_is_1_2_3(queue):
    for size in (1, 2, 3):
        queue.send(b"hello", channel="alpha")
        assert [(c.channel, c.ready) for c in queue.channels()] == [("alpha", size)]


def test_create_persists_dequeue_at(queue, clock):
    id = queue.send(b"hello", at=clock.moment(7))
    assert queue.get(id=id).due_at == clock.moment(7)


def test_dequeue_updates_the_state_of_the_channel(queue, clock):
    """Two messages, then a release interval of 50 ms: one out, the next 50 ms later."""
    queue.send(b"hello", channel="alpha")
    queue.channel("alpha").set_policy(rate="20/s")
    second = queue.send(b"hello", channel="alpha")
    queue.one(lease=60)
    assert [(c.ready, c.leased) for c in queue.channels()] == [(1, 1)]
    assert queue.receive().retry_after == 0.05
    clock.us += 50_000 - 1
    assert queue.receive() == []
    clock.us += 1
    assert queue.one().id == second


def _hundred_in_order(queue, clock):
    """100 messages in one channel; on its first delivery every 15th is abandoned until its lease
    ends and every other 10th is deferred to where it was. The order must stay 0..99, and nothing
    may be missing twice in a row."""
    content = [f"message-{n}".encode() for n in range(100)]
    queue.send_many([Send(body, channel="alpha", lease=0.01) for body in content])
    counter = 0
    empty_before = False
    seen = []
    while counter < 100:
        received = queue.receive()
        if not received:
            assert not empty_before
            empty_before = True
            clock.tick(0.02)
            continue
        empty_before = False
        [message] = received
        seen.append(message.raw)
        assert message.raw == content[counter]
        if message.deliveries == 1:
            if counter % 15 == 0:
                continue
            if counter % 10 == 0:
                message.defer(at=message.due_at)
                continue
        assert message.recovered is (counter % 15 == 0)
        message.ack()
        counter += 1
    assert len(seen) == 100 + 7 + 6  # 7 abandoned: 0, 15 … 90; 6 deferred: 10, 20, 40, 50, 70, 80
    assert queue.stats().total == 0
    assert queue.stats().recovered == 7
    assert queue.stats().deferred == 6


def test_a_hundred_messages_in_order(queue, clock):
    queue.channel("alpha").set_policy(max_concurrency=1)
    _hundred_in_order(queue, clock)


def test_a_hundred_messages_in_order_on_an_ordered_channel(queue, clock):
    queue.channel("alpha").set_policy(ordered=True)
    _hundred_in_order(queue, clock)


def test_a_hundred_messages_in_order_on_ordered_channels_even_when_put_off(queue, clock):
    """Ordered: a deferred message is waited for, so even a later due time keeps the order."""
    queue.channel("alpha").set_policy(ordered=True)
    queue.send_many([Send(n, channel="alpha") for n in range(100)])
    got = []
    while len(got) < 100:
        received = queue.receive()
        if not received:
            clock.tick(1)
            continue
        [message] = received
        if message.deliveries == 1 and message.body % 10 == 0:
            message.defer(1)
            continue
        got.append(message.body)
        message.ack()
    assert got == list(range(100))


def test_the_delivery_number_after_a_defer(queue):
    queue.send(1)
    for number in (1, 2, 3):
        message = queue.one()
        assert message.deliveries == number
        message.defer()


def test_is_unlocked_says_that_a_lease_expired(queue, clock):
    queue.send(1, channel="alpha")
    message = queue.one(lease=1)
    assert message.recovered is False
    clock.tick(1)
    message = queue.one()
    assert message.recovered is True
    assert message.channel == "alpha"  # theirs was undefined here


@pytest.mark.parametrize("times", [1, 2, 3])
def test_heartbeats_keep_the_lease(queue, clock, times):
    queue.send(1)
    message = queue.one(lease=1)
    for _ in range(times):
        clock.tick(0.9)
        message.extend(1)
    assert queue.receive() == []
    clock.tick(1)
    assert queue.one().recovered


def test_heartbeat_of_an_unknown_message(queue):
    queue.send(1)
    message = queue.one()
    message.ack()
    with pytest.raises(LeaseLost):
        message.extend(1)


def test_heartbeat_of_a_stale_delivery(queue, clock):
    queue.send(1)
    stale = queue.one(lease=1)
    clock.tick(1)
    queue.one()
    with pytest.raises(LeaseLost):
        stale.extend(1)


def test_heartbeat_never_shortens(queue, clock):
    queue.send(1)
    message = queue.one(lease=60)
    message.extend(1)
    assert message.lease_until == clock.moment(60)


@pytest.mark.parametrize("text", ["'", "''", "\\", '"', "$$", "a'b\"c\\d"])
def test_escaping(make, text):
    queue = make()
    queue.channel(text).set_policy(max_concurrency=1)
    queue.send(text, channel=text)
    message = queue.one()
    assert (message.channel, message.body) == (text, text)


# --- what they never tested (REFERENCE §7) --------------------------------------------------------


def test_round_robin_b_is_served_within_two_dequeues(queue):
    queue.send_many([Send(n, channel="A") for n in range(1000)])
    queue.send("b", channel="B")
    assert "B" in channels(queue.receive() + queue.receive())


def test_release_interval_spacing(queue, clock):
    queue.channel("a").set_policy(rate="10/s")
    queue.send_many([Send(n, channel="a") for n in range(5)])
    times = []
    for _ in range(60):
        if queue.receive(1, lease=60):
            times.append(clock.us)
        clock.us += 10_000
    assert [b - a for a, b in pairwise(times)] == [100_000] * 4


def test_policy_change_while_live(queue):
    queue.send_many([Send(n, channel="a") for n in range(10)])
    queue.channel("a").set_policy(max_concurrency=1)
    assert len(queue.receive(9)) == 1
    queue.channel("a").set_policy(max_concurrency=3)
    assert len(queue.receive(9)) == 2
    queue.channel("a").clear_policy()
    assert len(queue.receive(9)) == 7


def test_fencing_codes(queue, clock):
    queue.send(1)
    stale = queue.one(lease=1)
    clock.tick(1)
    live = queue.one()
    for call in (stale.ack, stale.defer, stale.extend):
        with pytest.raises(LeaseLost):
            call()
    live.ack()
    for call in (live.ack, live.defer, live.extend):
        with pytest.raises(LeaseLost):
            call()


# --- its defects (REFERENCE §2.4, §9) -------------------------------------------------------------


@pytest.mark.parametrize("second", [0, 29, 30, 57, 59])
def test_defect_3_the_clock_runs_straight_over_every_minute(queue, clock, second):
    """Theirs ran at double speed within a minute and jumped back at its end."""
    clock.us += (60 - clock.us // 1_000_000 % 60 + second) * 1_000_000
    queue.send(1)
    queue.one(lease=30)
    for _ in range(29):
        clock.tick(1)
        assert queue.receive() == []
    clock.tick(1)
    assert queue.one().recovered


def test_defect_4_a_single_hot_channel_gives_full_batches(queue):
    queue.send_many([Send(n, channel="hot") for n in range(400)])
    for _ in range(4):
        assert len(queue.receive(100)) == 100


def test_defect_6_a_policy_set_before_the_first_message_holds(queue):
    queue.channel("new").set_policy(max_concurrency=1)
    queue.send_many([Send(n, channel="new") for n in range(3)])
    assert len(queue.receive(9)) == 1


def test_defect_retry_after_knows_lock_expiries(queue):
    queue.channel("a").set_policy(max_concurrency=1)
    queue.send_many([Send(n, channel="a") for n in range(2)])
    queue.one(lease=0.5)
    assert queue.receive().retry_after == 0.5


def test_defect_clearing_a_policy_clears_max_size(queue):
    queue.channel("a").set_policy(max_size=1)
    queue.send(1, channel="a")
    queue.channel("a").clear_policy()
    assert queue.send(2, channel="a").created


def test_defect_defer_without_state_keeps_the_state(queue):
    queue.send(1)
    queue.one().defer(0, memo=b"state")
    queue.one().defer(0)
    assert queue.one().memo == b"state"


def test_defect_the_first_message_of_a_rate_limited_channel_is_immediate(make):
    queue = make(policy=Policy(rate="1/h"))
    queue.send(1, channel="new")
    assert bodies(queue.receive()) == [1]


def test_defect_14_poison_messages_die(make, clock):
    queue = make(max_attempts=3, lease=1)
    queue.send("poison")
    queue.send("good")
    served = 0
    while received := queue.receive(1):
        served += 1
        if received[0].body == "good":
            received[0].ack()
        clock.tick(1)
    assert served == 4
    assert counts(queue) == {"dead": 1}


def test_defect_expired_messages_do_not_bypass_rate_and_turn(queue, clock):
    queue.channel("a").set_policy(rate="1/min")
    queue.send_many([Send(n, channel=c) for c in "ab" for n in range(3)])
    assert channels(queue.receive(1, lease=1)) == ["a"]
    clock.tick(1)
    assert channels(queue.receive(2)) == ["b", "b"]
