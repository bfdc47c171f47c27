"""Events on SQLite: what writing them costs, cursors, and what a death tells."""

from __future__ import annotations

import json

import pytest

from fairturn.backends.verbs import ACK, Progress
from fairturn.core.errors import InvalidArgument
from tests.unit.sqlite_desk import BACKEND, NOW
from tests.unit.test_sqlite_groups import DAY, Db, db, item, kill

__all__ = ["db"]  # fixture


def test_events_are_one_statement_per_call() -> None:
    db = Db(events=1)

    def written() -> int:
        return sum(text.startswith("INSERT INTO fairturn_event") for text in db.driver.texts)

    db.send(*[item()] * 100)
    assert written() == 1
    leases = db.lease(100)
    assert written() == 1
    db.do(BACKEND.apply_verb("q", Progress(1, None), leases, True, NOW))
    assert written() == 1
    db.do(BACKEND.apply_verb("q", ACK, leases, True, NOW))
    assert written() == 1
    assert len(db.events()) == 400
    db.driver.close()


def test_a_cursor_moves_on_over_what_was_not_wanted() -> None:
    db = Db(events=1)
    db.do(BACKEND.queue_create("p", {"events": 1}, NOW))
    _, start = db.do(BACKEND.events(None, None, None, 10))
    db.send(*[item()] * 5)
    rows, cursor = db.do(BACKEND.events(start, "p", None, 10))
    assert rows == []
    assert db.do(BACKEND.events(cursor, None, None, 10)) == ([], cursor)
    db.send(item(), queue="p")
    rows, last = db.do(BACKEND.events(cursor, "p", ["created", "dead"], 10))
    assert [row.queue for row in rows] == ["p"]
    # Page by page nothing is left out.
    pages: list[str] = []
    while (answer := db.do(BACKEND.events(start, None, None, 2)))[0]:
        pages += [row.cursor for row in answer[0]]
        start = answer[1]
    assert pages == [row.cursor for row in db.do(BACKEND.events("", None, None, 10))[0]]
    assert start == last
    db.driver.close()


def test_a_cursor_outlives_the_events_it_has_passed() -> None:
    db = Db(events=1)
    db.send(item())
    rows, cursor = db.do(BACKEND.events("", None, None, 10))
    assert len(rows) == 1
    db.do(BACKEND.maintain(100, NOW + DAY))
    assert db.do(BACKEND.events("", None, None, 10))[0] == []
    assert db.do(BACKEND.events(cursor, None, None, 10)) == ([], cursor)
    db.send(item())
    assert len(db.do(BACKEND.events(cursor, None, None, 10))[0]) == 1
    db.driver.close()


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "1 ", "²"])
def test_what_is_no_cursor_is_refused(db: Db, cursor: str) -> None:
    with pytest.raises(InvalidArgument, match="no cursor"):
        db.do(BACKEND.events(cursor, None, None, 10))


def test_events_of_a_death_that_moves(db: Db) -> None:
    db.do(BACKEND.queue_create("dead", {"events": 1}, NOW))
    db.do(BACKEND.queue_set("q", {"dead_letter": "dead", "events": 1}, NOW))
    [id] = db.send(item(key="k", channel="c"))
    kill(db, [])
    told = [(e["kind"], e["queue"], e["id"], e["key"], e["channel"]) for e in db.events()]
    assert told == [
        ("created", "q", id, "k", "c"),
        ("leased", "q", id, "k", "c"),
        ("dead", "q", id, "k", "c"),
        ("created", "dead", id, None, "c"),
    ]
    assert json.loads(db.events()[2]["data"]) == {"error": "no"}
