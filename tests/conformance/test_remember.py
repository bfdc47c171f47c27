"""queue.remember, queue.recall: small values for a while (semantics §19.5)."""

from __future__ import annotations

import pytest

from fairturn import InvalidArgument, InvalidBody, InvalidName, QueueNotFound
from tests.conformance.test_once import NAMES

VALUES = [0, -1.5, True, "", "é€\x00\U0001f600", [], [1, [2]], {}, {"a": {"b": None}}, "x" * 65_534]


def test_nothing_is_remembered_at_first(queue):
    assert queue.recall("x") is None


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:10])
def test_a_value_comes_back_as_it_was(queue, value):
    queue.remember("x", value, keep=60)
    assert queue.recall("x") == value
    assert type(queue.recall("x")) is type(value)
    assert queue.recall("y") is None


def test_the_last_one_counts(queue, clock):
    queue.remember("x", 1, keep=1000)
    queue.remember("x", {"n": 2}, keep=10)
    assert queue.recall("x") == {"n": 2}
    clock.tick(10)
    assert queue.recall("x") is None
    queue.remember("x", 3, keep=10)
    assert queue.recall("x") == 3


def test_it_is_forgotten_when_its_time_is_over(queue, clock):
    queue.remember("x", 1, keep=10)
    clock.tick(9.999999)
    assert queue.recall("x") == 1
    clock.tick(0.000001)
    assert queue.recall("x") is None


def test_keeping_it_for_no_time_forgets_it(queue):
    queue.remember("x", 1, keep=10)
    queue.remember("x", 1, keep=0)
    assert queue.recall("x") is None


def test_null_is_as_good_as_nothing(queue):
    queue.remember("x", 1, keep=10)
    queue.remember("x", None, keep=10)
    assert queue.recall("x") is None


def test_names_compare_byte_by_byte(queue):
    for n, name in enumerate(NAMES):
        queue.remember(name, n, keep=60)
    assert [queue.recall(name) for name in NAMES] == list(range(len(NAMES)))


def test_a_value_and_a_send_of_one_name_never_meet(queue):
    queue.remember("x", {"a": 1}, keep=60)
    first = queue.send(1, once="x")
    assert first.outcome == "sent"
    assert queue.recall("x") == {"a": 1}
    queue.remember("x", 2, keep=60)
    assert queue.send(2, once="x") == first
    assert queue.recall("x") == 2


def test_each_queue_has_its_own(make):
    one, two = make(), make()
    one.remember("x", 1, keep=60)
    assert two.recall("x") is None
    two.remember("x", 2, keep=60)
    assert (one.recall("x"), two.recall("x")) == (1, 2)


def test_purge_and_drop_forget(queue):
    queue.remember("x", 1, keep=60)
    queue.purge()
    assert queue.recall("x") is None
    queue.remember("x", 2, keep=60)
    queue.drop()
    with pytest.raises(QueueNotFound):
        queue.recall("x")
    with pytest.raises(QueueNotFound):
        queue.remember("x", 1, keep=60)
    queue.create()
    assert queue.recall("x") is None


@pytest.mark.yours
def test_your_rollback(db, queue):
    queue.remember("x", 1, keep=60)
    with db.rolled_back() as connection:
        bound = queue.inner.using(connection)
        db.wait(bound.remember("x", 2, keep=60))
        db.wait(bound.remember("y", 3, keep=60))
        assert (db.wait(bound.recall("x")), db.wait(bound.recall("y"))) == (2, 3)
    assert (queue.recall("x"), queue.recall("y")) == (1, None)


@pytest.mark.few_variants
def test_broken_arguments(queue):
    for value in (b"bytes", float("nan"), {1, 2}, "\ud800", object()):
        with pytest.raises(InvalidBody):
            queue.remember("x", value, keep=60)
    for keep in (-1, "60", float("inf"), None):
        with pytest.raises(InvalidArgument):
            queue.remember("x", 1, keep=keep)
    with pytest.raises(InvalidArgument, match="65,536"):
        queue.remember("x", "x" * 65_535, keep=60)
    for name in ("", "x" * 256, "a\0b", "\ud800", None, 7):
        with pytest.raises(InvalidName):
            queue.remember(name, 1, keep=60)
        with pytest.raises(InvalidName):
            queue.recall(name)
    assert queue.recall("x") is None
