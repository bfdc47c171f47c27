"""Violations of groups, schedules, results, events, the user's tables and totals are found."""

from __future__ import annotations

import pytest

from tests.campaign.checks.written import Book, found
from tests.campaign.history import Outcome
from tests.campaign.roles.consumers import answer


@pytest.fixture
def book() -> Book:
    return Book()


# --- groups, schedules, results -----------------------------------------------------------------
def a_group(book: Book) -> None:
    book.add("announce", group="g", value="end g")
    book.send("a", 1, queue="grouped", group="g")
    book.add("start", queue="grouped", group="g")
    book.receive(("a", 1, 1), queue="grouped")


def its_end(book: Book, id: int = 2) -> None:
    book.receive(("end g", id, 1), queue="grouped")
    book.verb("ack", id, 1, queue="grouped")


def test_a_group_that_ends_once(book: Book) -> None:
    a_group(book)
    book.verb("ack", 1, 1, queue="grouped")
    its_end(book)
    assert found(book) == []


def test_a_group_that_ends_before_its_member(book: Book) -> None:
    a_group(book)
    its_end(book)
    book.verb("ack", 1, 1, queue="grouped")
    assert found(book) == ["group"]


def test_a_group_that_ends_twice(book: Book) -> None:
    a_group(book)
    book.verb("ack", 1, 1, queue="grouped")
    its_end(book)
    its_end(book, 3)
    assert found(book) == ["enqueued twice", "group"]


def test_a_group_that_never_ends(book: Book) -> None:
    a_group(book)
    book.verb("ack", 1, 1, queue="grouped")
    assert found(book) == ["group"]


def tick(book: Book, second: int, id: int) -> None:
    book.receive((f"tick 2026-01-01T00:00:{second:02}+00:00", id, 1), queue="ticks")
    book.verb("ack", id, 1, queue="ticks")


def test_ticks_without_a_gap(book: Book) -> None:
    for second in (1, 2, 3):
        tick(book, second, second)
    assert found(book) == []


def test_a_tick_that_is_missing(book: Book) -> None:
    for second in (1, 3):
        tick(book, second, second)
    assert found(book) == ["schedule"]


def test_the_last_tick_that_is_missing(book: Book) -> None:
    tick(book, 1, 1)
    book.add("schedule", last_at="2026-01-01T00:00:03+00:00")
    assert found(book) == ["schedule"]


def test_a_tick_that_was_sent_twice(book: Book) -> None:
    tick(book, 1, 1)
    tick(book, 1, 2)
    assert found(book) == ["enqueued twice", "schedule"]


def test_the_wrong_result(book: Book) -> None:
    book.add("wait", value="a", result={"state": "done", "result": answer("a")})
    assert found(book) == []
    book.add("wait", value="b", result={"state": "done", "result": answer("a")})
    book.add("wait", value="c", result={"state": "gone", "result": None})
    assert found(book) == ["result", "result"]


# --- events -------------------------------------------------------------------------------------
def events(book: Book, *kinds: str) -> None:
    number = 0
    for place, what in enumerate(kinds):
        number += what == "leased"
        about = {"what": what, "id": 1, "number": number if what == "leased" else None}
        book.add("event", cursor=str(place), **about)
    book.add("all events", count=len(kinds))


def test_a_whole_row_of_events(book: Book) -> None:
    book.life("a", 1, queue="watched")
    events(book, "created", "leased", "deleted")
    assert found(book) == []


@pytest.mark.parametrize(
    "kinds",
    [
        ("leased", "created", "deleted"),
        ("created", "leased"),
        ("created", "deleted"),
        ("created", "leased", "deleted", "deleted"),
        ("created", "created", "leased", "deleted"),
    ],
)
def test_a_row_of_events_with_a_fault(book: Book, kinds: tuple[str, ...]) -> None:
    book.life("a", 1, queue="watched")
    events(book, *kinds)
    assert found(book) == ["events"]


def test_an_event_that_was_read_twice(book: Book) -> None:
    book.life("a", 1, queue="watched")
    events(book, "created", "leased", "deleted")
    book.ops[-2].about["cursor"] = "0"
    assert found(book) == ["events"]


def test_a_message_without_events(book: Book) -> None:
    book.life("a", 1, queue="watched")
    events(book)
    assert found(book) == ["events"]


# --- the user's tables, the totals --------------------------------------------------------------
def test_a_row_without_its_message_and_a_message_without_its_row(book: Book) -> None:
    book.life("a", 1, tx=True)
    book.send("b", 2, "info", tx=True)
    book.add("ledger", values=["b"])
    assert found(book) == ["transaction", "transaction"]


def test_an_effect_that_happened_twice(book: Book) -> None:
    book.life("a", 1)
    book.ops[-1].about["effect"] = "a"
    book.add("effects", values=["a"])
    assert found(book) == []
    book.add("effects", values=["a"])
    assert found(book) == ["transaction", "transaction"]


def test_an_ack_whose_effect_is_missing(book: Book) -> None:
    book.life("a", 1)
    book.ops[-1].about["effect"] = "a"
    book.add("effects", values=[])
    assert found(book) == ["transaction"]


@pytest.mark.parametrize(
    ("outcome", "there", "checks"),
    [
        ("ok", ["a"], []),
        ("ok", [], ["relay"]),
        ("ok", ["a", "a"], ["relay"]),
        ("info", [], []),
        ("info", ["a"], []),
        ("fail", ["a"], ["relay"]),
        ("ok", ["a", "b"], ["relay"]),
    ],
)
def test_a_relay_hands_over_once(
    book: Book, outcome: Outcome, there: list[str], checks: list[str]
) -> None:
    book.send("a", 1, outcome, queue="relayed")
    book.add("handed over", values=there)
    assert found(book) == checks


ZERO = dict.fromkeys(
    ["completed", "deferred", "failed", "killed", "recovered", "released", "cancelled", "expired"],
    0,
)
TOTALS = {**ZERO, "sent": 1, "delivered": 1, "acked": 1, "errors": 0}


@pytest.mark.parametrize(
    ("wrong", "checks"),
    [
        ({}, []),
        ({"sent": 2}, ["totals"] * 2),
        ({"delivered": 2}, ["totals"] * 2),
        ({"sent": 2, "cancelled": 1}, ["totals"]),
        ({"delivered": 2, "recovered": 1}, ["totals"]),
        ({"acked": 0, "cancelled": 1, "recovered": 1}, ["totals"]),
        ({"sent": 2, "acked": 2, "delivered": 2}, ["totals"] * 3),
    ],
)
def test_totals_that_do_not_fit(book: Book, wrong: dict[str, int], checks: list[str]) -> None:
    book.life("a", 1)
    book.add("stats", queue="plain", unfinished=0, totals=TOTALS | wrong)
    assert found(book) == checks


def test_a_database_that_is_not_empty(book: Book) -> None:
    book.life("a", 1)
    book.add("stats", queue="plain", unfinished=1, totals=TOTALS)
    assert found(book) == ["not empty"]


def test_an_error_that_is_not_of_the_library(book: Book) -> None:
    book.send("a", 1, "info", error="OutcomeUnknown: it was interrupted")
    assert found(book) == []
    book.send("b", 2, "info", error="TypeError: NoneType")
    assert found(book) == ["raw error"]
