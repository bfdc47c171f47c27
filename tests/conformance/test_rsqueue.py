"""rsqueue's store cases, its queue part (REFERENCE §5, §7), in Fairturn's words.

push(priority p) = send(priority=-p), pop(max m) = receive(min_priority=-m), address = key,
permit = a permit per delivery, delete(permit) = ack, failure = the failure log.
"""

from __future__ import annotations

import pytest

from fairturn import DuplicateKey, InvalidName, LeaseLost, Send
from tests.conformance.door import bodies, counts, drain

ONE, TWO = "type-1", "type-2"


def push(queue, priority, tag, key=None, type=ONE):
    return queue.send(tag, priority=-priority, key=key, type=type)


def pop(queue, most, types=(ONE,), **options):
    received = queue.receive(1, min_priority=-most, types=list(types), **options)
    return received[0] if received else None


@pytest.fixture
def filled(queue):
    for priority, tag in ((8, "8-1"), (8, "8-2"), (7, "7-1"), (4, "4-1"), (0, "0-1"), (0, "0-2")):
        push(queue, priority, tag)
    push(queue, 7, "7-2", "abc")
    push(queue, 5, "5-1", "def")
    with pytest.raises(DuplicateKey):
        push(queue, 5, "5-2", "def")
    push(queue, 8, "8-3", type=TWO)
    return queue


def test_queue(filled, clock):
    queue = filled
    taken = [pop(queue, 11), pop(queue, 2)]
    assert bodies(taken) == ["0-1", "0-2"]
    assert pop(queue, 1) is None
    taken += [pop(queue, 8) for _ in range(6)]
    assert bodies(taken[2:]) == ["4-1", "5-1", "7-1", "7-2", "8-1", "8-2"]
    assert pop(queue, 8) is None
    taken.append(pop(queue, 8, [TWO]))
    assert taken[-1].body == "8-3"
    assert counts(queue) == {"leased": 9}
    # Eight workers lose their permits: the same order again, without the one that is kept.
    kept = taken.pop(3)
    queue.release(taken)
    again = []
    while message := pop(queue, 11, [ONE, TWO]):
        again.append(message.body)
    assert again == ["0-1", "0-2", "4-1", "7-1", "7-2", "8-1", "8-2", "8-3"]
    kept.ack()


def test_sweeping_permits_gives_the_work_back_in_order(db, filled, clock):
    """The same by expired permits, which is what their sweeper did."""
    dying, living = db.permit(ttl=10), db.permit(ttl=1000)
    for _ in range(8):
        assert pop(filled, 11, permit=dying, lease=1)
    kept = pop(filled, 11, [TWO], permit=living, lease=1)
    clock.tick(10)
    again = []
    while message := pop(filled, 11, [ONE, TWO]):
        again.append(message.body)
    assert again == ["0-1", "0-2", "4-1", "5-1", "7-1", "7-2", "8-1", "8-2"]
    kept.ack()


def test_no_types_pop_nothing(filled):
    assert pop(filled, 11, []) is None


def test_an_address_is_taken_while_its_work_is_queued_or_running(queue):
    push(queue, 0, "a", "address")
    with pytest.raises(DuplicateKey):
        push(queue, 0, "b", "address")
    message = pop(queue, 5)
    with pytest.raises(DuplicateKey):
        push(queue, 0, "b", "address")
    message.ack()
    assert push(queue, 0, "b", "address").created


def test_addressed_work_is_complete_when_it_has_left_the_queue(queue):
    assert queue.get(key="address") is None
    push(queue, 0, "a", "address")
    assert queue.get(key="address") is not None
    pop(queue, 5).ack()
    assert queue.get(key="address") is None


def test_a_blank_address_is_an_error(queue):
    with pytest.raises(InvalidName):
        push(queue, 0, "a", "")


@pytest.mark.parametrize("code", [0, 404])
def test_the_failure_of_an_address_is_reported_after_completion(queue, code):
    push(queue, 0, "a", "address")
    pop(queue, 5).kill("not found", details={"code": code})
    [failure] = queue.failures(key="address")
    assert (failure.error, failure.details) == ("not found", {"code": code})
    assert queue.get(key="address").error == "not found"


def test_defect_9_the_failure_of_an_old_run_is_not_the_new_ones(queue):
    push(queue, 0, "a", "address")
    pop(queue, 5).kill("old")
    push(queue, 0, "b", "address")
    message = queue.get(key="address")
    assert (message.state, message.error, message.body) == ("ready", None, "b")


def test_peek_shows_running_work_too(filled):
    pop(filled, 11)
    assert len(filled.peek()) == 9
    assert [m.body for m in filled.peek(state="leased")] == ["0-1"]


def test_carrier_bytes_come_back_unchanged(queue):
    queue.send(1, headers={"carrier": "\0\u00ff'"})
    assert queue.one().headers == {"carrier": "\0\u00ff'"}


def test_defect_cancelled_work_does_not_wedge_the_queue(queue):
    """Their soft-deleted rows were claimed again and again."""
    sent = queue.send_many([Send(n, type=ONE) for n in range(5)])
    for id in sent[:3]:
        queue.cancel(id=id)
    assert bodies(drain(queue)) == [3, 4]


def test_defect_live_permits_are_never_swept(db, queue, clock):
    permit = db.permit(ttl=10)
    push(queue, 0, "a")
    message = pop(queue, 5, permit=permit, lease=1)
    for _ in range(10):
        clock.tick(9)
        permit.extend()
        db.maintain()
        assert pop(queue, 5) is None
    message.ack()


def test_defect_a_worker_learns_that_it_lost_its_permit(db, queue, clock):
    permit = db.permit(ttl=10)
    push(queue, 0, "a")
    message = pop(queue, 5, permit=permit, lease=1)
    clock.tick(10)
    pop(queue, 5)
    with pytest.raises(LeaseLost):  # PermitLost is one
        permit.extend()
    with pytest.raises(LeaseLost):
        message.ack()


def test_defect_crash_looping_work_ends(make, clock):
    queue = make(max_attempts=4, lease=1)
    push(queue, 0, "a")
    runs = 0
    while pop(queue, 5):
        runs += 1
        clock.tick(1)
    assert runs == 4
    assert counts(queue) == {"dead": 1}
