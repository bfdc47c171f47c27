"""Each violation in a history written by hand is found; and what is allowed is not a violation."""

from __future__ import annotations

import pytest

from tests.campaign.checks.checker import check
from tests.campaign.checks.written import Book, found
from tests.campaign.world import LEASE, NARROW

OVER = LEASE + 1  # seconds after which a lease is over


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_good_history_has_no_violation(book: Book) -> None:
    book.life("a", 1)
    book.send("b", 2)
    book.receive(("b", 2, 1))
    book.verb("fail", 2, 1)
    book.receive(("b", 2, 2))
    book.verb("ack", 2, 2)
    verdict = check(book.ops)
    assert verdict.violations == []
    assert verdict.reasons == {"fail": 1}


# --- the total queue ----------------------------------------------------------------------------
def test_an_acknowledged_value_that_nobody_finished_is_lost(book: Book) -> None:
    book.send("a", 1)
    assert found(book) == ["lost"]


def test_a_value_with_a_refused_ack_is_lost(book: Book) -> None:
    book.send("a", 1)
    book.receive(("a", 1, 1))
    book.verb("ack", 1, 1, "fail")
    assert found(book) == ["lost"]


def test_a_value_whose_ack_is_unknown_is_not_lost(book: Book) -> None:
    book.send("a", 1)
    book.receive(("a", 1, 1))
    book.verb("ack", 1, 1, "info")
    assert found(book) == []


def test_an_unknown_send_may_happen_or_not(book: Book) -> None:
    book.send("a", 1, "info")
    book.send("b", 2, "info")
    book.receive(("b", 2, 1))
    book.verb("ack", 2, 1)
    verdict = check(book.ops)
    assert verdict.violations == []
    assert verdict.sometimes["unknown send that happened"] == 1


def test_a_value_that_was_never_sent_is_unexpected(book: Book) -> None:
    book.receive(("ghost", 1, 1))
    assert found(book) == ["unexpected"]


def test_a_value_that_was_rolled_back_is_unexpected(book: Book) -> None:
    book.add("rollback", "fail", queue="plain", values=["a"], channel="", tx=True)
    book.receive(("a", 1, 1))
    assert found(book) == ["unexpected"]


def test_a_value_that_was_refused_is_unexpected(book: Book) -> None:
    book.send("a", 1, "fail")
    book.receive(("a", 1, 1))
    assert found(book) == ["unexpected"]


def test_one_send_that_makes_two_messages(book: Book) -> None:
    book.life("a", 1)
    book.receive(("a", 2, 1))
    book.verb("ack", 2, 1)
    assert found(book) == ["enqueued twice"]


def test_a_killed_message_goes_on_as_a_dead_letter(book: Book) -> None:
    book.send("a", 1)
    book.receive(("a", 1, 1))
    book.verb("kill", 1, 1)
    assert found(book) == ["lost"]
    book.receive(("a", 1, 2), queue="plain-dead")
    book.verb("ack", 1, 2, queue="plain-dead")
    assert found(book) == []


# --- leases -------------------------------------------------------------------------------------
def test_two_leases_at_once(book: Book) -> None:
    book.send("a", 1)
    book.receive(("a", 1, 1))
    book.receive(("a", 1, 2))
    book.verb("ack", 1, 2)
    assert found(book) == ["two leases", "unexplained duplicate"]


def test_the_next_lease_after_the_first_is_over(book: Book) -> None:
    book.send("a", 1, at=0)
    book.receive(("a", 1, 1), at=1)
    book.receive(("a", 1, 2), at=1 + OVER)
    book.verb("ack", 1, 2)
    verdict = check(book.ops)
    assert verdict.violations == []
    assert verdict.reasons == {"lease expired": 1}


def test_the_next_lease_in_an_extension_of_the_first(book: Book) -> None:
    book.send("a", 1, at=0)
    book.receive(("a", 1, 1), at=1)
    book.verb("extend", 1, 1, at=3, lease=LEASE)
    book.receive(("a", 1, 2), at=1 + OVER)
    book.verb("ack", 1, 2)
    assert found(book) == ["two leases", "unexplained duplicate"]


def test_one_delivery_for_two_consumers(book: Book) -> None:
    book.send("a", 1, at=0)
    book.receive(("a", 1, 1), at=1)
    book.receive(("a", 1, 1), at=1 + OVER)
    book.verb("ack", 1, 1)
    assert found(book) == ["two leases"]


def test_a_stale_ack_that_was_accepted(book: Book) -> None:
    book.send("a", 1, at=0)
    book.receive(("a", 1, 1), at=1)
    book.receive(("a", 1, 2), at=1 + OVER)
    book.verb("ack", 1, 1)
    assert found(book) == ["stale verb"]


@pytest.mark.parametrize("verb", ["fail", "defer", "release"])
def test_another_stale_verb_that_was_accepted(book: Book, verb: str) -> None:
    book.send("a", 1, at=0)
    book.receive(("a", 1, 1), at=1)
    book.receive(("a", 1, 2), at=1 + OVER)
    book.verb(verb, 1, 1, lease=LEASE)
    book.verb("ack", 1, 2)
    assert found(book) == ["stale verb"]


def test_a_stale_extension_that_was_accepted(book: Book) -> None:
    book.send("a", 1, at=0)
    book.receive(("a", 1, 1), at=1)
    book.receive(("a", 1, 2), at=1 + OVER)
    book.verb("extend", 1, 1, lease=LEASE)
    book.verb("ack", 1, 2)
    assert "stale verb" in found(book)


@pytest.mark.parametrize(("queue", "checks"), [("sqs", []), ("keyed", ["two leases"])])
def test_an_old_receipt_ends_the_lease_of_another_in_sqs_only(
    book: Book, queue: str, checks: list[str]
) -> None:
    book.send("a", 1, at=0, queue=queue)
    book.receive(("a", 1, 1), at=1, queue=queue)
    book.receive(("a", 1, 2), at=1 + OVER, queue=queue)
    book.verb("release", 1, 1, queue=queue)
    book.receive(("a", 1, 3), queue=queue)
    book.verb("ack", 1, 3, queue=queue)
    assert [check for check in found(book) if check == "two leases"] == checks


def test_a_message_that_was_finished_twice(book: Book) -> None:
    book.life("a", 1)
    book.verb("ack", 1, 1)
    assert found(book) == ["finished twice"]


def test_a_message_that_came_after_its_end(book: Book) -> None:
    book.life("a", 1)
    book.receive(("a", 1, 2), at=20)
    assert found(book) == ["stale verb", "delivered after its end"]


def test_a_delivery_without_the_one_before_needs_an_unknown_receive(book: Book) -> None:
    book.send("a", 1)
    book.receive(("a", 1, 2))
    book.verb("ack", 1, 2)
    assert found(book) == ["unexplained duplicate"]
    book.receive(outcome="info", at=0.5)
    assert found(book) == []


def test_a_receive_is_repeated_when_its_connection_breaks(book: Book) -> None:
    book.send("a", 1)
    book.add("fault", fault="cut connections", at=2)
    book.receive(at=2)
    book.receive(("a", 1, 2), at=9)
    book.verb("ack", 1, 2)
    assert found(book) == []
    book.ops[1].about["fault"] = "kill consumer"
    assert found(book) == ["unexplained duplicate"]


# --- limits, order, keys ------------------------------------------------------------------------
def test_more_leases_than_the_channel_allows(book: Book) -> None:
    for value, id in (("a", 1), ("b", 2)):
        book.send(value, id, queue="limited", channel=NARROW)
    for value, id in (("a", 1), ("b", 2)):
        book.receive((value, id, 1), queue="limited", channel=NARROW)
    for id in (1, 2):
        book.verb("ack", id, 1, queue="limited")
    assert found(book) == ["limit"]


def test_more_leases_than_the_queue_allows(book: Book) -> None:
    many = [(value, id, 1) for id, value in enumerate("abcd", 1)]
    for value, id, _ in many:
        book.send(value, id, queue="limited")
    book.receive(*many, queue="limited")
    for _, id, _ in many:
        book.verb("ack", id, 1, queue="limited")
    assert found(book) == ["limit"]


def test_a_lease_that_is_over_does_not_count(book: Book) -> None:
    for value, id in (("a", 1), ("b", 2)):
        book.send(value, id, queue="limited", channel=NARROW, at=0)
    book.receive(("a", 1, 1), queue="limited", channel=NARROW, at=1)
    book.receive(("b", 2, 1), queue="limited", channel=NARROW, at=1 + OVER)
    for id in (1, 2):
        book.verb("ack", id, 1, queue="limited")
    assert found(book) == []


def test_a_message_that_overtakes(book: Book) -> None:
    for value, id in (("a", 1), ("b", 2)):
        book.send(value, id, queue="ordered", channel="c")
    for value, id in (("b", 2), ("a", 1)):
        book.receive((value, id, 1), queue="ordered", channel="c")
        book.verb("ack", id, 1, queue="ordered")
    assert found(book) == ["order"]


def test_a_run_of_one_answer_is_in_order(book: Book) -> None:
    for value, id in (("a", 1), ("b", 2)):
        book.send(value, id, queue="ordered", channel="c")
    book.receive(("a", 1, 1), ("b", 2, 1), queue="ordered", channel="c")
    for id in (1, 2):
        book.verb("ack", id, 1, queue="ordered")
    assert found(book) == []


def test_two_messages_under_one_key(book: Book) -> None:
    book.send("a", 1, queue="keyed", key="k")
    book.send("b", 2, queue="keyed", key="k")
    for value, id in (("a", 1), ("b", 2)):
        book.receive((value, id, 1), queue="keyed", key="k")
        book.verb("ack", id, 1, queue="keyed")
    assert found(book) == ["key"]


def test_two_messages_under_one_key_after_each_other(book: Book) -> None:
    book.life("a", 1, queue="keyed", key="k")
    book.life("b", 2, queue="keyed", key="k")
    assert found(book) == []
