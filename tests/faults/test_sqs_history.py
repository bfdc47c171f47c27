"""The judge of these tests sees what it should: histories that must not be."""

from __future__ import annotations

import time

import pytest

from tests.faults.sqs_history import Delivery, History


def told(*messages: tuple[str, int]) -> dict[str, list[dict[str, object]]]:
    """An answer with these (body, receive count)."""
    return {
        "Messages": [
            {
                "Body": body,
                "MessageId": f"id of {body}",
                "ReceiptHandle": "h",
                "Attributes": {"ApproximateReceiveCount": str(count)},
            }
            for body, count in messages
        ]
    }


def got(history: History, *messages: tuple[str, int]) -> list[Delivery]:
    return history.gets(history.asks(), told(*messages))


def gone(history: History, one: Delivery) -> None:
    history.deletes(one)
    history.has_deleted(one)


def test_a_good_history() -> None:
    history = History()
    first, second = got(history, ("g 0", 1), ("g 1", 1))
    gone(history, second)
    gone(history, first)
    [third] = got(history, ("g 2", 1))
    history.yields(third)
    gone(history, got(history, ("g 2", 2), ("h 0", 1))[0])
    history.check_ids()
    history.check_order()
    history.check_deleted()
    history.check_visibility(30)


def test_a_message_that_overtakes_one_in_flight() -> None:
    history = History()
    got(history, ("g 0", 1))
    got(history, ("g 1", 1))
    with pytest.raises(AssertionError, match="g 1 was given while g 0 was not deleted"):
        history.check_order()


def test_a_message_that_overtakes_one_nobody_ever_got() -> None:
    history = History()
    got(history, ("g 1", 1))
    with pytest.raises(AssertionError, match="g 1 was given while g 0 was not deleted"):
        history.check_order()


def test_a_message_that_overtakes_one_whose_delete_came_to_nothing() -> None:
    history = History()
    [first] = got(history, ("g 0", 1))
    history.deletes(first)  # and no answer
    [again] = got(history, ("g 0", 2))
    got(history, ("g 1", 1))
    gone(history, again)
    with pytest.raises(AssertionError, match="g 1 was given while g 0 was not deleted"):
        history.check_order()


def test_a_message_that_overtakes_one_whose_delete_was_refused() -> None:
    history = History()
    [first] = got(history, ("g 0", 1))
    history.deletes(first)
    history.has_not_deleted(first)
    got(history, ("g 1", 1))
    with pytest.raises(AssertionError, match="g 1 was given while g 0 was not deleted"):
        history.check_order()


def test_an_answer_in_the_wrong_order() -> None:
    history = History()
    got(history, ("g 1", 1), ("g 0", 1))
    with pytest.raises(AssertionError):
        history.check_order()


def test_a_deleted_message_that_comes_back() -> None:
    history = History()
    gone(history, got(history, ("g 0", 1))[0])
    got(history, ("g 0", 2))
    with pytest.raises(AssertionError, match="g 0 came back"):
        history.check_deleted()


def test_a_receive_that_was_asked_for_before_the_delete_may_still_bring_it() -> None:
    history = History()
    [first] = got(history, ("g 0", 1))
    asked = history.asks()
    gone(history, first)
    history.gets(asked, told(("g 0", 2)))
    history.check_deleted()


def test_a_message_that_two_hold_at_once() -> None:
    history = History()
    got(history, ("g 0", 1))
    got(history, ("g 0", 2))
    with pytest.raises(AssertionError, match="g 0 again after"):
        history.check_visibility(30)


def test_a_message_that_comes_again_when_its_time_is_over() -> None:
    history = History()
    got(history, ("g 0", 1))
    time.sleep(0.02)
    got(history, ("g 0", 2))
    history.check_visibility(0.02)


def test_a_message_that_was_enqueued_twice() -> None:
    history = History()
    got(history, ("g 0", 1))
    answer = told(("g 0", 1))
    answer["Messages"][0]["MessageId"] = "another"
    history.gets(history.asks(), answer)
    with pytest.raises(AssertionError, match="enqueued twice"):
        history.check_ids()
