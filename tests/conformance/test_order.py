"""Order inside a channel: priority, then due time, then id (semantics §4.6)."""

from __future__ import annotations

import pytest

from fairturn import Send
from tests.conformance.door import bodies, channels, drain


@pytest.mark.parametrize("n", [1, 3, 100])
def test_promise_08_priority_then_due_then_id(queue, clock, n, rng):
    sends = [
        Send([priority, back, i], priority=priority, at=clock.moment(-back))
        for i, (priority, back) in enumerate(
            (rng.randrange(-2, 3), rng.randrange(3)) for _ in range(60)
        )
    ]
    queue.send_many(sends)
    got = [tuple(body) for body in bodies(drain(queue, n))]
    assert got == sorted(got, key=lambda b: (-b[0], -b[1], b[2]))
    assert len(got) == 60


def test_higher_priority_first(queue):
    queue.send_many(
        [Send("low", priority=1), Send("high", priority=2), Send("negative", priority=-1)]
    )
    assert bodies(drain(queue)) == ["high", "low", "negative"]


def test_a_new_higher_priority_overtakes_the_waiting(queue):
    queue.send_many(range(5))
    assert bodies(queue.receive(2)) == [0, 1]
    queue.send("urgent", priority=1)
    assert bodies(queue.receive(2)) == ["urgent", 2]


def test_older_due_first(queue, clock):
    queue.send("b", at=clock.moment(-1))
    queue.send("a", at=clock.moment(-2))
    queue.send("c")
    assert bodies(drain(queue)) == ["a", "b", "c"]


def test_a_message_sent_into_the_past_comes_first(queue, clock):
    queue.send_many(range(3))
    assert bodies(queue.receive()) == [0]
    queue.send("past", at=clock.moment(-5))
    assert bodies(queue.receive(2)) == ["past", 1]


def test_id_breaks_ties(queue):
    for n in range(10):
        queue.send(n)
    assert bodies(drain(queue)) == list(range(10))


def test_batches_are_returned_in_order(queue, rng):
    priorities = [rng.randrange(100) for _ in range(80)]
    queue.send_many([Send(p, priority=p) for p in priorities])
    assert bodies(queue.receive(80)) == sorted(priorities, reverse=True)


def test_batches_keep_the_order_within_each_channel(queue):
    queue.send_many([Send(n, channel="abc"[n % 3], priority=n % 2) for n in range(30)])
    received = queue.receive(30)
    for channel in "abc":
        mine = [(m.priority, m.body) for m in received if m.channel == channel]
        assert mine == sorted(mine, key=lambda pair: (-pair[0], pair[1]))


def test_priority_never_crosses_channels(queue):
    queue.send(1, channel="a", priority=0)
    queue.send_many([Send(n, channel="b", priority=9) for n in (2, 3)])
    assert channels(drain(queue)) == ["a", "b", "b"]


def test_a_failed_message_comes_by_its_new_due_time(queue, clock):
    queue.send_many([1, 2, 3])
    clock.tick(1)
    queue.one().fail("boom", delay=0)
    assert bodies(drain(queue)) == [2, 3, 1]


def test_a_released_message_keeps_its_place(queue, clock):
    queue.send_many([1, 2, 3])
    clock.tick(1)
    queue.one().release()
    assert bodies(drain(queue)) == [1, 2, 3]


def test_a_rescheduled_priority_moves_the_message(queue):
    sent = queue.send_many([1, 2, 3])
    queue.reschedule(id=sent[2], priority=5)
    assert bodies(drain(queue)) == [3, 1, 2]


def test_a_rescheduled_due_time_moves_the_message(queue, clock):
    sent = queue.send_many([1, 2, 3])
    queue.reschedule(id=sent[2], at=clock.moment(-1))
    assert bodies(drain(queue)) == [3, 1, 2]


def test_released_messages_are_found_again_before_later_ones(queue):
    """A consumer that remembers where it was must look back (DESIGN §8.3, §10.14)."""
    queue.send_many(range(10))
    first = queue.receive(5)
    first[2].release()
    assert bodies(queue.receive(1)) == [2]


def test_redriven_messages_are_found_again(queue, clock):
    queue.send_many(range(4))
    message = queue.one()
    queue.receive(1)
    message.kill("boom")
    queue.redrive()
    assert sorted(bodies(queue.receive(5))) == [0, 2, 3]
