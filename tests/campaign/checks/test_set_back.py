"""A restore excuses what it explains, and nothing else."""

from __future__ import annotations

import pytest

from tests.campaign.checks.checker import check
from tests.campaign.checks.set_back import BACKUP, RESTORE
from tests.campaign.checks.written import Book, found
from tests.campaign.history import Outcome

TAKEN, AWAY, BACK = 100.0, 200.0, 210.0  # the backup; the database is closed, and open again


@pytest.fixture
def book() -> Book:
    return Book()


def restore(book: Book, *there: tuple[int, int]) -> None:
    """``there``: the messages of the backup, with their delivery numbers."""
    book.add("fault", fault=BACKUP, at=TAKEN, took=1, result={"taken_at": TAKEN + 1})
    times = {"closed_at": AWAY, "opened_at": BACK}
    result = {**times, "messages": [list(one) for one in there]}
    book.add("fault", fault=RESTORE, at=AWAY - 1, took=BACK - AWAY + 2, result=result)


def ended(book: Book, value: str, id: int, at: float, number: int = 1, token: str = "") -> None:
    book.receive((value, id, number), at=at, token=token)
    book.verb("ack", id, number, at=at + 1, token=token)


def test_a_send_between_backup_and_restore_is_gone(book: Book) -> None:
    book.send("a", 1, at=150)
    restore(book)
    assert found(book) == []
    assert check(book.ops).sometimes["confirmed send that the restore took away"] == 1


@pytest.mark.parametrize("at", [50, 250])
def test_another_send_is_not(book: Book, at: float) -> None:
    book.send("a", 1, at=at)
    restore(book, (1, 0))
    assert found(book) == ["lost"]


@pytest.mark.parametrize(("at", "took"), [(99.5, 1), (195, 20)])
def test_a_send_during_the_backup_or_the_restore_may_be_gone(
    book: Book, at: float, took: float
) -> None:
    book.send("a", 1, at=at, took=took)
    restore(book)
    assert found(book) == []


def test_a_message_that_was_gone_and_comes_all_the_same(book: Book) -> None:
    book.send("a", 1, at=150)
    restore(book)
    ended(book, "a", 1, 250)
    assert found(book) == ["unexpected"]


def test_what_was_finished_between_comes_again(book: Book) -> None:
    book.send("a", 1, at=50)
    ended(book, "a", 1, 150, token="old")
    restore(book, (1, 0))
    assert found(book) == ["lost"]
    ended(book, "a", 1, 250, token="new")
    assert found(book) == []


def test_what_was_finished_before_the_backup_does_not_come_again(book: Book) -> None:
    book.send("a", 1, at=40)
    ended(book, "a", 1, 50)
    restore(book)
    assert found(book) == []
    book.receive(("a", 1, 2), at=250)
    assert "delivered after its end" in found(book)


@pytest.mark.parametrize(("outcome", "checks"), [("fail", []), ("ok", ["old lease"])])
def test_a_lease_of_the_time_between_is_refused(
    book: Book, outcome: Outcome, checks: list[str]
) -> None:
    """The message that got the same id and the same delivery number is another one."""
    book.send("a", 1, at=150)
    book.receive(("a", 1, 1), at=190, token="old")
    restore(book)
    book.send("b", 1, at=250)
    book.receive(("b", 1, 1), at=260, token="new")
    book.verb("ack", 1, 1, outcome, at=261, token="old")
    book.verb("ack", 1, 1, at=262, token="new")
    assert found(book) == checks


def test_an_old_receipt_that_deletes_another_message(book: Book) -> None:
    """It is answered in any case. What it did is seen at the end."""
    book.send("a", 1, at=150, queue="sqs")
    book.receive(("a", 1, 1), at=190, token="old", queue="sqs")
    restore(book)
    book.send("b", 1, at=250, queue="sqs")
    book.verb("ack", 1, 1, at=261, token="old", queue="sqs")
    assert found(book) == ["lost"]
    book.receive(("b", 1, 1), at=262, token="new", queue="sqs")
    book.verb("ack", 1, 1, at=263, token="new", queue="sqs")
    assert found(book) == []


@pytest.mark.parametrize(("there", "number"), [(0, 1), (1, 2)])
def test_a_delivery_during_the_backup_is_in_it_or_not(book: Book, there: int, number: int) -> None:
    book.send("a", 1, at=50)
    book.receive(("a", 1, 1), at=99.5, took=1, token="old")
    restore(book, (1, there))
    ended(book, "a", 1, 250, number, token="new")
    assert found(book) == []
    ended(book, "a", 1, 260, number + 1)
    assert "delivered after its end" in found(book)


def test_two_leases_before_the_restore_are_found(book: Book) -> None:
    book.send("a", 1, at=150)
    book.receive(("a", 1, 1), at=151, token="one")
    book.receive(("a", 1, 2), at=152, token="two")
    restore(book)
    assert found(book) == ["two leases", "unexplained duplicate"]


def test_a_cursor_of_events_is_lost_once(book: Book) -> None:
    book.add("event", cursor="1", what="created", id=7, number=None, at=150)
    restore(book)
    book.add("cursor lost", cursor="", at=250)
    for place, what in enumerate(("created", "leased", "deleted")):
        number = 1 if what == "leased" else None
        book.add("event", cursor=str(place), what=what, id=1, number=number, at=260)
    book.add("all events", count=3, at=300)
    assert found(book) == []
    book.add("cursor lost", cursor="", at=255)
    assert found(book) == ["events"]


def test_a_relay_hands_over_what_is_then_gone(book: Book) -> None:
    book.send("a", 1, at=150, queue="relayed")
    restore(book)
    book.add("handed over", values=["a"], at=300)
    assert found(book) == []
    book.add("handed over", values=["a"], at=301)
    assert found(book) == ["relay"]
