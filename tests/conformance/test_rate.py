"""Rates: GCRA on one timestamp (semantics §4.11, DESIGN §10.9)."""

from __future__ import annotations

import pytest

from fairturn import Policy, Send
from tests.conformance.door import bodies, channels


def test_the_first_message_of_an_idle_channel_is_immediate(queue):
    queue.channel("").set_policy(rate="1/min")
    queue.send_many([1, 2])
    assert bodies(queue.receive(5)) == [1]


def test_messages_are_spaced_by_the_interval(queue, clock):
    queue.channel("").set_policy(rate="1/10s")
    queue.send_many(range(4))
    for n in range(4):
        assert bodies(queue.receive(5, lease=600)) == [n]
        clock.us += 10_000_000 - 1
        assert queue.receive(5) == []
        clock.us += 1


def test_acks_do_not_matter_to_the_rate(queue):
    queue.channel("").set_policy(rate="1/min")
    queue.send_many([1, 2])
    queue.one().ack()
    assert queue.receive() == []


def test_a_burst_is_given_at_once(queue, clock):
    queue.channel("").set_policy(rate="1/10s", burst=3)
    queue.send_many(range(10))
    assert len(queue.receive(10)) == 3
    assert queue.receive(10) == []
    clock.tick(10)
    assert len(queue.receive(10)) == 1
    clock.tick(25)
    assert len(queue.receive(10)) == 2
    clock.tick(1000)
    assert len(queue.receive(10)) == 3


def test_intervals_round_up(queue, clock):
    queue.channel("").set_policy(rate="3/s")
    queue.send_many(range(3))
    queue.receive()
    clock.us += 333_333
    assert queue.receive() == []
    clock.us += 1
    assert len(queue.receive()) == 1


def test_an_idle_channel_saves_nothing_beyond_its_burst(queue, clock):
    queue.channel("").set_policy(rate="1/s")
    clock.tick(3600)
    queue.send_many(range(5))
    assert len(queue.receive(5)) == 1


def test_10_09_only_what_was_leased_is_charged(queue, clock):
    queue.channel("").set_policy(rate="1/10s", burst=5)
    queue.send_many([1, 2])
    assert len(queue.receive(5)) == 2
    queue.send_many([3, 4, 5])
    assert len(queue.receive(5)) == 3
    queue.send(6)
    assert queue.receive(5).retry_after == 10


def test_10_09_an_empty_receive_charges_nothing(queue):
    queue.channel("").set_policy(rate="1/min")
    for _ in range(3):
        assert queue.receive() == []
    queue.send(1)
    assert bodies(queue.receive()) == [1]


def test_10_09_a_filtered_receive_charges_nothing(queue):
    queue.channel("").set_policy(rate="1/min")
    queue.send(1, type="a")
    assert queue.receive(types=["b"]) == []
    assert bodies(queue.receive(types=["a"])) == [1]


def test_a_release_gives_no_rate_back(queue):
    queue.channel("").set_policy(rate="1/min")
    queue.send(1)
    queue.one().release()
    assert queue.receive() == []


def test_recovered_messages_pay_again(queue, clock):
    queue.channel("").set_policy(rate="1/min")
    queue.send(1)
    queue.one(lease=5)
    clock.tick(5)
    assert queue.receive() == []
    clock.tick(55)
    assert queue.one().recovered


def test_changing_the_rate_keeps_the_time_of_the_last(queue, clock):
    queue.channel("").set_policy(rate="1/min")
    queue.send_many(range(3))
    queue.receive()
    queue.channel("").set_policy(rate="1/s")
    assert queue.receive() == []
    clock.tick(60)
    assert len(queue.receive()) == 1
    clock.tick(1)
    assert len(queue.receive()) == 1


def test_lifting_the_rate_opens_the_channel(queue):
    queue.channel("").set_policy(rate="1/min")
    queue.send_many(range(3))
    queue.receive()
    queue.channel("").set_policy()
    assert len(queue.receive(5)) == 2


def test_channels_have_their_own_rates(make, clock):
    queue = make(policy=Policy(rate="1/min"))
    queue.send_many([Send(n, channel=c) for c in "abc" for n in range(2)])
    assert "".join(channels(queue.receive(10))) == "abc"
    assert queue.receive(10) == []
    clock.tick(60)
    assert len(queue.receive(10)) == 3


def test_rate_and_concurrency_both_hold(queue, clock):
    queue.channel("").set_policy(rate="1/s", burst=10, max_concurrency=2)
    queue.send_many(range(9))
    first = queue.receive(9)
    assert len(first) == 2
    queue.ack(first)
    assert len(queue.receive(9)) == 2


@pytest.mark.parametrize("n", [1, 10])
def test_the_rate_holds_over_a_long_run(queue, clock, n):
    queue.channel("").set_policy(rate="5/s", burst=2)
    queue.send_many(range(60))
    given = 0
    for _ in range(40):  # ten seconds in quarters
        given += len(queue.receive(n))
        clock.tick(0.25)
    # Up to 9.75 s: one every 0.2 s, and one more of the burst. One every quarter second is less.
    assert given == (50 if n == 10 else 40)


def test_retry_after_shrinks_as_time_goes_by(queue, clock):
    queue.channel("").set_policy(rate="1/10s", burst=2)
    queue.send_many(range(5))
    queue.receive(5, lease=600)
    assert queue.receive().retry_after == 10
    clock.tick(9.5)
    assert queue.receive().retry_after == 0.5


def test_the_smallest_of_several_channels(queue):
    queue.channel("a").set_policy(rate="1/10s")
    queue.channel("b").set_policy(rate="1/7s")
    queue.send_many([Send(n, channel=c) for c in "ab" for n in range(2)])
    queue.receive(9, lease=600)
    assert queue.receive().retry_after == 7
