"""Events: what happened, in order, from any cursor on (semantics §15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairturn import CursorLost, InvalidArgument, QueueNotFound, Send
from tests.conformance.door import drain, unique

DAY = 86_400


@pytest.fixture
def heard(make: Callable[..., Any]) -> Any:
    """A queue that tells."""
    return make(events=True)


def kinds(db, queue, **options):
    return [event.kind for event in db.events(queue.name, after="", **options)]


def last(db, queue):
    return db.events(queue.name, after="")[-1]


# --- what is told -------------------------------------------------------------------------------


def test_off_unless_it_is_switched_on(db, make):
    queue = make()
    assert queue.settings().events is False
    queue.send(1)
    queue.set(events=True)
    assert queue.settings().events is True
    queue.send(2)
    queue.set(events=False)
    queue.send(3)
    drain(queue)
    assert kinds(db, queue) == ["created"]


def test_a_life(db, heard, clock):
    sent = heard.send(1, key="k", channel="c", delay=5)
    clock.tick(5)
    message = heard.one()
    clock.tick(1)
    message.progress(0.4, note="n")
    message.ack()
    created, leased, progress, deleted = db.events(heard.name, after="")
    for event in (created, leased, progress, deleted):
        assert (event.queue, event.id, event.key, event.channel) == (heard.name, sent, "k", "c")
    assert (created.kind, created.at, created.delay) == ("created", clock.moment(-6), 5.0)
    assert (leased.kind, leased.at, leased.delay) == ("leased", clock.moment(-1), None)
    assert leased.data == {"attempts": 1, "deliveries": 1}
    assert (progress.kind, progress.at) == ("progress", clock.moment())
    assert progress.data == {"progress": 0.4, "note": "n"}
    assert (deleted.kind, deleted.at, deleted.delay) == ("deleted", clock.moment(), None)


def test_a_message_without_key_in_the_default_channel(db, heard):
    heard.send(1)
    [event] = db.events(heard.name, after="")
    assert (event.key, event.channel, event.delay) == (None, "", 0.0)
    assert not event.data


def test_the_past_is_no_delay(db, heard, clock):
    heard.send(1, at=clock.moment(-50))
    assert last(db, heard).delay == 0.0


def test_replaced_is_created_and_duplicates_are_nothing(db, heard, clock):
    sent = heard.send(1, key="k", delay=50)
    heard.send(2, key="k", on_conflict="replace", delay=7)
    heard.send(3, key="k", on_conflict="ignore")
    heard.send_many([Send(4, key="m"), Send(5, key="m")])
    events = db.events(heard.name, after="")
    assert [event.kind for event in events] == ["created"] * 3
    assert [event.delay for event in events] == [50.0, 7.0, 0.0]
    assert events[0].id == events[1].id == sent


def test_what_puts_a_message_off(db, heard, clock):
    heard.send(1, key="k")
    heard.one().defer(5)
    assert (last(db, heard).kind, last(db, heard).delay) == ("deferred", 5.0)
    heard.reschedule(key="k", delay=7)
    assert (last(db, heard).kind, last(db, heard).delay) == ("deferred", 7.0)
    clock.tick(7)
    heard.one().fail("no", delay=9)
    assert (last(db, heard).kind, last(db, heard).delay) == ("deferred", 9.0)
    clock.tick(9)
    heard.one().kill("boom")
    assert (last(db, heard).kind, last(db, heard).data) == ("dead", {"error": "boom"})
    heard.redrive(delay=3)
    assert (last(db, heard).kind, last(db, heard).delay) == ("deferred", 3.0)


def test_done_where_it_is_kept(db, make):
    kept, heard = make(events=True, retention=60), make(events=True)
    kept.send(1)
    kept.one().ack()
    assert last(db, kept).kind == "done"
    heard.send(1)
    heard.one().complete(5)
    assert last(db, heard).kind == "done"


def test_the_ways_to_be_deleted(db, heard, clock):
    cancelled, expired, discarded = heard.send(1), heard.send(2, expires=5), heard.send(3)
    heard.cancel(id=cancelled)
    assert (last(db, heard).kind, last(db, heard).id) == ("deleted", cancelled)
    clock.tick(5)
    db.maintain()
    assert (last(db, heard).kind, last(db, heard).id) == ("deleted", expired)
    heard.one().kill()
    heard.discard()
    assert (last(db, heard).kind, last(db, heard).id) == ("deleted", discarded)


def test_carried_acks_and_batches(db, heard):
    heard.send_many([1, 2, 3])
    messages = heard.receive(2)
    heard.receive(1, ack=messages)
    found = kinds(db, heard)
    assert sorted(found) == ["created"] * 3 + ["deleted"] * 2 + ["leased"] * 3
    assert found[:5] == ["created"] * 3 + ["leased"] * 2


def test_death_is_told_where_it_happened(db, make):
    graves = make(events=True)
    heard = make(events=True, dead_letter=graves.name)
    sent = heard.send(1, key="k", channel="c")
    heard.one().kill("boom")
    event = last(db, heard)
    assert (event.kind, event.id, event.key, event.data) == ("dead", sent, "k", {"error": "boom"})
    [event] = db.events(graves.name, after="")
    assert (event.kind, event.id, event.key, event.channel) == ("created", sent, None, "c")
    assert event.delay == 0.0


def test_only_the_queue_that_tells_tells(db, make):
    quiet, heard = make(), make(events=True)
    quiet.set(dead_letter=heard.name)
    quiet.send(1)
    quiet.one().kill("boom")
    assert kinds(db, quiet) == []
    assert kinds(db, heard) == ["created"]
    heard.one().kill("boom")
    heard.redrive(to=quiet.name)
    assert kinds(db, heard) == ["created", "leased", "dead"]
    assert kinds(db, quiet) == []


def test_a_redrive_into_another_queue_is_told_there(db, make):
    quiet, heard = make(), make(events=True)
    sent = quiet.send(1)
    quiet.one().kill("boom")
    quiet.redrive(to=heard.name, delay=4)
    [event] = db.events(heard.name, after="")
    assert (event.kind, event.id, event.delay) == ("created", sent, 4.0)


def test_death_by_an_expired_lease(db, make, clock):
    heard = make(events=True, max_attempts=1, lease=5)
    heard.send(1)
    heard.one()
    clock.tick(5)
    assert heard.receive() == []
    assert last(db, heard).kind == "dead"
    assert last(db, heard).data == {"error": "lease expired with no attempts left"}


def test_what_is_not_told(db, make, clock):
    """Purge, release, recovery, promotion and retention."""
    heard = make(events=True, lease=5, retention=60)
    heard.send(1)
    heard.one().release()
    heard.one()
    clock.tick(5)
    heard.one().ack()
    heard.send(2, delay=5)
    clock.tick(60)
    db.maintain()
    heard.purge()
    db.maintain()
    told = ["created", "leased", "leased", "leased", "done", "created"]
    assert kinds(db, heard) == told


def test_progress_tells_what_is_stored_after_it(db, heard):
    heard.send(1)
    message = heard.one()
    message.progress(note="first")
    assert last(db, heard).data == {"progress": None, "note": "first"}
    message.progress(0.25)
    assert last(db, heard).data == {"progress": 0.25, "note": "first"}


def test_odd_texts_survive(db, heard):
    heard.send(1, key="k'\"\\é🎉", channel="c%s$1?:x")
    heard.one().kill("boom '\"\\\n é🎉 %s")
    event = last(db, heard)
    assert (event.key, event.channel) == ("k'\"\\é🎉", "c%s$1?:x")
    assert event.data == {"error": "boom '\"\\\n é🎉 %s"}


# --- groups -------------------------------------------------------------------------------------


def test_a_group_that_ended(db, heard, grouped, clock):
    group = grouped(heard, end=Send("end", delay=2, key="e"), abort="abort")
    group.send("a")
    assert kinds(db, heard) == ["created"]
    group.start()
    assert kinds(db, heard) == ["created"]
    heard.one().ack()
    db.settled()
    events = db.events(heard.name, after="")[1:]
    by_kind = {event.kind: event for event in events}
    assert sorted(event.kind for event in events) == ["closed", "created", "deleted", "leased"]
    closed, created = by_kind["closed"], by_kind["created"]
    assert (closed.id, closed.key, closed.channel, closed.delay) == (None, None, None, None)
    assert closed.at == clock.moment()
    assert closed.data == {
        "name": group.name,
        "outcome": "ended",
        "sent": 1,
        "done": 1,
        "dead": 0,
    }
    assert (created.key, created.delay) == ("e", 2.0)


def test_a_group_that_was_cancelled(db, make, grouped):
    heard, other = make(events=True), make(events=True)
    group = grouped(heard, end="end")
    group.send("a")
    member = other.send("b", group=group.name)
    group.cancel()
    assert sorted(kinds(db, heard)) == ["closed", "created", "deleted"]
    created, deleted = db.events(other.name, after="")
    assert (created.kind, deleted.kind, deleted.id) == ("created", "deleted", member)
    [closed] = db.events(heard.name, after="", kinds=["closed"])
    assert closed.data["outcome"] == "cancelled"


def test_a_closing_is_told_in_the_queue_of_the_group(db, make, grouped):
    heard, quiet = make(events=True), make()
    group = grouped(quiet)
    group.send("a")
    heard.send("b", group=group.name)
    group.cancel()
    assert kinds(db, quiet) == []
    assert kinds(db, heard) == ["created", "deleted"]


# --- reading ------------------------------------------------------------------------------------


def test_resumable_from_any_cursor(db, heard):
    heard.send_many(list(range(5)))
    drain(heard)
    events = db.events(heard.name, after="")
    assert [e.kind for e in events[:5]] == ["created"] * 5
    for n, event in enumerate(events):
        assert db.events(heard.name, after=event.cursor) == events[n + 1 :]
    assert len({event.cursor for event in events}) == len(events)


def test_a_reader_goes_on_where_it_stood(db, heard):
    seen = []
    cursor = ""
    for n in range(5):
        heard.send_many([n] * 3)
        for event in db.events(heard.name, after=cursor):
            seen.append(event.id)
            cursor = event.cursor
    assert seen == sorted(seen)
    assert len(seen) == len(set(seen)) == 15


def test_only_some_kinds(db, heard):
    heard.send_many([1, 2])
    drain(heard)
    assert kinds(db, heard, kinds=["deleted"]) == ["deleted"] * 2
    assert kinds(db, heard, kinds=["leased", "created"]) == [
        "created",
        "created",
        "leased",
        "leased",
    ]
    assert kinds(db, heard, kinds=[]) == []


def test_all_queues(db, make):
    first, second = make(events=True), make(events=True)
    first.send(1)
    cursor = db.events(first.name, after="")[-1].cursor
    second.send(2)
    first.send(3)
    found = [e for e in db.events(after=cursor) if e.queue in (first.name, second.name)]
    assert [(event.queue, event.kind) for event in found] == [
        (second.name, "created"),
        (first.name, "created"),
    ]


def test_from_now_on_there_is_nothing_yet(db, heard):
    heard.send(1)
    assert db.events(heard.name) == []
    assert db.events() == []


def test_more_than_a_page(db, heard):
    heard.send_many(list(range(1200)))
    events = db.events(heard.name, after="")
    assert [event.id for event in events] == [message.id for message in heard.peek(2000)]


def test_following_what_happens(db, heard):
    """A reader that waits gets what is committed after it began."""
    first = heard.send(1)
    found = db.inner.events(heard.name, after="", timeout=30)
    step = found.__anext__ if db.variant.is_async else found.__next__
    assert db.wait(step()).id == first
    follower = db.background(step)
    second = heard.send(2)
    assert follower.result().id == second


def test_it_ends_after_silence(db, heard):
    heard.send(1)
    assert len(db.events(heard.name, after="", timeout=0.05)) == 1


def test_another_event_in_the_place_of_the_cursor_is_told(db, heard):
    """A failover or a restore sets the database back: then other events get the same numbers.
    (tests/clusters has the real thing.)"""
    heard.send(1)
    cursor = db.events(heard.name, after="")[-1].cursor
    position, _, at = cursor.rpartition("-")
    with pytest.raises(CursorLost, match="set back"):
        db.events(heard.name, after=f"{position}-{int(at) + 1}")
    heard.send(2)
    assert [event.kind for event in db.events(heard.name, after=cursor)] == ["created"]


def test_the_cursor_moves_on_without_events(db, heard):
    quiet = db.events(heard.name, after="")
    heard.send(1)
    assert [event.kind for event in db.events(heard.name, after=quiet.cursor)] == ["created"]
    stand = db.events(heard.name, after="", kinds=["dead"]).cursor
    heard.one().kill("boom")
    assert [event.kind for event in db.events(heard.name, after=stand)] == ["leased", "dead"]


def maintained(db):
    """All of it: other tests left events, too."""
    while db.maintain().more:
        pass


def test_events_older_than_a_day_are_deleted(db, heard, clock):
    clock.tick(100 * DAY)  # later than all that other tests have left
    maintained(db)
    heard.send(1)
    clock.tick(10)
    heard.send(2)
    clock.tick(DAY - 11)
    maintained(db)
    assert kinds(db, heard) == ["created"] * 2
    clock.tick(1)
    maintained(db)
    assert kinds(db, heard) == ["created"]
    clock.tick(10)
    maintained(db)
    assert kinds(db, heard) == []
    heard.send(3)
    assert kinds(db, heard) == ["created"]
    clock.tick(DAY)
    maintained(db)


@pytest.mark.few_variants
def test_broken_arguments(db, heard):
    with pytest.raises(QueueNotFound):
        db.events(unique("nowhere"), after="")
    with pytest.raises(QueueNotFound):
        db.events(unique("nowhere"))
    with pytest.raises(InvalidArgument):
        db.events(heard.name, after="", kinds=["exploded"])
    with pytest.raises(InvalidArgument):
        db.events(heard.name, after="", kinds="created")
    with pytest.raises(InvalidArgument):
        db.events(heard.name, after="", timeout=-1)
    with pytest.raises(InvalidArgument):
        db.events(heard.name, after="not a cursor")


# --- your transaction ---------------------------------------------------------------------------


@pytest.mark.yours
def test_an_event_exists_if_its_transaction_commits(db, heard):
    with db.rolled_back() as connection:
        mine = heard.inner.using(connection)
        db.wait(mine.send(1))
        db.wait(mine.receive())
    assert kinds(db, heard) == []
    with db.transaction() as connection:
        mine = heard.inner.using(connection)
        db.wait(mine.send(1))
        [message] = db.wait(mine.receive())
        db.wait(message.ack())
    assert kinds(db, heard) == ["created", "leased", "deleted"]


@pytest.mark.writers
def test_late_commits_are_not_skipped(db, heard):
    """The earlier insert commits later: a reader that has moved on must still get it."""
    zero = heard.send("zero")
    stand = db.events(heard.name, after="")
    assert [event.id for event in stand] == [zero]
    with db.transaction() as connection:
        early = db.wait(heard.inner.using(connection).send("early"))
        late = db.wait(heard.inner.send("late"))
        seen = db.events(heard.name, after=stand.cursor)
        again = db.events(heard.name, after=seen.cursor)
        assert early not in [event.id for event in seen + again]
    rest = db.events(heard.name, after=again.cursor)
    assert sorted(event.id for event in seen + again + rest) == sorted([early, late])
    assert len(db.events(heard.name, after="")) == 3


@pytest.mark.writers
def test_a_rolled_back_insert_holds_nobody_up(db, heard):
    with db.rolled_back() as connection:
        db.wait(heard.inner.using(connection).send("never"))
        late = db.wait(heard.inner.send("late"))
        seen = db.events(heard.name, after="")
    rest = db.events(heard.name, after=seen.cursor)
    assert [event.id for event in seen + rest] == [late]


@pytest.mark.writers
def test_from_now_on_does_not_skip_what_is_open(db, heard):
    """What commits after "now" is new, although it was inserted before."""
    with db.transaction() as connection:
        early = db.wait(heard.inner.using(connection).send("early"))
        now = db.events(heard.name)
        assert now == []
    assert [event.id for event in db.events(heard.name, after=now.cursor)] == [early]
