"""Queues: create, set, settings, pause, purge, drop (semantics §11)."""

from __future__ import annotations

import pytest

import fairturn
from fairturn import Backoff, Policy, QueueNotFound
from tests.conformance.door import bodies, counts, totals, unique


def test_create_says_whether_it_created(db, make):
    queue = make()
    assert queue.create() is False
    assert queue.name in db.queues()


def test_create_on_an_existing_queue_changes_nothing(make):
    queue = make(lease=7, max_attempts=2)
    assert queue.create(lease=99, max_attempts=9) is False
    settings = queue.settings()
    assert (settings.lease, settings.max_attempts) == (7, 2)


def test_defaults(queue, clock):
    settings = queue.settings()
    assert settings == fairturn.Settings(name=queue.name, created_at=clock.moment())
    assert (settings.lease, settings.max_attempts, settings.retention) == (30, 5, 0)
    assert settings.max_body == 16 * 1024 * 1024
    assert settings.dead_retention is None
    assert settings.policy == Policy()


def test_every_setting_comes_back_from_create(make):
    policy = Policy(3, "100/min", 5, 7, True, True, 11)
    given = {
        "lease": 1.5,
        "max_attempts": 0,
        "backoff": Backoff(2, 3, 60),
        "retention": 10,
        "dead_retention": 20,
        "failure_retention": 30,
        "dead_letter": "the-dead",
        "policy": policy,
        "max_body": 1000,
        "expires": 40,
    }
    settings = make(**given).settings()
    assert {name: getattr(settings, name) for name in given} == given


def test_every_setting_comes_back_from_set(queue):
    given = {
        "lease": 2.25,
        "max_attempts": 9,
        "backoff": Backoff(1, 1, 1),
        "retention": 11,
        "dead_retention": 21,
        "failure_retention": 31,
        "dead_letter": "other",
        "policy": Policy(max_concurrency=2),
        "max_body": 5,
        "expires": 41,
    }
    queue.set(**given)
    settings = queue.settings()
    assert {name: getattr(settings, name) for name in given} == given


def test_set_changes_only_what_is_named(make):
    queue = make(lease=7, max_attempts=3, retention=5, policy=Policy(weight=4))
    queue.set(lease=8)
    settings = queue.settings()
    assert (settings.lease, settings.max_attempts, settings.retention) == (8, 3, 5)
    assert settings.policy == Policy(weight=4)


def test_set_none_where_none_is_a_value(make):
    queue = make(dead_retention=5, expires=6, dead_letter="x", backoff=3)
    queue.set(dead_retention=None, expires=None, dead_letter=None, backoff=None)
    settings = queue.settings()
    assert (settings.dead_retention, settings.expires) == (None, None)
    assert (settings.dead_letter, settings.backoff) == (None, None)


def test_set_replaces_the_default_policy_whole(make):
    queue = make(policy=Policy(max_concurrency=2, weight=3))
    queue.set(policy=Policy(ordered=True))
    assert queue.settings().policy == Policy(ordered=True)


def test_backoff_as_a_number_is_constant(make):
    queue = make(backoff=5)
    assert queue.settings().backoff == Backoff(5, 1, 5)


def test_queues_are_listed_by_name(db, make):
    prefix = unique()
    names = [f"{prefix}{c}" for c in ("b", "a", "B", "é", "_")]
    for name in names:
        make(name)
    assert [name for name in db.queues() if name.startswith(prefix)] == sorted(
        names, key=str.encode
    )


def test_pause_gives_nothing_and_resume_everything(queue):
    queue.send(1)
    queue.pause()
    assert queue.settings().paused is True
    received = queue.receive()
    assert received == []
    assert received.retry_after is None
    queue.resume()
    assert bodies(queue.receive()) == [1]


def test_pause_lets_leases_go_on(queue):
    queue.send(1)
    message = queue.one()
    queue.pause()
    message.extend(60)
    message.ack()
    assert queue.stats().total == 0


def test_paused_queues_still_take_messages(queue):
    queue.pause()
    queue.send(1)
    assert counts(queue) == {"ready": 1}


def test_10_20_purge_removes_everything_at_once(queue, clock):
    queue.send_many([1, 2, 3])
    queue.send(4, delay=60)
    queue.send(5, key="k")
    leased = queue.receive(2)
    queue.purge()
    assert counts(queue) == {}
    assert queue.receive(10) == []
    for message in leased:
        with pytest.raises(fairturn.LeaseLost):
            message.ack()
    clock.tick(3600)
    assert queue.receive(10) == []


def test_10_20_purge_frees_keys_and_keeps_policies_and_totals(queue):
    queue.send(1, key="k")
    queue.channel("a").set_policy(max_concurrency=1)
    queue.purge()
    assert queue.send(2, key="k").created
    queue.send(3, channel="a")
    queue.send(4, channel="a")
    assert sorted(bodies(queue.receive(10))) == [2, 3]
    assert totals(queue)["sent"] == 4


def test_purge_keeps_the_failure_log_unless_reset(queue):
    queue.send(1)
    queue.one().fail("boom")
    queue.purge()
    assert [failure.error for failure in queue.failures()] == ["boom"]
    queue.purge(reset=True)
    assert queue.failures() == []


def test_purge_with_reset_zeroes_the_totals(queue):
    queue.send(1)
    queue.one().ack()
    queue.purge(reset=True)
    assert totals(queue) == {}
    queue.send(2)
    assert totals(queue) == {"sent": 1}


def test_purge_leaves_other_queues_alone(make):
    one, other = make(), make()
    one.send(1)
    other.send(2)
    one.purge()
    assert bodies(other.receive(10)) == [2]


def test_ids_never_come_back_after_a_purge(queue):
    before = queue.send(1)
    queue.purge()
    assert queue.send(2) > before


def test_drop_says_whether_there_was_one(db, make):
    queue = make()
    assert queue.drop() is True
    assert queue.drop() is False
    assert queue.name not in db.queues()


def test_a_dropped_queue_is_unknown(make):
    queue = make()
    queue.send(1)
    queue.drop()
    with pytest.raises(QueueNotFound) as caught:
        queue.send(2)
    assert caught.value.queue == queue.name


def test_a_queue_made_again_is_new(make):
    queue = make(lease=5)
    queue.send(1, key="k")
    queue.channel("").set_policy(paused=True)
    queue.drop()
    assert queue.create() is True
    assert queue.settings().lease == 30
    assert totals(queue) == {}
    assert queue.failures() == []
    assert queue.channels() == []
    queue.send(2, key="k")
    assert bodies(queue.receive(10)) == [2]


def test_leases_do_not_survive_a_drop(make):
    queue = make()
    queue.send(1)
    message = queue.one()
    queue.drop()
    with pytest.raises(QueueNotFound):
        message.ack()
    queue.create()
    with pytest.raises(fairturn.LeaseLost):
        message.ack()


UNKNOWN = {
    "set": lambda q: q.set(lease=1),
    "settings": lambda q: q.settings(),
    "set_limit": lambda q: q.set_limit(max_concurrency=1),
    "pause": lambda q: q.pause(),
    "resume": lambda q: q.resume(),
    "purge": lambda q: q.purge(),
    "channels": lambda q: q.channels(),
    "send": lambda q: q.send(1),
    "send with a key": lambda q: q.send(1, key="k", on_conflict="replace"),
    "send_many": lambda q: q.send_many([1, 2]),
    "receive": lambda q: q.receive(),
    "cancel": lambda q: q.cancel(id=1),
    "cancel by key": lambda q: q.cancel(key="k"),
    "reschedule": lambda q: q.reschedule(id=1, delay=1),
    "redrive": lambda q: q.redrive(),
    "discard": lambda q: q.discard(),
    "get": lambda q: q.get(id=1),
    "peek": lambda q: q.peek(),
    "stats": lambda q: q.stats(),
    "explain": lambda q: q.explain(1),
    "failures": lambda q: q.failures(),
    "set_policy": lambda q: q.channel("c").set_policy(weight=2),
    "clear_policy": lambda q: q.channel("c").clear_policy(),
}


@pytest.mark.parametrize("operation", UNKNOWN)
def test_an_unknown_queue_is_an_error_everywhere(db, operation):
    queue = db.queue(unique("nobody"))
    with pytest.raises(QueueNotFound) as caught:
        UNKNOWN[operation](queue)
    assert caught.value.queue == queue.name
    assert queue.name in str(caught.value)
    assert "create" in str(caught.value)


@pytest.mark.parametrize("verb", ["ack", "complete", "defer", "fail", "kill", "extend", "release"])
def test_a_verb_on_an_unknown_queue_is_an_error(make, verb):
    queue = make()
    queue.send(1)
    message = queue.one()
    queue.drop()
    with pytest.raises(QueueNotFound):
        getattr(message, verb)()
    with pytest.raises(QueueNotFound):
        getattr(queue, verb)([message])
