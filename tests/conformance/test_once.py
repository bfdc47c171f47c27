"""send(once=…): under one name only one message is sent for a while (semantics §19.1 to 19.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairturn import (
    BodyTooLarge,
    ChannelFull,
    DuplicateKey,
    InvalidArgument,
    InvalidName,
    Policy,
    QueueNotFound,
    Send,
)
from tests.conformance.door import bodies, drain, totals
from tests.conformance.yours import plain


def outcomes(sent: Any) -> list[str]:
    return [one.outcome for one in sent]


def test_the_second_is_a_duplicate_of_the_first(queue):
    first = queue.send(1, once="x")
    assert (first.outcome, first.created) == ("sent", True)
    second = queue.send(2, once="x")
    assert (second, second.outcome, second.created) == (first, "duplicate", False)
    assert bodies(queue.peek()) == [1]
    assert totals(queue) == {"sent": 1}


def test_other_names_and_sends_without_one_are_sent(queue):
    queue.send(1, once="x")
    assert (
        outcomes([queue.send(2, once="y"), queue.send(3), queue.send(4, key="x")]) == ["sent"] * 3
    )
    assert bodies(queue.peek()) == [1, 2, 3, 4]


ENDS: dict[str, Callable[[Any], Any]] = {
    "leased": lambda queue: queue.one(),
    "acked": lambda queue: queue.one().ack(),
    "completed": lambda queue: queue.one().complete(1),
    "dead": lambda queue: queue.one().kill(),
    "cancelled": lambda queue: queue.cancel(id=queue.peek()[0].id),
    "discarded": lambda queue: (queue.one().kill(), queue.discard()),
}


@pytest.mark.parametrize("end", ENDS)
def test_whatever_becomes_of_the_first(queue, end):
    first = queue.send(1, once="x")
    ENDS[end](queue)
    again = queue.send(2, once="x")
    assert (again, again.outcome) == (first, "duplicate")


def test_also_when_the_first_has_expired(queue, clock):
    first = queue.send(1, once="x", expires=10)
    clock.tick(20)
    assert queue.receive() == []
    assert queue.send(2, once="x") == first


def test_it_is_forgotten_when_its_time_is_over(queue, clock):
    first = queue.send(1, once="x", once_for=10)
    clock.tick(9.999999)
    assert queue.send(2, once="x", once_for=10) == first
    clock.tick(0.000001)
    second = queue.send(3, once="x", once_for=10)
    assert (second.outcome, second > first) == ("sent", True)
    clock.tick(9.999999)
    assert queue.send(4, once="x") == second


def test_five_minutes_if_nothing_is_said(queue, clock):
    first = queue.send(1, once="x")
    queue.send_many([Send(1, once="y")])
    clock.tick(299.999999)
    assert queue.send(2, once="x") == first
    assert queue.send(2, once="y").outcome == "duplicate"
    clock.tick(0.000001)
    assert outcomes(queue.send_many([Send(3, once="x"), Send(3, once="y")])) == ["sent"] * 2


def test_the_time_of_the_one_that_was_sent_counts(queue, clock):
    queue.send(1, once="x", once_for=10)
    clock.tick(5)
    assert queue.send(2, once="x", once_for=1000).outcome == "duplicate"  # and prolongs nothing
    clock.tick(5)
    assert queue.send(3, once="x", once_for=1000).outcome == "sent"
    clock.tick(900)
    assert queue.send(4, once="x", once_for=1).outcome == "duplicate"


def test_a_name_is_the_queues_own(make):
    first, second = make(), make()
    assert first.send(1, once="x").outcome == "sent"
    assert second.send(1, once="x").outcome == "sent"


def test_a_name_is_for_all_channels(queue):
    first = queue.send(1, once="x", channel="a")
    assert queue.channel("b").send(2, once="x") == first
    assert queue.channel("b").send(3, once="y").outcome == "sent"


NAMES = [
    *("a", "A", "a ", "\u00e1", "a\u0301", "'", '"', "\\", "%s", "$1", "?", ":x", "["),
    *("\u20ac" * 85, "x" * 255),
]


def test_names_compare_byte_by_byte(queue):
    assert outcomes(queue.send(n, once=n) for n in NAMES) == ["sent"] * len(NAMES)
    assert outcomes(queue.send(n, once=n) for n in NAMES) == ["duplicate"] * len(NAMES)
    messages = {message.body: message.id for message in queue.peek(100)}
    again = queue.send_many([Send(n, once=n) for n in reversed(NAMES)])
    assert again == [messages[n] for n in reversed(NAMES)]


def test_items_of_one_call(queue):
    sent = queue.send_many(
        [
            Send(1, once="x"),
            Send(2),
            Send(3, once="x"),
            Send(4, once="y"),
            Send(5, key="k"),
            Send(6, once="y"),
            Send(7, once="x"),
            Send(8, key="k", on_conflict="replace"),
        ]
    )
    x, plain, _, y, _, _, _, k = sent
    assert sent == [x, plain, x, y, k, y, x, k]
    assert outcomes(sent) == [
        *("sent", "sent", "duplicate", "sent", "collapsed", "duplicate", "duplicate", "sent"),
    ]
    assert x < plain < y < k
    assert bodies(queue.peek()) == [1, 2, 4, 8]
    assert totals(queue) == {"sent": 4}
    again = queue.send_many([Send(9, once="y"), Send(10, once="z"), Send(11, once="y")])
    assert outcomes(again) == ["duplicate", "sent", "duplicate"]
    assert (again[0], again[2]) == (y, y)
    assert queue.send(12, once="z") == again[1]


def test_the_first_item_says_for_how_long(queue, clock):
    queue.send_many([Send(1, once="x", once_for=10), Send(2, once="x", once_for=1000)])
    clock.tick(10)
    assert queue.send(3, once="x").outcome == "sent"


@pytest.mark.parametrize("n", [2, 2500])
def test_many_names_at_once(queue, n):
    known = queue.send_many([Send(i, once=f"n{i}") for i in range(0, n, 2)])
    sent = queue.send_many([Send(i, once=f"n{i}") for i in reversed(range(n))])
    assert sent[::-1][::2] == known
    assert outcomes(sent[::-1]) == ["duplicate", "sent"] * (n // 2)
    assert sent[::2] == sorted(sent[::2])
    assert totals(queue) == {"sent": n}
    assert outcomes(queue.send_many([Send(0, once=f"n{i}") for i in range(n)])) == ["duplicate"] * n


def test_everything_else_of_a_send_goes_with_it(queue, clock):
    options = {"channel": "c", "priority": 3, "delay": 5, "version": 2, "type": "t"}
    for once, send in (
        ("x", queue.send),
        ("y", lambda *a, **k: queue.send_many([Send(*a, **k), Send("other")])[0]),
    ):
        id = send(
            b"\0", once=once, headers={"h": 1}, lease=9, max_attempts=1, expires=60, **options
        )
        message = queue.get(id=id)
        assert (message.body, message.headers, message.state) == (b"\0", {"h": 1}, "scheduled")
        assert (message.channel, message.priority, message.version) == ("c", 3, 2)
        assert (message.type, message.key, message.max_attempts) == ("t", None, 1)
        assert message.due_at == clock.moment(5)
        assert message.expires_at == clock.moment(60)
    clock.tick(5)
    message = queue.one(version=2)
    assert message.lease_until == clock.moment(9)


def test_a_duplicate_writes_no_event(db, make):
    queue = make(events=True)
    cursor = db.events(queue.name).cursor
    queue.send(1, once="x")
    queue.send(2, once="x")
    queue.send_many([Send(3, once="x"), Send(4, once="y"), Send(5, once="y")])
    events = db.events(queue.name, after=cursor)
    assert [event.kind for event in events] == ["created", "created"]


def test_a_duplicate_joins_no_group(db, queue, grouped):
    queue.send(0, once="x")
    group = grouped(queue)
    assert group.send(1, once="x").outcome == "duplicate"
    assert group.send(2, once="y").outcome == "sent"
    assert outcomes(group.send_many([Send(3, once="y"), Send(4, once="z")])) == [
        "duplicate",
        "sent",
    ]
    group.start()
    assert bodies(queue.peek()) == [0, 2, 4]
    drain(queue, 5)
    db.settled()
    status = group.status()
    assert (status.state, status.sent, status.done) == ("ended", 2, 2)


def test_in_a_batch(db, make):
    one, two = make(), make()
    first = one.send(0, once="x")
    with db.batch() as batch:
        pending = [
            batch.queue(queue.name).send(n, once=once)
            for queue in (one, two)
            for n, once in enumerate("xyy")
        ]
    sent = [one.sent for one in pending]
    assert outcomes(sent) == [*("duplicate", "sent", "duplicate"), *("sent", "sent", "duplicate")]
    assert (sent[0], sent[2], sent[5]) == (first, sent[1], sent[4])
    with db.batch() as batch:
        alone = batch.queue(two.name).send(9, once="x")
    assert alone.sent == sent[3]


# --- what is not sent is not remembered ---------------------------------------------------------


def test_a_full_channel(make):
    queue = make(policy=Policy(max_size=1))
    first = queue.send(1, once="x")
    assert queue.send(2, once="x") == first  # it would add nothing
    with pytest.raises(ChannelFull):
        queue.send(3, once="y")
    with pytest.raises(ChannelFull):
        queue.send_many([Send(4, once="x"), Send(5, once="y")])
    queue.one().ack()
    assert outcomes(queue.send_many([Send(6, once="x"), Send(7, once="y")])) == [
        "duplicate",
        "sent",
    ]


def test_a_conflict_in_the_same_call(queue):
    queue.send(1, key="k")
    with pytest.raises(DuplicateKey):
        queue.send_many([Send(2, once="x"), Send(3, key="k")])
    assert queue.send(4, once="x").outcome == "sent"


def test_a_body_too_large(make):
    queue = make(max_body=10)
    for _ in range(2):
        with pytest.raises(BodyTooLarge):
            queue.send(b"x" * 11, once="x")
        with pytest.raises(BodyTooLarge):
            queue.send_many([Send(1, once="y"), Send(b"x" * 11)])
    assert outcomes([queue.send(1, once="x"), queue.send(1, once="y")]) == ["sent"] * 2
    with pytest.raises(BodyTooLarge):
        queue.send(b"x" * 11, once="x")


@pytest.mark.yours
def test_your_rollback(db, queue):
    with db.rolled_back() as connection:
        bound = queue.inner.using(connection)
        assert db.wait(bound.send(1, once="x")).outcome == "sent"
        assert db.wait(bound.send(2, once="x")).outcome == "duplicate"
        sent = db.wait(bound.send_many([Send(3, once="x"), Send(4, once="y")]))
        assert outcomes(sent) == ["duplicate", "sent"]
    assert outcomes([queue.send(5, once="x"), queue.send(6, once="y")]) == ["sent"] * 2
    assert bodies(queue.peek()) == [5, 6]


# --- forgetting ---------------------------------------------------------------------------------


def test_purge_forgets(queue):
    first = queue.send(1, once="x")
    queue.purge()
    second = queue.send(2, once="x")
    assert (second.outcome, second != first) == ("sent", True)
    assert queue.send(3, once="x") == second


def test_drop_forgets(queue):
    queue.send(1, once="x")
    queue.drop()
    with pytest.raises(QueueNotFound):
        queue.send(2, once="x")
    queue.create()
    assert queue.send(3, once="x").outcome == "sent"


def rows(db: Any) -> int:
    """How much this database remembers, forgotten or not."""
    if db.memory is not None:
        state = db.memory.model._state
        return sum(len(q.remembered) for q in state.queues.values()) + sum(state.forgotten)
    table = "fairturn.remembered" if db.variant.backend == "postgresql" else "fairturn_remembered"
    with plain(db.variant.backend, db.url) as mine:
        [(count,)] = mine.execute(f"SELECT count(*) FROM {table}")
        mine.commit()
    return count


def maintain(db: Any, limit: int = 1000) -> None:
    while db.maintain(limit=limit).more:
        pass


def test_maintenance_deletes_what_is_forgotten(db, make, clock):
    queue, purged, dropped = make(), make(), make()
    maintain(db)
    before = rows(db)
    for one in (queue, purged, dropped):
        one.send_many([Send(n, once=f"n{n}", once_for=10 + n) for n in range(8)])
        one.remember("long", 1, keep=1000)
    assert rows(db) == before + 27
    clock.tick(14)
    assert db.maintain(limit=1000).purged == 0  # not counted: only messages are
    assert rows(db) == before + 3 * 4
    assert queue.send(1, once="n5").outcome == "duplicate"
    purged.purge()
    dropped.drop()
    maintain(db)
    assert rows(db) == before + 4
    assert queue.recall("long") == 1


def test_maintenance_is_bounded(db, make, clock):
    queue = make()
    maintain(db)
    before = rows(db)
    queue.send_many([Send(n, once=f"n{n}", once_for=10) for n in range(7)])
    drain(queue, 10)
    clock.tick(10)
    assert rows(db) == before + 7
    assert db.maintain(limit=3).more
    assert rows(db) == before + 4
    maintain(db, 3)
    assert rows(db) == before


@pytest.mark.few_variants
def test_names_in_constant_use_do_not_pile_up(db, queue, clock):
    """Without maintenance: what is forgotten is swept by the way, on MySQL every now and then."""
    n = 520 if db.variant.backend == "mysql" else 30
    before = rows(db)
    for i in range(n):
        queue.send(i, once=f"n{i}", once_for=1)
        clock.tick(1)
        queue.one().ack()
    assert rows(db) < before + n


# --- arguments ----------------------------------------------------------------------------------


@pytest.mark.few_variants
@pytest.mark.parametrize(
    "options",
    [
        {"once": "x", "key": "k"},
        {"once": "x", "key": "k", "on_conflict": "ignore"},
        {"once": "x", "once_for": 0},
        {"once": "x", "once_for": -1},
        {"once": "x", "once_for": "5"},
        {"once": "x", "once_for": float("nan")},
        {"once_for": 5},
    ],
)
def test_broken_arguments(queue, options):
    with pytest.raises(InvalidArgument):
        queue.send(1, **options)
    with pytest.raises(InvalidArgument):
        queue.send_many([Send(1, **options)])
    assert queue.stats().total == 0


@pytest.mark.few_variants
@pytest.mark.parametrize("name", ["", "x" * 256, "€" * 86, "a\0b", "\ud800", 7, b"x"])
def test_broken_names(queue, name):
    with pytest.raises(InvalidName):
        queue.send(1, once=name)
    with pytest.raises(InvalidName):
        queue.send_many([Send(1, once=name)])


@pytest.mark.few_variants
def test_a_groups_work_has_no_name(db, queue, grouped):
    with pytest.raises(InvalidArgument, match="once"):
        grouped(queue, end=Send(1, once="x"))
