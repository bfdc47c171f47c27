"""Batches: many queues, one transaction (semantics §16)."""

from __future__ import annotations

import pytest

from fairturn import ChannelFull, DuplicateKey, InvalidArgument, InvalidName, QueueNotFound, Send
from tests.conformance.door import bodies, counts, drain, totals, unique


def test_sends_to_many_queues(db, make):
    queues = [make() for _ in range(4)]
    with db.batch() as batch:
        pending = [batch.queue(queues[n % 4].name).send(n) for n in range(12)]
    sent = [p.sent for p in pending]
    assert len(set(sent)) == 12
    for n, queue in enumerate(queues):
        assert [m.body for m in queue.peek()] == [n, n + 4, n + 8]
        assert [m.id for m in queue.peek()] == sent[n::4]
        assert totals(queue) == {"sent": 3}


def test_nothing_happens_before_the_block_ends(db, queue):
    with db.batch() as batch:
        pending = batch.queue(queue.name).send("a")
        with pytest.raises(RuntimeError):
            pending.sent  # noqa: B018
    assert pending.sent.created
    assert counts(queue) == {"ready": 1}


def test_an_exception_in_the_block_sends_nothing(db, queue):
    def fail() -> None:
        with db.batch() as batch:
            batch.queue(queue.name).send("a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert counts(queue) == {}


def test_policies_come_before_sends(db, queue):
    queue.channel("full").set_policy(max_size=1)
    queue.channel("kept").set_policy(weight=3)
    with db.batch() as batch:
        inside = batch.queue(queue.name)
        inside.send("a", channel="full")
        inside.send("b", channel="full")
        inside.channel("full").clear_policy()
        inside.channel("new").set_policy(max_concurrency=1, weight=2)
    policies = {channel.channel: channel.policy for channel in queue.channels()}
    assert policies["full"] is None
    assert (policies["new"].max_concurrency, policies["new"].weight) == (1, 2)
    assert policies["kept"].weight == 3
    assert counts(queue) == {"ready": 2}


def test_the_last_word_on_a_policy_counts(db, queue):
    with db.batch() as batch:
        channel = batch.queue(queue.name).channel("c")
        channel.set_policy(weight=2)
        channel.clear_policy()
        channel.set_policy(weight=4)
        other = batch.queue(queue.name).channel("d")
        other.set_policy(weight=2)
        other.clear_policy()
    assert [(c.channel, c.policy.weight) for c in queue.channels()] == [("c", 4)]


def test_outcomes_come_in_the_order_of_the_sends(db, make):
    first, second = make(), make()
    taken = first.send(0, key="taken")
    with db.batch() as batch:
        one, two = batch.queue(first.name), batch.queue(second.name)
        late = two.send("z", key="z")
        duplicate = one.send(1, key="taken", on_conflict="ignore")
        collapsed = two.send("a", key="k", on_conflict="replace")
        replaced = one.send(2, key="taken2", on_conflict="replace")
        last = two.send("b", key="k", on_conflict="replace")
    assert (duplicate.sent, duplicate.sent.outcome) == (taken, "duplicate")
    assert (collapsed.sent, collapsed.sent.outcome) == (last.sent, "collapsed")
    assert (late.sent.outcome, replaced.sent.outcome, last.sent.outcome) == ("sent",) * 3
    assert bodies(drain(second)) == ["z", "b"]


def test_a_conflict_undoes_everything(db, make):
    queues = [make() for _ in range(3)]
    queues[1].send("old", key="k")

    def fail() -> None:
        with db.batch() as batch:
            for queue in queues:
                batch.queue(queue.name).send("new", key="k")
                batch.queue(queue.name).channel("c").set_policy(weight=9)

    with pytest.raises(DuplicateKey):
        fail()
    assert [counts(queue) for queue in queues] == [{}, {"ready": 1}, {}]
    assert [queue.channels()[1:] for queue in queues] == [[], [], []]
    assert totals(queues[0]) == totals(queues[2]) == {}


def test_a_full_channel_undoes_everything(db, make):
    queues = [make() for _ in range(3)]
    queues[2].channel("c").set_policy(max_size=1)

    def fail() -> None:
        with db.batch() as batch:
            for queue in queues:
                for n in range(2):
                    batch.queue(queue.name).channel("c").send(n)

    with pytest.raises(ChannelFull):
        fail()
    assert [counts(queue) for queue in queues] == [{}, {}, {}]


@pytest.mark.parametrize("what", ["send", "set", "clear"])
@pytest.mark.parametrize("prefix", ["a", "z"])  # before and after the queues that exist
def test_an_unknown_queue_undoes_everything(db, queue, prefix, what):
    def fail() -> None:
        with db.batch() as batch:
            batch.queue(queue.name).send("a")
            batch.queue(queue.name).channel("c").set_policy(weight=2)
            nowhere = batch.queue(unique(prefix)).channel("c")
            {"send": lambda: nowhere.send(1), "clear": nowhere.clear_policy}.get(
                what, lambda: nowhere.set_policy(weight=2)
            )()

    with pytest.raises(QueueNotFound):
        fail()
    assert counts(queue) == {}
    assert queue.channels() == []


def test_an_empty_batch(db):
    with db.batch():
        pass


def test_a_batch_may_fill_groups(db, make):
    first, second = make(), make()
    name = unique("g")
    with db.batch() as batch:
        batch.queue(second.name).send("b", group=name)
        batch.queue(first.name).send("a", group=name)
        batch.queue(first.name).send("c")
    status = db.group(name).status()
    assert (status.state, status.sent, status.held) == ("open", 2, 2)
    assert bodies(drain(first)) == ["c"]
    db.group(name).start()
    assert bodies(drain(first) + drain(second)) == ["a", "b"]
    db.settled()
    assert db.group(name).status().state == "ended"


def test_many_sends(db, make):
    queues = [make() for _ in range(3)]
    with db.batch() as batch:
        pending = [
            batch.queue(queues[n % 3].name).send(n, channel=f"c{n % 7}", key=f"k{n}")
            for n in range(600)
        ]
    assert len({p.sent for p in pending}) == 600
    assert [counts(queue) for queue in queues] == [{"ready": 200}] * 3


@pytest.mark.few_variants
def test_broken_batches(db, queue):
    with pytest.raises(InvalidName), db.batch() as batch:
        batch.queue("")
    with pytest.raises(InvalidName), db.batch() as batch:
        batch.queue(queue.name).send(1, key="")
    with pytest.raises(InvalidArgument), db.batch() as batch:
        batch.queue(queue.name).send(1, delay=-1)
    with pytest.raises(InvalidArgument), db.batch() as batch:
        batch.queue(queue.name).channel("c").set_policy(weight=0)
    assert counts(queue) == {}


@pytest.mark.yours
def test_a_batch_is_part_of_your_transaction(db, make):
    first, second = make(), make()
    with db.rolled_back() as connection:
        with db.inside(db.inner.batch().using(connection)) as batch:
            batch.queue(first.name).send("a")
            batch.queue(second.name).channel("c").set_policy(weight=2)
        assert db.wait(first.inner.using(connection).stats()).ready == 1
    assert counts(first) == {}
    assert second.channels() == []


def test_a_group_that_loses_a_member_and_gets_another_stays_open(db, make, grouped):
    first, second = sorted((make(), make()), key=lambda queue: queue.name)  # sent in this order
    group = grouped(first, end="end")
    group.send(1, key="k")
    group.start()
    with db.batch() as batch:
        batch.queue(first.name).send(2, key="k", on_conflict="replace")
        batch.queue(second.name).send(3, group=group.name)
    db.settled()
    assert group.status().state == "running"
    assert bodies(drain(first)) == [2]
    second.one().ack()
    db.settled()
    assert group.status().state == "ended"
    assert bodies(drain(first)) == ["end"]


def test_the_group_of_a_replaced_member_closes_after_the_last_send(db, make, grouped):
    first, second = sorted((make(), make()), key=lambda queue: queue.name)
    group = grouped(second, abort=Send("abort", key="k"))
    group.send(0)
    first.send(1, key="k", group=group.name)
    group.start()
    second.one().ack()
    with db.batch() as batch:
        batch.queue(first.name).send(2, key="k", on_conflict="replace")
        late = batch.queue(second.name).send(3, key="k", on_conflict="replace")
    db.settled()
    assert late.sent.outcome == "replaced"  # the held work, which is none any more
    assert group.status().state == "ended"
    assert bodies(drain(second)) == [3]
