"""MySQL's own about events: gaps in the ids, and who may pass them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fairturn.backends.base import Opening
from fairturn.backends.verbs import ACK, Kill, Progress
from fairturn.core import errors
from tests.unit.test_mysql_backend import Client, item, leases
from tests.unit.test_mysql_groups import a, b, begin, commit, migrated, old, opened, queue, start

pytestmark = pytest.mark.server

__all__ = ["a", "b", "migrated", "opened", "queue", "start"]  # fixtures


def told(client: Client, after: str) -> tuple[list[int], str]:
    """The ids of the messages that the events after a cursor are about, and the next cursor."""
    rows, cursor = client.events(after, None, None, 100)
    return [row.id for row in rows], cursor


def test_an_event_that_commits_late_is_not_skipped(
    a: Client, b: Client, queue: str, start: str
) -> None:
    [(first, _)] = a.put(queue)
    _, cursor = told(a, start)
    begin(b)
    late = [id for id, _ in b.put(queue, item(), item())]
    [(after, _)] = a.put(queue)
    a.sql("UPDATE fairturn_event SET written = written - INTERVAL 2 SECOND WHERE id > %s", cursor)
    assert told(a, start) == ([first], cursor)
    assert told(a, cursor) == ([], cursor)
    assert a.events(None, None, None, 1) == ([], cursor)  # now is before what may still come
    commit(b)
    given, end = told(a, cursor)
    assert given == [*late, after]
    assert told(a, end) == ([], end)
    assert a.events(None, None, None, 1) == ([], end)


def test_a_gap_that_was_rolled_back_is_passed_once_nobody_writes(
    a: Client, b: Client, opened: Callable[[], Client], queue: str, start: str
) -> None:
    [(first, _)] = a.put(queue)
    begin(b)
    b.put(queue)
    b.driver.rollback()
    [(second, _)] = a.put(queue)
    assert told(a, start)[0] == [first, second]
    _, cursor = told(a, start)
    begin(b)
    b.put(queue)
    b.driver.rollback()
    [(third, _)] = a.put(queue)
    writer = opened()
    begin(writer)
    writer.put(queue)  # somebody is on the way, as far as a reader can tell
    assert told(a, cursor) == ([], cursor)
    a.sql(
        "UPDATE fairturn_event SET written = written - INTERVAL 2 SECOND WHERE message_id = %s",
        third,
    )
    assert told(a, cursor)[0] == [third]
    writer.driver.rollback()


def test_in_your_transaction_time_tells_about_a_gap(
    a: Client, b: Client, queue: str, start: str
) -> None:
    """Whoever reads there must not keep writers from writing."""
    begin(b)
    b.put(queue)
    b.driver.rollback()
    [(id, _)] = a.put(queue)
    begin(b)
    assert told(b, start)[0] == []
    a.put(queue)
    old(a)
    assert told(b, start)[0][0] == id
    a.put(queue)


def test_what_maintenance_has_deleted_is_no_gap(a: Client, queue: str, start: str) -> None:
    a.put(queue, item(), item())
    now = a.clock()
    a.maintain(1000, now + 2 * 86_400_000_000)
    assert a.sql("SELECT COUNT(*) FROM fairturn_event") == [(0,)]
    rows, cursor = a.events("", None, None, 10)
    assert (rows, cursor) == a.events(None, None, None, 10)
    [(id, _)] = a.put(queue)
    assert told(a, "")[0] == told(a, start)[0] == told(a, cursor)[0] == [id]


def test_what_one_call_tells_leaves_no_gap(a: Client, queue: str, start: str) -> None:
    for n in (1, 3, 7, 1200):
        sent = [id for id, _ in a.put(queue, *[item()] * n)]
        rows = a.take(queue, n)
        assert len(rows) == n
        a.apply_verb(queue, ACK, leases(rows), True, None)
        assert sorted(row.id for row in rows) == sent
    [(first, last, count)] = a.sql(
        "SELECT MIN(id), MAX(id), COUNT(*) FROM fairturn_event WHERE id > %s", start
    )
    assert last - first + 1 == count == 3 * 1211


def test_events_of_a_queue_among_many(a: Client, queue: str, start: str) -> None:
    a.queue_create("rare", {"events": 1}, None)
    a.put("rare")
    a.put(queue, *[item()] * 12_000)
    [(last, _)] = a.put("rare")
    rows, cursor = a.events(start, "rare", ["created"], 100)
    assert len(rows) == 1
    rows, cursor = a.events(cursor, "rare", ["created"], 100)
    assert [row.id for row in rows] == [last]
    assert a.events(cursor, "rare", None, 100) == ([], cursor)
    with pytest.raises(errors.QueueNotFound):
        a.events("", "nobody", None, 1)
    with pytest.raises(errors.InvalidArgument):
        a.events("x", None, None, 1)
    a.queue_drop("rare", None)


def test_reading_events_writes_nothing(a: Client, b: Client, queue: str, start: str) -> None:
    a.put(queue)
    b.sql("SET SESSION TRANSACTION READ ONLY")
    begin(b)
    assert len(b.events(start, None, None, 10)[0]) == 1


def test_names_and_errors_of_any_kind(a: Client, queue: str, start: str) -> None:
    nasty = "ключ'\\\"é%s\n"
    sent = [item(b"1", nasty, key=nasty, group=nasty), item(b"2", nasty, group=nasty)]
    a.group_open(Opening(nasty, queue, "i", item(b"end", headers=b'{"\xc3\xa9": [1]}')), None)
    a.put(queue, *sent)
    a.group_start(nasty, None)
    rows = a.take(queue, 2)
    assert [row.group for row in rows] == [nasty, nasty]
    a.apply_verb(queue, Progress(123_456, nasty), leases(rows), True, None)
    a.apply_verb(queue, Progress(1_000_000, None), leases(rows[:1]), True, None)
    a.apply_verb(queue, Kill(nasty), leases(rows), True, None)
    assert a.settle(10, None) == 1
    events, _ = a.events(start, queue, None, 100)
    assert {row.key for row in events} == {nasty, None}
    assert {row.channel for row in events} == {nasty, "", None}
    data = {(row.kind, row.data) for row in events if row.kind in ("progress", "dead")}
    assert {(kind, json.dumps(json.loads(text), sort_keys=True)) for kind, text in data} == {
        ("progress", json.dumps({"note": nasty, "progress": 0.123456})),
        ("progress", json.dumps({"note": nasty, "progress": 1.0})),
        ("dead", json.dumps({"error": nasty})),
    }
    [end] = a.take(queue, 5)
    told = {"name": nasty, "outcome": "ended", "sent": 2, "done": 0, "dead": 2}
    assert json.loads(end.headers) == {"é": [1], "fairturn.group": told}
    assert a.outcomes(queue, [], [nasty], None) == [
        (rows[0].id, nasty, "x", 0, None, nasty, 1_000_000, nasty)
    ]
