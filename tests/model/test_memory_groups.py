"""The model's groups, progress, debounce, events and batches, by examples worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairturn.backends.base import Batch, Opening
from fairturn.backends.memory import MemoryBackend
from fairturn.backends.verbs import ACK, RELEASE, Kill, Lease, Progress
from fairturn.core import errors
from tests.model.test_memory import NOW, OPEN, S, do, ids, row, send, stat, take

DAY = 86_400 * S


@pytest.fixture
def db() -> MemoryBackend:
    db = MemoryBackend()
    do(db.queue_create("q", {"events": 1}, NOW))
    return db


def told(db: MemoryBackend, after: str = "") -> list[str]:
    return [event.kind for event in do(db.events(after, None, None, 100))[0]]


def opened(db: MemoryBackend, on_dead: str = "i") -> None:
    end, abort = row(body=b"end", delay_us=5, headers=b'{"h":1}'), row(body=b"abort")
    assert do(db.group_open(Opening("g", "q", on_dead, end, abort), NOW)) is True


def status(db: MemoryBackend) -> tuple[Any, ...]:
    return do(db.group_status("g", NOW))[2:]


def test_the_last_member_releases_the_end_work(db: MemoryBackend):
    opened(db)
    assert send(db, row(group="g"), row(group="g", delay_us=S)) == [(3, "s"), (4, "s")]
    assert take(db).rows == []
    assert stat(db, "held") == 4
    assert status(db) == ("o", NOW, None, None, 2, 0, 0, 2, 0, 0)
    assert do(db.group_start("g", NOW + 1)) is True
    assert ids(take(db)) == [3]
    do(db.apply_verb("q", Kill("no"), [Lease(3, 1)], True, NOW))
    assert status(db) == ("r", NOW, NOW + 1, None, 2, 0, 1, 0, 1, 0)
    take(db, now=NOW + S)
    do(db.apply_verb("q", ACK, [Lease(4, 1)], True, NOW + S))
    assert status(db) == ("e", NOW, NOW + 1, NOW + S, 2, 1, 1, 0, 0, 0)
    assert take(db, now=NOW + S + 4).rows == []
    (work,) = take(db, now=NOW + S + 5).rows
    assert (work.id, work.due_at, work.created_at, work.group) == (1, NOW + S + 5, NOW + S, None)
    expected = {"name": "g", "outcome": "ended", "sent": 2, "done": 1, "dead": 1}
    assert json.loads(work[3]) == {"h": 1, "fairturn.group": expected}
    assert do(db.get("q", 2, None, NOW)) is None
    assert stat(db, "sent") == 3


def test_a_death_aborts_where_it_should(db: MemoryBackend):
    opened(db, "a")
    send(db, row(group="g"), row(group="g"), row(group="g"))
    do(db.group_start("g", NOW))
    take(db, 2)
    do(db.apply_verb("q", Kill("no"), [Lease(3, 1)], True, NOW))
    assert status(db)[0] == "a"
    assert do(db.apply_verb("q", ACK, [Lease(4, 1)], False, NOW)).lost == [4]
    assert stat(db, "cancelled") == 2
    assert ids(take(db)) == [2]


def test_settling_where_a_group_cannot_close_by_itself():
    db = MemoryBackend(closes_at_once=False)
    do(db.queue_create("q", {}, NOW))
    send(db, row(group="g"))
    do(db.group_start("g", NOW))
    take(db)
    do(db.apply_verb("q", ACK, [Lease(1, 1)], True, NOW))
    assert status(db)[0] == "r"
    assert do(db.settle(100, NOW + 1)) == 1
    assert status(db)[0] == "e"
    assert do(db.settle(100, NOW + 1)) == 0


def test_purged_members_leave_when_they_are_swept(db: MemoryBackend):
    do(db.queue_create("p", {}, NOW))
    send(db, row(group="g"))
    do(db.group_start("g", NOW))
    do(db.queue_purge("q", False, NOW))
    assert status(db) == ("r", NOW, NOW, None, 1, 0, 0, 0, 1, 0)
    do(db.maintain(100, NOW))
    assert status(db)[0] == "e"
    do(db.maintain(100, NOW + DAY - 1))
    assert do(db.group_status("g", NOW)) is not None
    do(db.maintain(100, NOW + DAY))
    assert do(db.group_status("g", NOW)) is None


def test_works_need_their_keys_and_their_queue(db: MemoryBackend):
    with pytest.raises(errors.QueueNotFound):
        do(db.group_open(Opening("g", "none"), NOW))
    with pytest.raises(errors.DuplicateKey):
        do(db.group_open(Opening("g", "q", "i", row(key="k"), row(key="k")), NOW))
    assert do(db.group_status("g", NOW)) is None
    send(db, row(key="k"))
    take(db)
    do(db.apply_verb("q", Kill("no"), [Lease(1, 1)], True, NOW))
    assert do(db.group_open(Opening("g", "q", "i", row(key="k")), NOW)) is True
    assert do(db.get("q", 1, None, NOW))[4] is None


def test_debounce_is_bounded_from_the_first_send(db: MemoryBackend):
    bounce = row(key="k", on_conflict="r", delay_us=5, max_wait_us=8)
    send(db, bounce)
    dues = []
    for now in (NOW + 2, NOW + 4, NOW + 7, NOW + 9):
        send(db, bounce, now=now)
        dues.append(do(db.get("q", None, "k", now))[8] - NOW)
    assert dues == [7, 8, 8, 8]


def test_progress_is_of_one_lease(db: MemoryBackend):
    send(db, row())
    take(db)
    assert do(db.apply_verb("q", Progress(400_000, "n"), [Lease(1, 1)], True, NOW)).lost == []
    assert do(db.apply_verb("q", Progress(None, "m"), [Lease(1, 1)], True, NOW)).lost == []
    assert do(db.outcomes("q", [1], [], NOW)) == [(1, None, "l", 0, None, None, 400_000, "m")]
    do(db.apply_verb("q", RELEASE, [Lease(1, 1)], True, NOW))
    take(db)
    assert [(o.progress, o.note) for o in do(db.outcomes("q", [1], [], NOW))] == [(None, None)]


def test_what_was_dead_lettered_is_dead_where_it_died(db: MemoryBackend):
    do(db.queue_create("graves", {}, NOW))
    do(db.queue_set("q", {"dead_letter": "graves"}, NOW))
    send(db, row(key="k"))
    take(db)
    do(db.apply_verb("q", Kill("no"), [Lease(1, 1)], True, NOW))
    assert do(db.outcomes("q", [1], ["k"], NOW)) == [(1, None, "x", 0, None, "no", None, None)]
    assert do(db.outcomes("graves", [1], [], NOW))[0].state == "r"


def test_events_are_read_from_a_cursor_on(db: MemoryBackend):
    assert do(db.events(None, None, None, 9)) == ([], "0-0")
    send(db, row(), row(delay_us=S))
    rows, cursor = do(db.events("", "q", None, 1))
    assert rows == [(f"1-{NOW}", NOW, "created", "q", 1, None, "", 0, None)]
    rows, cursor = do(db.events(cursor, "q", None, 9))
    assert rows == [(f"2-{NOW}", NOW, "created", "q", 2, None, "", S, None)]
    take(db)
    assert told(db, cursor) == ["leased"]
    assert do(db.events("", None, ["dead"], 9)) == ([], f"3-{NOW}")


def test_a_batch_is_all_or_nothing(db: MemoryBackend):
    do(db.queue_create("r", {}, NOW))
    do(db.send("r", [row(key="k")], NOW))
    sets, clears = [("q", "c", OPEN)], [("q", "d")]
    sends = [("q", [row()]), ("r", [row(key="k")])]
    assert do(db.batch(Batch(sets, clears, sends), NOW))[1][0][1] == "e"
    with pytest.raises(errors.QueueNotFound):
        do(db.batch(Batch(sets, clears, [("q", [row()]), ("s", [row()])]), NOW))
    assert do(db.channels("q", 9, NOW)) == []
    assert do(db.batch(Batch(sets, clears, sends[:1]), NOW)) == [[(2, "s")]]
    assert [found.channel for found in do(db.channels("q", 9, NOW))] == ["", "c"]
