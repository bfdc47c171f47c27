"""Waiting for what becomes of a message (semantics §13), and rsqueue's poll cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairturn import InvalidArgument, InvalidName, QueueNotFound, WaitTimeout
from tests.conformance.door import Background, unique

LONG = 60  # seconds nobody should wait for


class Looks:
    """Counts the looks of waiters, so that a test can go on when one has looked."""

    def __init__(self, db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        backend = db.inner._core.backend
        outcomes = backend.outcomes

        def counted(*args: Any) -> Any:
            rows = yield from outcomes(*args)
            self.count += 1
            return rows

        monkeypatch.setattr(backend, "outcomes", counted)


@pytest.fixture
def waiting(db: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Background]:
    """waiting(queue, key=…) -> a wait in the background that has looked at least once."""
    looks = Looks(db, monkeypatch)

    def waiting(queue: Any, **options: Any) -> Background:
        before = looks.count
        wait = db.background(lambda: queue.inner.wait(timeout=LONG, **options))
        # The second look begins when the first has been judged.
        wait.until(lambda: looks.count >= before + 2)
        return wait

    return waiting


# --- rsqueue's poll -----------------------------------------------------------------------------


def test_rsqueue_error(queue):
    """The failure of an address is reported to who polls it."""
    queue.send(1, key="address")
    queue.one().kill("not found")
    outcome = queue.wait(key="address", timeout=LONG)
    assert (outcome.state, outcome.error, outcome.finished) == ("dead", "not found", True)


def test_rsqueue_tick(db, queue, waiting):
    """Nobody tells the waiter: it finds out by itself, here by another client's ack."""
    sent = queue.send(1, key="address")
    wait = waiting(queue, key="address")
    other = db.another()
    try:
        other.queue(queue.name).one().ack()
    finally:
        other.close()
    outcome = wait.result()
    assert (outcome.state, outcome.id) == ("gone", sent)


def test_rsqueue_notify_by_address_only(queue, waiting):
    queue.send(1, key="address")
    queue.send(2, key="other")
    wait = waiting(queue, key="address")
    mine, other = queue.receive(2)
    other.complete("not yours")
    with pytest.raises(WaitTimeout):
        queue.wait(key="address", timeout=0.05)
    assert not wait.ended
    mine.complete("yours")
    assert wait.result().result == "yours"


def test_rsqueue_chunk_early_return(queue, waiting):
    queue.send(1, key="address")
    message = queue.one()
    wait = waiting(queue, key="address", partial=True)
    message.progress(0.5, note="chunk")
    outcome = wait.result()
    assert (outcome.state, outcome.progress, outcome.note) == ("leased", 0.5, "chunk")
    assert not outcome.finished


def test_rsqueue_complete_false_then_true(queue):
    queue.send(1, key="address")
    with pytest.raises(WaitTimeout):
        queue.wait(key="address", timeout=0.02)
    queue.one().ack()
    assert queue.wait(key="address", timeout=LONG).state == "gone"


def test_rsqueue_failure_after_completion_is_reported(queue):
    queue.send(1, key="address")
    queue.one().kill("late")
    for _ in range(2):  # and again
        assert queue.wait(key="address", timeout=LONG).error == "late"


def test_rsqueue_a_blank_address_is_an_error(queue):
    with pytest.raises(InvalidName):
        queue.wait(key="", timeout=LONG)


# --- before, during and after -------------------------------------------------------------------


def test_a_wait_before_completion(queue, waiting):
    sent = queue.send(1)
    wait = waiting(queue, id=sent)
    assert not wait.ended
    queue.one().complete({"sum": 5})
    outcome = wait.result()
    assert (outcome.state, outcome.id, outcome.result) == ("done", sent, {"sum": 5})


def test_a_wait_while_it_is_worked_on(queue, waiting):
    sent = queue.send(1)
    message = queue.one()
    wait = waiting(queue, id=sent)
    message.progress(0.5)
    message.complete(b"\0raw")
    outcome = wait.result()
    assert (outcome.state, outcome.result, outcome.progress) == ("done", b"\0raw", 0.5)


def test_a_wait_after_completion(queue):
    sent = queue.send(1, key="k")
    queue.one().complete(None)
    for which in ({"id": sent}, {"key": "k"}):
        outcome = queue.wait(timeout=LONG, **which)
        assert (outcome.state, outcome.id, outcome.result) == ("done", sent, None)


def test_looking_once(queue):
    """timeout=0: what is there now."""
    sent = queue.send(1)
    with pytest.raises(WaitTimeout):
        queue.wait(id=sent, timeout=0)
    queue.one().complete(7)
    assert queue.wait(id=sent, timeout=0).result == 7


def test_retries_do_not_end_a_wait(queue, waiting, clock):
    sent = queue.send(1)
    wait = waiting(queue, id=sent)
    queue.one().fail("once")
    queue.one().defer(5)
    clock.tick(5)
    queue.one().release()
    with pytest.raises(WaitTimeout):
        queue.wait(id=sent, timeout=0.02)
    assert not wait.ended
    queue.one().complete("at last")
    outcome = wait.result()
    assert (outcome.result, outcome.error) == ("at last", None)


def test_acked_cancelled_and_unknown_messages_are_gone(queue):
    acked, cancelled = queue.send(1), queue.send(2)
    queue.cancel(id=cancelled)
    queue.one().ack()
    for id in (acked, cancelled, 10**12):
        outcome = queue.wait(id=id, timeout=LONG)
        assert (outcome.state, outcome.id, outcome.finished) == ("gone", id, True)
    outcome = queue.wait(key="never", timeout=LONG)
    assert (outcome.state, outcome.id) == ("gone", None)


def test_a_message_past_its_expiry_is_gone(queue, clock):
    sent = queue.send(1, expires=5)
    with pytest.raises(WaitTimeout):
        queue.wait(id=sent, timeout=0.02)
    clock.tick(5)
    assert queue.wait(id=sent, timeout=LONG).state == "gone"


def test_an_acked_message_that_is_kept_is_done(make):
    queue = make(retention=60)
    sent = queue.send(1)
    queue.one().ack()
    outcome = queue.wait(id=sent, timeout=LONG)
    assert (outcome.state, outcome.result) == ("done", None)


def test_a_purge_ends_waits(queue, waiting):
    sent = queue.send(1)
    wait = waiting(queue, id=sent)
    queue.purge()
    assert wait.result().state == "gone"


def test_a_dead_lettered_message_is_dead(make, waiting):
    graves = make()
    queue = make(dead_letter=graves.name)
    sent = queue.send(1, key="k")
    wait = waiting(queue, key="k")
    queue.one().kill("boom")
    outcome = wait.result()
    assert (outcome.state, outcome.id, outcome.error) == ("dead", sent, "boom")
    assert queue.wait(id=sent, timeout=LONG).state == "dead"
    assert queue.wait(key="k", timeout=LONG).state == "gone"  # it lost its key
    with pytest.raises(WaitTimeout):
        graves.wait(id=sent, timeout=0.02)
    graves.one().ack()
    assert queue.wait(id=sent, timeout=LONG).state == "gone"


# --- keys and runs ------------------------------------------------------------------------------


def test_the_failure_of_an_earlier_run_is_never_reported(queue, waiting):
    queue.send(1, key="k")
    queue.one().kill("old")
    second = queue.send(2, key="k")
    with pytest.raises(WaitTimeout):
        queue.wait(key="k", timeout=0.02)
    wait = waiting(queue, key="k")
    queue.one().complete("new")
    outcome = wait.result()
    assert (outcome.id, outcome.state, outcome.error) == (second, "done", None)


def test_a_later_run_under_the_same_key_is_another_message(queue, waiting):
    first = queue.send(1, key="k")
    wait = waiting(queue, key="k")
    queue.one().ack()
    queue.send(2, key="k")
    outcome = wait.result()
    assert (outcome.id, outcome.state) == (first, "gone")
    with pytest.raises(WaitTimeout):
        queue.wait(key="k", timeout=0.02)


def test_a_replaced_message_is_the_same(queue, waiting):
    first = queue.send(1, key="k", delay=5)
    wait = waiting(queue, key="k")
    queue.send(2, key="k", on_conflict="replace")
    queue.one().complete("second")
    outcome = wait.result()
    assert (outcome.id, outcome.result) == (first, "second")


def test_keys_belong_to_their_queue(make):
    one, two = make(), make()
    one.send(1, key="k")
    assert two.wait(key="k", timeout=LONG).state == "gone"
    sent = one.send(2)
    assert two.wait(id=sent, timeout=LONG).state == "gone"


# --- partial ------------------------------------------------------------------------------------


def test_partial_ends_at_any_change(queue, waiting):
    sent = queue.send(1)
    message = queue.one()
    message.progress(0.5, note="a")
    wait = waiting(queue, id=sent, partial=True)
    message.progress(0.2)
    assert wait.result().progress == 0.2
    wait = waiting(queue, id=sent, partial=True)
    message.complete(1)
    assert wait.result().state == "done"


def test_partial_ends_above_a_number(queue, waiting):
    sent = queue.send(1)
    message = queue.one()
    wait = waiting(queue, id=sent, partial=0.5)
    message.progress(0.5)
    with pytest.raises(WaitTimeout):
        queue.wait(id=sent, partial=0.5, timeout=0.02)
    assert not wait.ended
    message.progress(0.6)
    outcome = wait.result()
    assert (outcome.state, outcome.progress) == ("leased", 0.6)
    assert queue.wait(id=sent, partial=0.5, timeout=LONG).progress == 0.6


def test_without_partial_progress_ends_nothing(queue, waiting):
    sent = queue.send(1)
    message = queue.one()
    wait = waiting(queue, id=sent)
    message.progress(1)
    with pytest.raises(WaitTimeout):
        queue.wait(id=sent, timeout=0.02)
    assert not wait.ended
    message.ack()
    assert wait.result().state == "gone"


# --- many, and errors ---------------------------------------------------------------------------


def test_many_waiters(make, db, waiting):
    queues = [make(), make()]
    waits = []
    for n in range(6):
        queue = queues[n % 2]
        queue.send(n, key=f"k{n}")
        waits.append(waiting(queue, key=f"k{n}"))
    waits.append(waiting(queues[0], key="k0"))
    for queue in queues:
        for message in queue.receive(9):
            message.complete(message.body * 10)
    assert [wait.result().result for wait in waits] == [0, 10, 20, 30, 40, 50, 0]


def test_an_unknown_queue(db):
    with pytest.raises(QueueNotFound):
        db.queue(unique("nowhere")).wait(id=1, timeout=LONG)


@pytest.mark.few_variants
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"id": 1, "key": "k"},
        {"id": 1, "timeout": -1},
        {"id": 1, "partial": 1.5},
        {"id": 1, "partial": -0.5},
        {"id": 1, "partial": "yes"},
    ],
)
def test_broken_waits(queue, options):
    with pytest.raises(InvalidArgument):
        queue.wait(**options)


@pytest.mark.yours
def test_waiting_in_your_transaction_is_refused(db, queue):
    """It would wait for what it has not committed."""

    def wait() -> None:
        with db.rolled_back() as connection:
            db.wait(queue.inner.using(connection).wait(id=1))

    with pytest.raises(InvalidArgument):
        wait()
