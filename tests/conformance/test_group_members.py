"""What becomes of a group's members, its works and its name (semantics §12)."""

from __future__ import annotations

import pytest

from fairturn import BodyTooLarge, DuplicateKey, InvalidArgument, InvalidName, QueueNotFound, Send
from tests.conformance.door import bodies, counts, drain, gauges, told, totals, unique

DAY = 86_400

# --- dead members ---------------------------------------------------------------------------------


def test_a_dead_member_does_not_hold_the_group(db, queue, grouped):
    group = grouped(queue, end="end", abort="abort")
    group.send("a")
    group.start()
    queue.one().kill("boom")
    db.settled()
    assert bodies(drain(queue)) == ["end"]
    status = group.status()
    assert (status.state, status.done, status.dead) == ("ended", 0, 1)


def test_a_dead_lettered_member_belongs_to_no_group(db, make, grouped):
    graves = make()
    queue = make(dead_letter=graves.name)
    group = grouped(queue, end="end")
    sent = group.send("a")
    group.start()
    queue.one().kill("boom")
    db.settled()
    assert group.status().state == "ended"
    message = graves.one()
    assert (message.id, message.group) == (sent, None)
    message.ack()
    db.settled()
    assert (group.status().done, group.status().dead) == (0, 1)


def test_on_dead_abort_does_what_cancel_does(db, make, grouped):
    queue, other = make(), make()
    group = grouped(queue, end="end", abort="abort", on_dead="abort")
    group.send_many(["a", "b"])
    other.send("c", group=group.name)
    group.start()
    first, second = queue.receive(2)
    first.ack()
    second.kill("boom")
    db.settled()
    assert group.status().state == "aborted"
    assert counts(other) == {}
    [message] = drain(queue)
    assert message.body == "abort"
    assert told(message) == {"outcome": "aborted", "sent": 3, "done": 1, "dead": 1}
    assert counts(queue) == {"dead": 1}
    assert (totals(queue).get("cancelled", 0), totals(other)["cancelled"]) == (0, 1)


def test_the_last_member_aborts_too(db, queue, grouped):
    group = grouped(queue, end="end", abort="abort", on_dead="abort")
    group.send("a")
    group.start()
    queue.one().kill("boom")
    db.settled()
    assert group.status().state == "aborted"
    assert bodies(drain(queue)) == ["abort"]


def test_on_dead_abort_with_a_dead_letter_queue(db, make, grouped):
    graves = make()
    queue = make(dead_letter=graves.name)
    group = grouped(queue, abort="abort", on_dead="abort")
    group.send_many(["a", "b"])
    group.start()
    queue.one().kill("boom")
    db.settled()
    assert group.status().state == "aborted"
    assert bodies(drain(queue)) == ["abort"]
    assert bodies(drain(graves)) == ["a"]


def test_on_dead_abort_by_an_expired_lease(db, make, grouped, clock):
    queue = make(max_attempts=1, lease=5)
    group = grouped(queue, abort="abort", on_dead="abort")
    group.send("a")
    group.send("b", delay=100)
    group.start()
    queue.one()
    clock.tick(5)
    db.maintain()
    db.settled()
    assert group.status().state == "aborted"
    assert bodies(drain(queue)) == ["abort"]
    assert counts(queue) == {"dead": 1}


def test_a_redriven_member_counts_again_while_the_group_is_open(db, queue, grouped):
    group = grouped(queue, end="end")
    group.send_many(["a", "b"])
    group.start()
    queue.one().kill("boom")
    assert queue.redrive() == 1
    assert gauges(group.status()) == {"waiting": 2}
    assert sorted(bodies(drain(queue))[:2]) == ["a", "b"]
    db.settled()
    status = group.status()
    assert (status.state, status.done, status.dead) == ("ended", 2, 1)


def test_a_member_redriven_to_another_queue_leaves(db, make, grouped):
    queue, other = make(), make()
    group = grouped(queue)
    group.send_many(["a", "b"])
    group.start()
    queue.one().kill("boom")
    assert queue.redrive(to=other.name) == 1
    assert other.one().group is None
    assert gauges(group.status()) == {"waiting": 1}


# --- keys -----------------------------------------------------------------------------------------


def test_a_replaced_member_belongs_to_the_group_of_the_new_send(db, queue, grouped):
    old, new = grouped(queue, end="old"), grouped(queue, end="new")
    old.send("a", key="k")
    old.start()
    assert new.send("b", key="k", on_conflict="replace").outcome == "replaced"
    db.settled()
    assert old.status().state == "ended"
    assert queue.get(key="k").group == new.name
    assert queue.get(key="k").state == "held"
    assert (new.status().sent, gauges(new.status())) == (1, {"held": 1})
    assert queue.send("c", key="k", on_conflict="replace").outcome == "replaced"
    assert queue.get(key="k").group is None
    assert queue.get(key="k").state == "ready"
    assert gauges(new.status()) == {}


def test_a_member_replaced_within_its_group_stays(db, queue, grouped):
    group = grouped(queue, end="end")
    group.send("a", key="k")
    group.start()
    assert group.send("b", key="k", on_conflict="replace").outcome == "replaced"
    db.settled()
    status = group.status()
    assert (status.state, status.sent, gauges(status)) == ("running", 2, {"waiting": 1})


def test_duplicate_and_refused_sends_leave_the_message_where_it_is(queue, grouped):
    group, other = grouped(queue), grouped(queue)
    queue.send("a", key="k")
    assert group.send("b", key="k", on_conflict="ignore").outcome == "duplicate"
    assert queue.get(key="k").group is None
    other.send("c", key="m")
    other.start()
    assert queue.receive(2)
    assert group.send("d", key="m", on_conflict="replace").outcome == "refused"
    assert queue.get(key="m").group == other.name


def test_a_conflict_leaves_no_member(db, queue, grouped):
    group = grouped(queue)
    queue.send("a", key="k")
    with pytest.raises(DuplicateKey):
        queue.send_many([Send("b", group=group.name), Send("c", key="k", group=group.name)])
    assert counts(queue) == {"ready": 1}
    assert group.status() is None


# --- the works ------------------------------------------------------------------------------------


def test_the_delay_of_a_work_counts_from_the_closing(db, queue, grouped, clock):
    group = grouped(queue, end=Send("end", delay=10))
    group.send("a")
    group.start()
    clock.tick(100)
    assert bodies(drain(queue)) == ["a"]
    db.settled()
    message = queue.peek()[0]
    assert (message.state, message.due_at) == ("scheduled", clock.moment(10))
    assert message.created_at == clock.moment()
    clock.tick(10)
    assert bodies(drain(queue)) == ["end"]


def test_a_work_may_have_a_time_of_its_own(db, queue, grouped, clock):
    group = grouped(queue, end=Send("end", at=clock.moment(50)))
    clock.tick(10)
    group.start()
    db.settled()
    assert queue.peek()[0].due_at == clock.moment(40)
    clock.tick(40)
    assert bodies(drain(queue)) == ["end"]


def test_a_work_expires_as_its_queue_says_from_the_closing_on(db, make, grouped, clock):
    queue = make(expires=5)
    group = grouped(queue, end="end")
    group.send("a", expires=1000)
    group.start()
    clock.tick(20)
    db.maintain()
    assert counts(queue) == {"held": 1, "ready": 1}
    queue.one().ack()
    db.settled()
    assert queue.peek()[0].expires_at == clock.moment(5)


def test_works_are_counted_as_sent_when_they_are_released(db, queue, grouped):
    group = grouped(queue, end="end", abort="abort")
    group.start()
    db.settled()
    assert totals(queue) == {"sent": 1}
    assert counts(queue) == {"ready": 1}


def test_a_work_that_was_cancelled_by_hand_is_not_sent(db, queue, grouped):
    group = grouped(queue, end=Send("end", key="work"))
    group.send("a")
    assert queue.cancel(key="work") is True
    group.start()
    assert bodies(drain(queue)) == ["a"]
    db.settled()
    assert group.status().state == "ended"
    assert counts(queue) == {}


def test_a_work_whose_queue_was_purged_is_not_sent(db, make, grouped):
    queue, members = make(), make()
    group = db.group(unique("g"), queue.name, end="end")
    group.send("a")
    members.send("b", group=group.name)
    queue.purge()
    db.maintain()
    group.start()
    assert bodies(drain(members)) == ["b"]
    db.settled()
    assert group.status().state == "ended"
    assert counts(queue) == {}


def test_the_key_of_a_work_is_taken(db, queue, grouped):
    queue.send("a", key="k")
    group = grouped(queue, end=Send("end", key="k"))
    with pytest.raises(DuplicateKey):
        group.send("b")
    assert group.status() is None
    assert counts(queue) == {"ready": 1}
    other = grouped(queue, end=Send("end", key="free"))
    other.send("c")
    with pytest.raises(DuplicateKey):
        queue.send("d", key="free")


# --- names, status, retention ---------------------------------------------------------------------


def test_a_name_is_free_again_when_its_group_has_closed(db, queue, clock):
    name = unique("g")
    for n in range(3):
        group = db.group(name, queue.name, end=f"end {n}")
        group.send_many([n] * n)
        group.start()
        drain(queue, most=10)
        db.settled()
        drain(queue)
        status = group.status()
        assert (status.state, status.sent, status.done) == ("ended", n, n)
        clock.tick(1)
    group.send("open")
    assert group.status().state == "open"


def test_status_counts_what_there_is(queue, grouped, clock):
    group = grouped(queue)
    group.send_many(["a", "b", Send("c", delay=5)])
    assert gauges(group.status()) == {"held": 3}
    clock.tick(1)
    group.start()
    assert gauges(group.status()) == {"waiting": 3}
    queue.one()
    status = group.status()
    assert gauges(status) == {"waiting": 2, "leased": 1}
    assert status.created_at == clock.moment(-1)
    assert status.started_at == clock.moment()
    assert status.closed_at is None


def test_groups_lists_the_open_ones_by_name(db, queue):
    names = [unique("listed") for _ in range(3)]
    for name in names:
        queue.send(1, group=name)
    db.group(names[0]).start()
    db.group(names[1]).cancel()
    found = {status.name: status.state for status in db.groups() if status.name in names}
    assert found == {names[0]: "running", names[2]: "open"}
    every = [status.name for status in db.groups()]
    assert every == sorted(every)


def test_closed_groups_are_kept_for_a_day(db, queue, grouped, clock):
    group = grouped(queue)
    group.send("a")
    group.cancel()
    clock.tick(DAY - 1)
    db.maintain()
    assert group.status().state == "cancelled"
    clock.tick(1)
    db.maintain()
    assert group.status() is None


def test_wait_returns_when_the_group_has_closed(db, queue, grouped):
    group = grouped(queue)
    assert group.wait(timeout=5) is None
    group.send("a")
    group.start()
    waiting = db.background(lambda: group.inner.wait(30))
    drain(queue)
    db.settled()
    assert waiting.result().state == "ended"
    assert group.wait().state == "ended"


# --- errors ---------------------------------------------------------------------------------------


def test_the_queue_of_a_group_must_exist(db):
    group = db.group(unique("g"), unique("nowhere"), end="end")
    with pytest.raises(QueueNotFound):
        group.start()
    with pytest.raises(QueueNotFound):
        group.send("a")
    assert group.status() is None


@pytest.mark.few_variants
@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b", "\ud800"])
def test_broken_group_names(db, queue, name):
    with pytest.raises(InvalidName):
        db.group(name, queue.name)
    with pytest.raises(InvalidName):
        queue.send(1, group=name)


@pytest.mark.few_variants
def test_broken_group_arguments(db, queue):
    with pytest.raises(InvalidArgument):
        db.group("g", queue.name, on_dead="explode")
    for work in (Send(1, expires=5), Send(1, group="g"), Send(1, key="k", on_conflict="ignore")):
        with pytest.raises(InvalidArgument):
            db.group("g", queue.name, end=work)
        with pytest.raises(InvalidArgument):
            db.group("g", queue.name, abort=work)


def test_a_work_too_large_opens_nothing(make, grouped):
    queue = make(max_body=5)
    group = grouped(queue, end=b"123456")
    with pytest.raises(BodyTooLarge):
        group.start()
    assert group.status() is None
    assert counts(queue) == {}


def test_names_of_groups_are_bytes(db, queue):
    stem = unique("g")
    names = [stem, stem.upper(), f"{stem} ", f"{stem}á", f"{stem}a\u0301"]
    for n, name in enumerate(names):
        queue.send_many([Send(n, group=name)] * (n + 1))
    assert [db.group(name).status().sent for name in names] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("headers", [{"a": "\x00", "b": {"c": [1, "é 🐢"]}}, {}, {"x": "}"}])
def test_a_works_own_headers_survive(db, queue, grouped, headers):
    group = grouped(queue, end=Send("end", headers=headers))
    group.send("a")
    group.start()
    queue.one().ack()
    db.settled()
    [message] = drain(queue)
    group_said = message.headers["fairturn.group"]
    assert group_said["outcome"] == "ended"
    assert message.headers == {**headers, "fairturn.group": group_said}


def test_starting_again_does_not_end_it_again(db, queue, grouped):
    """A producer that repeats its start() while the workers are fast."""
    group = grouped(queue, end="end")
    group.send("a")
    assert group.start() is True
    queue.one().ack()
    db.settled()
    assert group.start() is False
    db.settled()
    assert bodies(drain(queue)) == ["end"]
    group.send("b")  # a new group under the free name
    assert group.start() is True


def test_a_member_of_two_groups_is_refused(queue, grouped):
    with pytest.raises(InvalidArgument, match="not to 'other'"):
        grouped(queue).send("a", group="other")


def test_a_work_that_became_a_member_of_another_group_is_left_alone(db, queue, grouped):
    for works in ({"end": Send("work", key="k")}, {"abort": Send("work", key="k")}):
        group, other = grouped(queue, **works), grouped(queue)
        group.send(1)
        assert other.send(2, key="k", on_conflict="replace").outcome == "replaced"
        group.start()
        queue.one().ack()
        db.settled()
        assert group.status().state == "ended"
        assert (counts(queue), other.status().held) == ({"held": 1}, 1)
        other.start()
        queue.one().ack()
        db.settled()
        assert other.status().state == "ended"
