"""Progress of a message that is being worked on (semantics §13.1)."""

from __future__ import annotations

import pytest

from fairturn import InvalidArgument, LeaseLost
from tests.conformance.door import unique


def seen(queue, id):
    message = queue.get(id=id)
    return message.progressed, message.note


def test_progress_is_seen_by_others(queue):
    sent = queue.send(1)
    message = queue.one()
    assert seen(queue, sent) == (None, None)
    message.progress(0.4, note="halfway, nearly")
    assert seen(queue, sent) == (0.4, "halfway, nearly")
    [peeked] = queue.peek()
    assert (peeked.progressed, peeked.note) == (0.4, "halfway, nearly")


def test_what_is_not_named_stays(queue):
    sent = queue.send(1)
    message = queue.one()
    message.progress(0.25, note="a")
    message.progress(0.5)
    assert seen(queue, sent) == (0.5, "a")
    message.progress(note="b")
    assert seen(queue, sent) == (0.5, "b")
    message.progress(0)
    assert seen(queue, sent) == (0.0, "b")
    message.progress(note="")
    assert seen(queue, sent) == (0.0, "")


def test_progress_may_go_back_and_keeps_a_millionth(queue):
    sent = queue.send(1)
    message = queue.one()
    for value in (1, 0.5, 0.123456, 0.000001, 1.0):
        message.progress(value)
        assert seen(queue, sent)[0] == value


def test_the_lease_goes_on_as_it_was(queue, clock):
    queue.send(1)
    message = queue.one(lease=10)
    clock.tick(5)
    message.progress(0.5)
    found = queue.get(id=message.id)
    assert (found.lease_until, found.attempts, found.deliveries) == (clock.moment(5), 1, 1)
    clock.tick(5)
    [again] = queue.receive()
    assert again.recovered
    again.progress(0.1)
    assert queue.get(id=again.id).recovered


def test_progress_of_a_lost_lease(queue, clock):
    queue.send(1)
    lost = queue.one(lease=1)
    clock.tick(1)
    live = queue.one()
    live.progress(0.2, note="mine")
    with pytest.raises(LeaseLost):
        lost.progress(0.9, note="theirs")
    assert seen(queue, live.id) == (0.2, "mine")
    live.ack()
    with pytest.raises(LeaseLost):
        live.progress(1)


def test_every_lease_starts_anew(queue):
    sent = queue.send(1)
    message = queue.one()
    message.progress(0.7, note="seven")
    message.release()
    assert seen(queue, sent) == (0.7, "seven")
    queue.one()
    assert seen(queue, sent) == (None, None)


def test_a_replaced_message_has_made_no_progress(queue):
    sent = queue.send(1, key="k")
    message = queue.one()
    message.progress(0.7, note="seven")
    message.defer(60)
    assert queue.send(2, key="k", on_conflict="replace") == sent
    assert seen(queue, sent) == (None, None)


def test_progress_stays_with_what_is_finished(make):
    queue = make(retention=60)
    done, dead = queue.send(1), queue.send(2)
    first, second = queue.receive(2)
    first.progress(1, note="all")
    second.progress(0.3, note="some")
    first.ack()
    second.kill("boom")
    assert seen(queue, done) == (1.0, "all")
    assert seen(queue, dead) == (0.3, "some")


def test_notes_may_be_any_text(queue):
    sent = queue.send(1)
    message = queue.one()
    for note in ("%s ? $1 :x '\"", "é 漢 🎉", "line\nline", "x" * 1000):
        message.progress(note=note)
        assert seen(queue, sent)[1] == note


@pytest.mark.few_variants
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), "0.5", True])
def test_broken_progress(queue, value):
    queue.send(1)
    message = queue.one()
    with pytest.raises(InvalidArgument):
        message.progress(value)


@pytest.mark.parametrize(
    ("note", "kept"), [("a\0b", "ab"), ("\ud800", "?"), (5, "5"), ("é" * 2000, "é" * 1000)]
)
def test_notes_are_cut_like_error_texts(queue, note, kept):
    sent = queue.send(1)
    queue.one().progress(note=note)
    assert seen(queue, sent)[1] == kept


@pytest.mark.few_variants
def test_progress_of_nothing(queue):
    queue.send(1)
    with pytest.raises(InvalidArgument):
        queue.one().progress()


def test_progress_in_a_dropped_queue(make):
    queue = make(unique())
    queue.send(1)
    message = queue.one()
    queue.purge()
    with pytest.raises(LeaseLost):
        message.progress(0.5)
