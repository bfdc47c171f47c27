"""Groups, their works and batches on SQLite: what only this backend has.

With one writer at a time a group closes in the transaction that ends its last member, whatever
ended it; what that costs, and that it costs nothing where there are no groups, is counted here.
What the operations mean is tested through the public API (tests/conformance) and against the model.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairturn.backends.base import Batch, ConsumerState, Opening, Peek, Receive
from fairturn.backends.sqlite.common import SQL
from fairturn.backends.verbs import ACK, Complete, Fail, Kill, Lease
from fairturn.core.errors import DuplicateKey, QueueNotFound
from fairturn.core.rows import SendRow
from fairturn.drivers.run import run
from fairturn.drivers.sqlite import SqliteDriver
from tests.unit import sqlite_desk
from tests.unit.sqlite_desk import BACKEND, NOW, SECOND, Desk, plan

DAY = 86_400 * SECOND
ALLOWED = BACKEND.statements() | {"BEGIN IMMEDIATE", "BEGIN", "COMMIT", "ROLLBACK"}


class Db(Desk):
    """A desk where the clock stands still unless a test moves it."""

    def __init__(self, **columns: Any) -> None:
        super().__init__(**columns)
        self.now = NOW

    def do(self, operation: Any) -> Any:
        self.driver.texts.clear()
        self.driver.steps = 0
        try:
            return super().do(operation)
        finally:
            assert set(self.driver.texts) <= ALLOWED, "sent what is not in the catalogue"

    def send(self, *items: tuple[Any, ...], queue: str = "q") -> list[int]:
        return [id for id, _ in self.do(BACKEND.send(queue, items, self.now))]

    def lease(self, n: int = 1, queue: str = "q", **args: Any) -> list[Lease]:
        received = self.do(BACKEND.receive(queue, Receive(n, **args), ConsumerState(), self.now))
        return [Lease(row.id, row.token) for row in received.rows]

    def running(self, *members: tuple[Any, ...], on_dead: str = "i", **works: Any) -> list[int]:
        """A started group `g` with an end work "end" and an abort work "abort"."""
        end, abort = works.get("end", item(b"end")), works.get("abort", item(b"abort"))
        self.do(BACKEND.group_open(Opening("g", "q", on_dead, end, abort), self.now))
        ids = self.send(*members) if members else []
        self.do(BACKEND.group_start("g", self.now))
        return ids

    def group(self, name: str = "g") -> dict[str, Any]:
        return self.do(BACKEND.group_status(name, self.now))._asdict()

    def bodies(self, queue: str = "q") -> list[bytes]:
        return [row.body for row in self.do(BACKEND.peek(queue, Peek(1000), self.now))]

    def events(self, after: str = "", queue: str | None = None) -> list[dict[str, Any]]:
        rows, _ = self.do(BACKEND.events(after, queue, None, 1000))
        return [row._asdict() for row in rows]


def item(body: bytes = b"m", channel: str = "", **more: Any) -> SendRow:
    return sqlite_desk.item(channel, body, **more)


MEMBER = item(group="g")


@pytest.fixture
def db() -> Iterator[Db]:
    db = Db()
    yield db
    db.driver.close()


# --- plans and costs ----------------------------------------------------------------------------

INDEXES = {
    "end_members": "COVERING INDEX fairturn_member (group_id=?)",
    "start_members": "INDEX fairturn_member (group_id=? AND state=?)",
    "count_members": "INDEX fairturn_member (group_id=?)",
    "tell_members": "INDEX fairturn_member (group_id=?)",
    "delete_members": "INDEX fairturn_member (group_id=?)",
    "leave_group": "INDEX fairturn_member (group_id=?)",
    "group_status": "COVERING INDEX fairturn_member (group_id=? AND state=?)",
    "open_groups": "INDEX fairturn_group_open (name=?)",
    "open_group": "INDEX fairturn_group_open (name=?)",
    "start_group": "INDEX fairturn_group_open (name=?)",
    "groups": "INDEX fairturn_group_open",
    "closed_status": "INDEX fairturn_group_closed (name=?",
    "forget_groups": "INDEX fairturn_group_kept (closed_at",
    "forget_events": "INDEX fairturn_event_at (at<?)",
    "events": "SEARCH fairturn_event USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    "outcomes": "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
    "release_work": "SEARCH fairturn_message USING INTEGER PRIMARY KEY (rowid=?)",
    "leases_of": "SEARCH fairturn_message USING INTEGER PRIMARY KEY (rowid=?)",
}


@pytest.mark.parametrize("name", INDEXES)
def test_statements_find_their_rows_by_index(db: Db, name: str) -> None:
    found = plan(db, name)
    assert INDEXES[name] in found, found
    assert not re.search(r"SCAN (fairturn_message|fairturn_event|m|k)\b", found), found


def test_ending_one_member_costs_the_same_in_a_crowd() -> None:
    def steps(members: int) -> int:
        db = Db()
        db.running(*[MEMBER] * members)
        [lease] = db.lease()
        db.do(BACKEND.apply_verb("q", ACK, [lease], True, NOW))
        taken = db.driver.steps
        assert db.group()["state"] == "r"
        db.driver.close()
        return taken

    assert steps(5000) < steps(50) * 1.2


def test_each_group_is_judged_once_per_call(db: Db) -> None:
    db.running(*[MEMBER] * 100)
    leases = db.lease(100)
    db.do(BACKEND.apply_verb("q", ACK, leases, True, NOW))
    assert db.driver.texts.count(SQL.end_members) == 1
    assert (db.group()["state"], db.group()["done"]) == ("e", 100)


def test_without_groups_and_events_no_statement_is_added(db: Db) -> None:
    wrapped = 2  # BEGIN and COMMIT
    db.send(item())
    assert len(db.driver.texts) == wrapped + 3  # the queue, the row, the counters
    db.send(*[item()] * 64)
    assert len(db.driver.texts) == wrapped + 3
    leases = db.lease(60)
    assert len(db.driver.texts) == wrapped + 5  # the queue, channels, messages, lease, counters
    again = db.lease(5, acks=leases[:50])
    assert len(db.driver.texts) == wrapped + 6
    db.do(BACKEND.apply_verb("q", ACK, leases[50:], True, NOW))
    assert len(db.driver.texts) == wrapped + 4  # the queue, which of them hold, the rows, counters
    db.do(BACKEND.apply_verb("q", ACK, again[:1], True, NOW))
    assert len(db.driver.texts) == wrapped + 3
    db.do(BACKEND.apply_verb("q", Fail("no", 0), again[1:2], True, NOW))
    assert len(db.driver.texts) == wrapped + 5
    db.do(BACKEND.apply_verb("q", Complete(), again[2:], True, NOW))
    assert len(db.driver.texts) == wrapped + 4


# --- what ends a member ends the group, in the same transaction -----------------------------------


def ack(db: Db, ids: list[int]) -> None:
    db.do(BACKEND.apply_verb("q", ACK, db.lease(2), True, NOW))


def carried_ack(db: Db, ids: list[int]) -> None:
    leases = db.lease(2)
    # The end work is sent before the choice, so this very receive gives it.
    assert len(db.lease(1, acks=leases)) == 1


def kept_ack(db: Db, ids: list[int]) -> None:
    db.do(BACKEND.queue_set("q", {"retention_us": DAY}, NOW))
    ack(db, ids)


def complete(db: Db, ids: list[int]) -> None:
    db.do(BACKEND.apply_verb("q", Complete(), db.lease(2), True, NOW))


def kill(db: Db, ids: list[int]) -> None:
    db.do(BACKEND.apply_verb("q", Kill("no"), db.lease(2), True, NOW))


def fail(db: Db, ids: list[int]) -> None:
    db.do(BACKEND.queue_set("q", {"max_attempts": 1}, NOW))
    db.do(BACKEND.apply_verb("q", Fail("no"), db.lease(2), True, NOW))


def dead_letter(db: Db, ids: list[int]) -> None:
    db.do(BACKEND.queue_create("dead", {}, NOW))
    db.do(BACKEND.queue_set("q", {"dead_letter": "dead"}, NOW))
    kill(db, ids)


def lapse(db: Db, ids: list[int]) -> None:
    db.do(BACKEND.queue_set("q", {"max_attempts": 1}, NOW))
    db.lease(2)
    db.now += DAY
    assert len(db.lease(5)) == 1  # the end work


def lapse_in_maintenance(db: Db, ids: list[int]) -> None:
    db.do(BACKEND.queue_set("q", {"max_attempts": 1}, NOW))
    db.lease(2)
    db.do(BACKEND.maintain(100, NOW + DAY))


def cancel(db: Db, ids: list[int]) -> None:
    for id in ids:
        db.do(BACKEND.cancel("q", id, None, False, NOW))


def forced_cancel(db: Db, ids: list[int]) -> None:
    db.lease(2)
    for id in ids:
        db.do(BACKEND.cancel("q", id, None, True, NOW))


def replace(db: Db, ids: list[int]) -> None:
    db.send(item(key="k1", on_conflict="r", group="other"), item(b"m", key="k2", on_conflict="r"))


ENDINGS: list[Callable[[Db, list[int]], None]] = [
    ack,
    carried_ack,
    kept_ack,
    complete,
    kill,
    fail,
    dead_letter,
    lapse,
    lapse_in_maintenance,
    cancel,
    forced_cancel,
    replace,
]


@pytest.mark.parametrize("end", ENDINGS)
def test_the_call_that_ends_the_last_member_closes_the_group(db: Db, end: Any) -> None:
    ids = db.running(item(key="k1", group="g"), item(key="k2", group="g"))
    assert db.group()["state"] == "r"
    end(db, ids)
    assert db.driver.texts.count("BEGIN IMMEDIATE") == 1
    assert db.driver.texts.count("COMMIT") == 1
    group = db.group()
    assert (group["state"], group["held"], group["waiting"], group["leased"]) == ("e", 0, 0, 0)
    bodies = db.bodies()
    assert b"end" in bodies
    assert b"abort" not in bodies


def test_expiry_ends_members(db: Db) -> None:
    db.running(item(group="g", expires_us=SECOND))
    db.now += SECOND
    assert len(db.lease(5)) == 1  # swept first, so the end work is given at once
    assert db.group()["state"] == "e"


def test_a_purged_queue_ends_its_members_when_it_is_swept(db: Db) -> None:
    db.do(BACKEND.queue_create("p", {}, NOW))
    db.running()
    db.do(BACKEND.group_open(Opening("h", "q", "i", item(b"end of h")), NOW))
    db.send(*[item(group="h")] * 3, queue="p")
    db.do(BACKEND.group_start("h", NOW))
    db.do(BACKEND.queue_purge("p", False, NOW))
    db.do(BACKEND.maintain(2, NOW))
    assert (db.group("h")["state"], db.group("h")["waiting"]) == ("r", 1)
    db.do(BACKEND.maintain(2, NOW))
    assert db.group("h")["state"] == "e"
    assert b"end of h" in db.bodies()


@pytest.mark.parametrize("end", [kill, fail, dead_letter, lapse_in_maintenance])
def test_a_death_aborts(db: Db, end: Any) -> None:
    db.do(BACKEND.queue_create("p", {}, NOW))
    ids = db.running(MEMBER, MEMBER, on_dead="a")
    db.send(item(b"other", group="g"), queue="p")
    [lease] = db.lease(queue="p")
    end(db, ids)
    assert (db.group()["state"], db.group()["dead"]) == ("a", 2)
    assert b"abort" in db.bodies()
    assert b"end" not in db.bodies()
    assert db.do(BACKEND.apply_verb("p", ACK, [lease], False, NOW)).lost == [lease[0]]
    assert db.do(BACKEND.stats("p", NOW))[0][16] == 1  # cancelled


def test_what_a_sweep_aborts_is_not_given(db: Db) -> None:
    db.do(BACKEND.queue_set("q", {"max_attempts": 1}, NOW))
    db.running(MEMBER, MEMBER, on_dead="a", abort=None)
    db.lease()
    db.now += DAY
    assert db.lease(5) == []
    assert db.group()["state"] == "a"


def test_cancel_leaves_what_a_purge_has_taken(db: Db) -> None:
    db.running(*[MEMBER] * 3)
    db.do(BACKEND.queue_purge("q", False, NOW))
    assert db.do(BACKEND.group_cancel("g", NOW)) is True
    group = db.group()
    assert (group["state"], group["waiting"]) == ("c", 0)
    assert db.do(BACKEND.stats("q", NOW))[0][16] == 0
    # The members, and the works that went with the queue.
    assert db.do(BACKEND.maintain(100, NOW))[3] == 5


def test_your_rollback_opens_the_group_again() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    driver = SqliteDriver(connection)
    for operation in (
        BACKEND.migrate(),
        BACKEND.queue_create("q", {}, NOW),
        BACKEND.group_open(Opening("g", "q", "i", item(b"end")), NOW),
        BACKEND.send("q", [MEMBER], NOW),
        BACKEND.group_start("g", NOW),
    ):
        run(operation, driver, True)
    connection.execute("BEGIN IMMEDIATE")
    received = run(BACKEND.receive("q", Receive(1, token=1), ConsumerState(), NOW), driver, False)
    run(BACKEND.apply_verb("q", ACK, [Lease(received.rows[0][0], 1)], True, NOW), driver, False)
    status = run(BACKEND.group_status("g", NOW), driver, False)
    assert status is not None
    assert status[2] == "e"
    connection.rollback()
    status = run(BACKEND.group_status("g", NOW), driver, False)
    assert status is not None
    assert (status[2], status[10]) == ("r", 1)
    connection.close()


def test_there_is_nothing_to_settle(db: Db) -> None:
    assert db.do(BACKEND.settle(10, NOW)) == 0
    assert db.driver.texts == []


# --- works --------------------------------------------------------------------------------------

TOLD = {"name": "g", "outcome": "ended", "sent": 1, "done": 1, "dead": 0}


@pytest.mark.parametrize(
    "headers", [None, {}, {"a": 1}, {"ü": 'é\n"}', "n": {"m": [1, None]}}, {"fairturn.group": 1}]
)
def test_the_entry_goes_beside_the_headers_of_a_work(db: Db, headers: Any) -> None:
    encoded = None if headers is None else json.dumps(headers, ensure_ascii=False).encode()
    db.running(MEMBER, end=item(b"end", headers=encoded))
    ack(db, [])
    [row] = db.do(BACKEND.peek("q", Peek(10), NOW))
    assert json.loads(row[3]) == {**(headers or {}), "fairturn.group": TOLD}


def test_a_work_counts_its_delay_from_the_closing(db: Db) -> None:
    db.do(BACKEND.queue_set("q", {"expires_us": DAY}, NOW))
    db.running(MEMBER, end=item(b"end", delay_us=5 * SECOND))
    db.now += 60 * SECOND
    ack_at = db.now
    db.do(BACKEND.apply_verb("q", ACK, db.lease(), True, ack_at))
    [row] = db.do(BACKEND.peek("q", Peek(10), ack_at))
    due_at, created_at, state, expires_at = (
        row.due_at,
        row.created_at,
        row.state,
        row.expires_at,
    )
    assert (due_at, created_at) == (ack_at + 5 * SECOND, ack_at)
    assert (state, expires_at) == ("s", ack_at + DAY)
    assert db.do(BACKEND.stats("q", ack_at))[0][7] == 2  # sent: the member and the work


def test_a_work_that_somebody_took_is_not_sent(db: Db) -> None:
    db.running(MEMBER, end=item(b"end", key="w"))
    [(id, outcome)] = db.do(
        BACKEND.send("q", [item(b"mine", key="w", on_conflict="r", delay_us=DAY)], NOW)
    )
    assert outcome == "r"
    ack(db, [])
    [row] = db.do(BACKEND.peek("q", Peek(10), NOW))
    assert (row.id, row.body, row.headers, row.state) == (id, b"mine", None, "s")


@pytest.mark.parametrize("how", ["purge", "drop", "again"])
def test_works_go_with_their_queue(db: Db, how: str) -> None:
    db.do(BACKEND.queue_create("w", {"events": 1}, NOW))
    db.do(BACKEND.group_open(Opening("h", "w", "i", item(b"end")), NOW))
    if how == "purge":
        db.do(BACKEND.queue_purge("w", False, NOW))
    else:
        db.do(BACKEND.queue_drop("w", NOW))
    if how == "again":
        db.do(BACKEND.queue_create("w", {"events": 1}, NOW))
    assert db.do(BACKEND.group_start("h", NOW)) is True
    assert db.group("h")["state"] == "e"
    if how != "drop":
        assert db.bodies("w") == []
    assert [event["kind"] for event in db.events()] == ([] if how == "drop" else ["closed"])


def test_works_with_a_key_that_is_held_are_refused_before_anything_is_written(db: Db) -> None:
    db.send(item(key="k"))
    for end, abort in (
        (item(key="k"), None),
        (None, item(key="k")),
        (item(key="w"), item(key="w")),
    ):
        with pytest.raises(DuplicateKey):
            db.do(BACKEND.group_open(Opening("g", "q", "i", end, abort), NOW))
        assert not any(text.startswith(("INSERT", "UPDATE")) for text in db.driver.texts)
    with pytest.raises(QueueNotFound):
        db.do(BACKEND.group_open(Opening("g", "nobody"), NOW))


def test_a_dead_holder_gives_its_key_to_a_work(db: Db) -> None:
    db.send(item(key="k"))
    kill(db, [])
    db.running(end=item(b"end", key="k"))
    assert db.do(BACKEND.get("q", None, "k", NOW))[2] == b"end"


# --- batches ------------------------------------------------------------------------------------


def test_a_batch_is_one_transaction_and_goes_on_after_a_conflict(db: Db) -> None:
    db.do(BACKEND.queue_create("p", {}, NOW))
    db.send(item(key="k"))
    policy = (5, None, None, 1, 1, 0, 0, None)
    sends = [("p", [item()]), ("q", [item(key="k"), item()])]
    outcomes = db.do(BACKEND.batch(Batch([("p", "c", policy)], [("q", "x")], sends), NOW))
    assert [[outcome for _, outcome in items] for items in outcomes] == [["s"], ["e", "s"]]
    assert db.driver.texts.count("BEGIN IMMEDIATE") == db.driver.texts.count("COMMIT") == 1
    with pytest.raises(QueueNotFound):
        db.do(BACKEND.batch(Batch([("p", "c2", policy)], [], [("nobody", [item()])]), NOW))
    assert [row[0] for row in db.do(BACKEND.channels("p", 10, NOW))] == ["", "c"]
