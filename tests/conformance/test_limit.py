"""The limit over all channels of a queue (semantics §4.3, DESIGN §10.11)."""

from __future__ import annotations

import pytest

from fairturn import Send
from tests.conformance.door import bodies, channels


def test_10_11_the_limit_spans_all_channels(queue):
    queue.set_limit(max_concurrency=3)
    queue.send_many([Send(n, channel=c) for c in "abcde" for n in range(2)])
    assert "".join(channels(queue.receive(10))) == "abc"
    assert queue.receive(10) == []


def test_an_ack_frees_a_slot(queue):
    queue.set_limit(max_concurrency=1)
    queue.send_many([Send(n, channel=c) for n, c in enumerate("ab")])
    queue.one().ack()
    assert channels(queue.receive(5)) == ["b"]


def test_the_limit_and_a_policy_both_hold(queue):
    queue.set_limit(max_concurrency=3)
    queue.channel("a").set_policy(max_concurrency=1)
    queue.send_many([Send(n, channel=c) for c in "ab" for n in range(5)])
    assert sorted(channels(queue.receive(10))) == ["a", "b", "b"]


def test_settings_show_the_limit(queue):
    queue.set_limit(max_concurrency=3, rate="7/min")
    settings = queue.settings()
    assert (settings.max_concurrency, settings.rate) == (3, "7/min")


def test_without_arguments_the_limit_is_lifted(queue):
    queue.set_limit(max_concurrency=1, rate="1/day")
    queue.set_limit()
    settings = queue.settings()
    assert (settings.max_concurrency, settings.rate) == (None, None)
    queue.send_many(range(5))
    assert len(queue.receive(5)) == 5


def test_set_limit_leaves_the_default_policy_alone(queue):
    from fairturn import Policy

    queue.set(policy=Policy(max_concurrency=2, weight=3))
    queue.set_limit(max_concurrency=9)
    assert queue.settings().policy == Policy(max_concurrency=2, weight=3)


def test_a_rate_over_all_channels(queue, clock):
    queue.set_limit(rate="1/10s", burst=2)
    queue.send_many([Send(n, channel=c) for c in "abc" for n in range(2)])
    assert "".join(channels(queue.receive(10))) == "ab"
    assert queue.receive(10) == []
    clock.tick(10)
    assert channels(queue.receive(10)) == ["c"]


def test_retry_after_the_queues_next_slot(queue):
    queue.set_limit(rate="1/10s")
    queue.send_many([1, 2])
    queue.one(lease=600)
    assert queue.receive().retry_after == 10


def test_retry_after_ignores_the_queues_rate_when_nothing_is_eligible(queue):
    queue.set_limit(rate="1/10s")
    queue.send(1)
    queue.one().ack()
    assert queue.receive().retry_after is None


def test_the_queues_rate_is_charged_for_what_was_given(queue):
    queue.set_limit(rate="1/min", burst=3)
    queue.send(1)
    assert len(queue.receive(5)) == 1
    queue.send_many([2, 3, 4])
    assert len(queue.receive(5)) == 2


def test_a_lowered_limit_binds_the_leases_given_after_it(queue):
    queue.send_many(range(5))
    held = queue.receive(3)
    queue.set_limit(max_concurrency=1)
    assert queue.receive(5) == []
    queue.ack(held)
    assert len(queue.receive(5)) == 1


def test_expired_leases_count_until_they_are_swept(queue, clock):
    queue.set_limit(max_concurrency=1)
    queue.send_many([Send(1, channel="a"), Send(2, channel="b")])
    queue.one(lease=5)
    clock.tick(5)
    assert len(queue.receive(5)) == 1


def test_carried_acks_free_the_queues_slots(queue):
    queue.set_limit(max_concurrency=1)
    queue.send_many([1, 2, 3])
    held = queue.receive(5)
    for n in (2, 3):
        held = queue.receive(5, ack=held)
        assert bodies(held) == [n]


@pytest.mark.parametrize("n", [1, 2, 10])
def test_turns_hold_under_the_limit(queue, n):
    queue.set_limit(max_concurrency=2)
    queue.send_many([Send(i, channel=c) for c in "abc" for i in range(4)])
    got: list[str] = []
    while received := queue.receive(n):
        got += channels(received)
        queue.ack(received)
    assert "".join(got) == "abcabcabcabc"
