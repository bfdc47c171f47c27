"""The model itself, against examples worked out by hand from docs/semantics.md."""

from __future__ import annotations

from typing import Any

import pytest

from fairturn.backends.base import ConsumerState, Peek, Receive, Received
from fairturn.backends.memory import MemoryBackend
from fairturn.backends.steps import Op
from fairturn.backends.verbs import ACK, RELEASE, Complete, Defer, Fail, Kill, Lease
from fairturn.core import errors
from fairturn.core.rows import SendRow
from fairturn.core.settings import PolicyRow

NOW = 1_000_000_000
S = 1_000_000
OPEN = PolicyRow(None, None, None, 1, 1, 0, 0, None)


def do(op: Op[Any]) -> Any:
    with pytest.raises(StopIteration) as stop:
        next(op)
    return stop.value.value


def row(channel: str = "", body: bytes = b"1", **more: Any) -> SendRow:
    return SendRow(channel, body, 0, **more)


@pytest.fixture
def db() -> MemoryBackend:
    db = MemoryBackend()
    do(db.queue_create("q", {}, NOW))
    return db


def send(db: MemoryBackend, *rows: SendRow, now: int = NOW) -> list[tuple[int, str]]:
    return do(db.send("q", rows, now))


def take(
    db: MemoryBackend,
    n: int = 10,
    consumer: ConsumerState | None = None,
    now: int = NOW,
    token: int = 1,
    **args: Any,
) -> Received:
    return do(db.receive("q", Receive(n, token=token, **args), consumer or ConsumerState(), now))


def ids(received: Received) -> list[int]:
    return [row.id for row in received.rows]


def served(received: Received) -> str:
    return "".join(row.channel for row in received.rows)


def stat(db: MemoryBackend, name: str, now: int = NOW) -> int:
    [stats] = do(db.stats("q", now))
    return getattr(stats, name)


def test_channels_take_turns_by_weight_and_the_memory_carries_a_turn_over(db: MemoryBackend):
    do(db.policy_set("q", "b", PolicyRow(None, None, None, 1, 2, 0, 0, None), NOW))
    send(db, *[row(c) for c in "aaaabbbbc"])
    consumer = ConsumerState()
    assert served(take(db, 2, consumer)) == "ab"
    assert (consumer.channel, consumer.credit) == ("b", 1)
    assert served(take(db, 3, consumer)) == "bca"
    assert served(take(db, 9, consumer)) == "bbaa"


def test_order_in_a_channel_is_priority_then_due_then_id(db: MemoryBackend):
    send(db, row(), row(due_us=NOW - 5), row(rank=-1), row(), row(rank=1, due_us=0))
    assert ids(take(db)) == [3, 2, 1, 4, 5]


def test_max_bytes_cuts_and_the_memory_stands_at_the_last_given(db: MemoryBackend):
    send(db, row("a", b"12345"), row("b", b"12"), row("c", b"1"))
    consumer = ConsumerState()
    assert served(take(db, 9, consumer, max_bytes=6)) == "a"
    assert consumer.channel == "a"
    assert served(take(db, 9, consumer, max_bytes=0)) == "b"


def test_a_rate_gives_its_burst_then_one_per_interval(db: MemoryBackend):
    do(db.policy_set("q", "", PolicyRow(None, 2, 3 * S, 2, 1, 0, 0, None), NOW))  # every 1.5 s
    send(db, *[row()] * 9)
    assert len(take(db).rows) == 2
    assert take(db).retry_after_us == 1_500_000
    assert take(db, now=NOW + 1_499_999).retry_after_us == 1
    assert len(take(db, now=NOW + 1_500_000).rows) == 1
    assert len(take(db, now=NOW + 100 * S).rows) == 2


def test_expired_leases_count_against_a_limit_until_they_are_recovered(db: MemoryBackend):
    do(db.policy_set("q", "", PolicyRow(1, None, None, 1, 1, 0, 0, None), NOW))
    send(db, row(), row())
    assert ids(take(db, lease_us=5)) == [1]
    assert take(db, now=NOW + 4).retry_after_us == 1
    again = take(db, now=NOW + 5)
    assert ids(again) == [1]
    [leased] = again.rows
    assert (leased.attempts, leased.deliveries, leased.recovered) == (2, 2, 1)


def test_an_ordered_channel_gives_nothing_past_a_begun_message(db: MemoryBackend):
    do(db.policy_set("q", "", PolicyRow(None, None, None, 1, 1, 0, 1, None), NOW))
    send(db, row(), row(), row(version=1), row())
    assert ids(take(db, version=0)) == [1, 2]  # the run ends at the first that does not fit
    do(db.apply_verb("q", ACK, [Lease(2, 1)], True, NOW))
    assert ids(take(db)) == []
    do(db.apply_verb("q", Fail("no", S), [Lease(1, 1)], True, NOW))
    send(db, row(rank=-9))
    assert ids(take(db)) == []  # it waits for its retry
    assert ids(take(db, now=NOW + S)) == [1, 5, 3, 4]


def test_the_limit_of_the_queue_is_over_all_channels(db: MemoryBackend):
    do(db.queue_set("q", {"limit_concurrency": 3}, NOW))
    send(db, *[row(c) for c in "aabb"])
    assert served(take(db)) == "aba"
    assert take(db).rows == []


@pytest.mark.parametrize(
    ("state", "ignore", "error", "replace"),
    [("r", "d", "e", "r"), ("l", "d", "e", "f"), ("d", "d", "e", "r"), ("x", "s", "s", "s")],
)
def test_what_a_taken_key_does(state: str, ignore: str, error: str, replace: str):
    for on_conflict, expected in (("i", ignore), ("e", error), ("r", replace)):
        db = MemoryBackend()
        do(db.queue_create("q", {}, NOW))
        send(db, row(key="k"))
        if state != "r":
            take(db)
        if state == "d":
            do(db.apply_verb("q", Complete(b"1", 1), [Lease(1, 1)], True, NOW))
        if state == "x":
            do(db.apply_verb("q", Kill("no"), [Lease(1, 1)], True, NOW))
        id, outcome = send(db, row(key="k", on_conflict=on_conflict, delay_us=S))[0]
        assert (id, outcome) == (2 if expected == "s" else 1, expected)
        found = do(db.get("q", 1, None, NOW))
        assert found.state == ("s" if expected == "r" else state)
        assert found.key == (None if expected == "s" else "k")


def test_items_with_one_key_collapse_to_the_last(db: MemoryBackend):
    outcome = send(db, row(key="k", body=b"1"), row(), row(key="k", body=b"2"))
    assert outcome == [(2, "c"), (1, "s"), (2, "s")]
    assert do(db.get("q", None, "k", NOW))[2] == b"2"
    assert stat(db, "sent") == 2


def test_a_full_channel_takes_nothing_of_the_call(db: MemoryBackend):
    do(db.policy_set("q", "a", PolicyRow(None, None, None, 1, 1, 0, 0, 2), NOW))
    assert [o for _, o in send(db, row("a"), row("b"), row("a"), row("a"))] == ["m", "s", "m", "m"]
    assert stat(db, "sent") == 0
    assert [o for _, o in send(db, row("a"), row("a"))] == ["s", "s"]


def test_death_moves_to_the_dead_letter_queue(db: MemoryBackend):
    do(db.queue_create("dead", {"expires_us": S}, NOW))
    do(db.queue_set("q", {"dead_letter": "dead", "max_attempts": 1}, NOW))
    send(db, row(key="k", expires_us=9 * S))
    take(db)
    do(db.apply_verb("q", Fail("no"), [Lease(1, 1)], True, NOW + 1))
    assert do(db.peek("q", Peek(9), NOW + 1)) == []
    (moved,) = do(db.peek("dead", Peek(9), NOW + 1))
    assert (moved.id, moved.key, moved.due_at) == (1, None, NOW + 1)
    assert (moved.attempts, moved.deliveries) == (0, 1)
    assert (moved.origin, moved.first_at) == ("q", NOW)
    assert (moved.state, moved.error, moved.expires_at) == ("r", "no", NOW + 1 + S)
    assert (stat(db, "failed"), stat(db, "killed"), stat(db, "errors")) == (1, 1, 1)
    (logged,) = do(db.failures("q", 1, None, 9))
    assert logged == ("q", 1, "k", 1, NOW + 1, "no", None, None)


def test_back_off_grows_to_its_maximum(db: MemoryBackend):
    backoff = {"backoff_initial_us": 2, "backoff_factor": 3, "backoff_max_us": 10}
    do(db.queue_set("q", {**backoff, "max_attempts": 0}, NOW))
    send(db, row())
    now, waits = NOW, []
    for delivery in (1, 2, 3):
        take(db, now=now, token=delivery)
        do(db.apply_verb("q", Fail("no"), [Lease(1, delivery)], True, now))
        due = do(db.get("q", 1, None, now)).due_at
        waits.append(due - now)
        now = due
    assert waits == [2, 6, 10]


def test_a_live_permit_carries_its_leases_on_and_a_dead_one_is_not_revived(db: MemoryBackend):
    permit = 7
    do(db.permit_create(permit, "w", 10, NOW))
    send(db, row())
    take(db, lease_us=5, permit=permit)
    assert take(db, now=NOW + 5).rows == []
    assert do(db.get("q", 1, None, NOW + 5)).lease_until == NOW + 10
    assert not do(db.permit_extend(permit, 10, NOW + 10))
    with pytest.raises(errors.PermitLost):
        take(db, permit=permit, now=NOW + 10)
    assert ids(take(db, now=NOW + 10)) == [1]


def test_a_stale_lease_changes_nothing(db: MemoryBackend):
    send(db, row())
    take(db, lease_us=1)
    take(db, now=NOW + 1, token=2)
    before = do(db.peek("q", Peek(9), NOW))
    assert do(db.apply_verb("q", RELEASE, [Lease(1, 1)], False, NOW + 1)).lost == [1]
    with pytest.raises(errors.LeaseLost):
        do(db.apply_verb("q", ACK, [Lease(1, 1)], True, NOW + 1))
    assert do(db.peek("q", Peek(9), NOW)) == before


def test_release_gives_the_attempt_back_and_defer_starts_over(db: MemoryBackend):
    send(db, row())
    take(db)
    do(db.apply_verb("q", RELEASE, [Lease(1, 1)], True, NOW))
    [leased] = take(db, token=2).rows
    assert (leased.attempts, leased.deliveries) == (1, 2)
    do(db.apply_verb("q", Defer(None, 0, 0, b"m", 0), [Lease(1, 2)], True, NOW))
    [leased] = take(db).rows
    assert (leased.attempts, leased.deliveries, leased.memo) == (1, 3, b"m")


def test_maintenance_ends_what_is_over(db: MemoryBackend):
    do(db.queue_set("q", {"dead_retention_us": 2 * S, "max_attempts": 1}, NOW))
    send(db, row(), row(), row(delay_us=S), row(expires_us=S), row())
    take(db, 3, lease_us=S, max_bytes=2)
    do(db.apply_verb("q", Complete(), [Lease(1, 1)], True, NOW))
    assert do(db.maintain(100, NOW + S)) == (1, 0, 1, 0, False)
    assert stat(db, "expired") == 1
    assert do(db.maintain(100, NOW + 3 * S)) == (0, 0, 0, 1, False)
    assert do(db.maintain(1, NOW + 86_400 * S)) == (0, 0, 0, 1, True)
    do(db.queue_purge("q", False, NOW))
    assert do(db.maintain(100, NOW + 86_400 * S)) == (0, 0, 0, 2, False)


def test_a_snapshot_brings_everything_back(db: MemoryBackend):
    send(db, row())
    before = db.snapshot()
    take(db)
    do(db.queue_drop("q", NOW))
    db.restore(before)
    assert ids(take(db)) == [1]


def test_the_clock_is_the_one_that_was_given():
    db = MemoryBackend(clock=lambda: 7)
    do(db.queue_create("q", {}, None))
    assert do(db.queues("q"))[0]["created_at"] == do(db.clock()) == 7
    assert do(db.send("q", [row(delay_us=1)], None)) == [(1, "s")]
    assert do(db.receive("q", Receive(1), ConsumerState(), None)).retry_after_us == 1


def test_unknown_queues_are_told(db: MemoryBackend):
    for op in (
        db.send("none", [row()], NOW),
        db.receive("none", Receive(1), ConsumerState(), NOW),
        db.apply_verb("none", ACK, [], False, NOW),
        db.cancel("none", 1, None, False, NOW),
        db.redrive("q", "none", 1, 0, NOW),
        db.policy_set("none", "", OPEN, NOW),
        db.stats("none", NOW),
        db.failures("none", None, None, 1),
    ):
        with pytest.raises(errors.QueueNotFound):
            next(op)
    assert do(db.queue_drop("none", NOW)) is False
