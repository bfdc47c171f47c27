"""Debounce: one message for many sends, after a pause (semantics §14)."""

from __future__ import annotations

import pytest

from fairturn import InvalidArgument, Send
from tests.conformance.door import counts


def bounce(queue, body, debounce=5, max_wait=None, **options):
    return queue.send(
        body, key="k", on_conflict="replace", debounce=debounce, max_wait=max_wait, **options
    )


def due(queue, clock):
    """Seconds from now."""
    return (queue.get(key="k").due_at - clock.moment()).total_seconds()


def test_each_send_pushes_the_message_on(queue, clock):
    first = bounce(queue, 1)
    assert due(queue, clock) == 5
    for n in range(2, 10):
        clock.tick(4)
        sent = bounce(queue, n)
        assert (sent, sent.outcome) == (first, "replaced")
        assert due(queue, clock) == 5
        assert queue.receive() == []
    clock.tick(5)
    assert queue.one().body == 9
    assert counts(queue) == {"leased": 1}


def test_max_wait_bounds_it_from_the_first_send(queue, clock):
    bounce(queue, 1, 5, 12)
    clock.tick(4)
    bounce(queue, 2, 5, 12)
    assert due(queue, clock) == 5
    clock.tick(4)
    bounce(queue, 3, 5, 12)
    assert due(queue, clock) == 4
    clock.tick(3)
    bounce(queue, 4, 5, 12)
    assert due(queue, clock) == 1
    clock.tick(1)
    assert queue.one().body == 4


def test_a_send_after_the_bound_makes_it_due_at_once(queue, clock):
    bounce(queue, 1, 5, 12)
    queue.pause()
    clock.tick(20)
    bounce(queue, 2, 5, 12)
    assert due(queue, clock) == -8
    assert queue.get(key="k").state == "ready"
    queue.resume()
    assert queue.one().body == 2


def test_the_bound_is_that_of_the_latest_send(queue, clock):
    bounce(queue, 1, 5)
    clock.tick(4)
    bounce(queue, 2, 5, 6)
    assert due(queue, clock) == 2
    bounce(queue, 3, 5)
    assert due(queue, clock) == 5


def test_a_bound_below_the_debounce(queue, clock):
    bounce(queue, 1, 60, 5)
    assert due(queue, clock) == 5
    clock.tick(1)
    bounce(queue, 2, 60, 5)
    assert due(queue, clock) == 4


def test_a_rearmed_message_is_bounded_from_now(queue, clock):
    bounce(queue, 1, 5, 12)
    clock.tick(5)
    queue.one().complete("done")
    clock.tick(100)
    assert bounce(queue, 2, 20, 12).outcome == "replaced"
    assert due(queue, clock) == 12
    clock.tick(8)
    bounce(queue, 3, 20, 12)
    assert due(queue, clock) == 4


def test_a_message_that_is_being_worked_on_is_not_changed(queue, clock):
    bounce(queue, 1, 5)
    clock.tick(5)
    message = queue.one()
    assert bounce(queue, 2, 5).outcome == "refused"
    message.ack()
    assert bounce(queue, 3, 5).outcome == "sent"
    assert due(queue, clock) == 5


def test_a_new_message_after_death(queue, clock):
    first = bounce(queue, 1, 5, 8)
    clock.tick(5)
    queue.one().kill()
    second = bounce(queue, 2, 20, 8)
    assert (second.outcome, second != first) == ("sent", True)
    assert due(queue, clock) == 8


def test_many_at_once(queue, clock):
    options = {"on_conflict": "replace", "debounce": 5, "max_wait": 6}
    queue.send_many([Send(n, key=f"k{n % 2}", **options) for n in range(6)])
    clock.tick(3)
    queue.send_many([Send(n, key=f"k{n % 2}", **options) for n in range(6, 12)])
    clock.tick(3)
    assert sorted(message.body for message in queue.receive(9)) == [10, 11]


def test_debounce_in_a_group(db, queue, clock):
    name = f"{queue.name}-group"
    bounce(queue, 1, 5, 6, group=name)
    clock.tick(4)
    bounce(queue, 2, 5, 6, group=name)
    assert queue.get(key="k").state == "held"
    db.group(name).start()
    clock.tick(1)
    assert queue.receive() == []
    clock.tick(1)
    assert queue.one().body == 2


@pytest.mark.few_variants
@pytest.mark.parametrize(
    "options",
    [
        {"debounce": 5},
        {"debounce": 5, "key": "k"},
        {"debounce": 5, "key": "k", "on_conflict": "ignore"},
        {"debounce": 5, "key": "k", "on_conflict": "replace", "delay": 1},
        {"debounce": -1, "key": "k", "on_conflict": "replace"},
        {"debounce": 5, "max_wait": -1, "key": "k", "on_conflict": "replace"},
        {"max_wait": 5, "key": "k", "on_conflict": "replace"},
    ],
)
def test_broken_debounce(queue, options):
    with pytest.raises(InvalidArgument):
        queue.send(1, **options)
