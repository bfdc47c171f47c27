"""Unique keys (semantics §3.2-3.5, DESIGN §10.15)."""

from __future__ import annotations

import pytest

from fairturn import DuplicateKey, MessageLeased, Send
from fairturn.backends import base
from fairturn.backends.keys import KEY_OUTCOMES
from fairturn.core.values import STATE_CODES
from fairturn.operations.sends import OUTCOMES
from tests.conformance.door import bodies, counts, drain, totals, unique

CONFLICTS = ("error", "ignore", "replace")


def _waiting_ready(queue):
    return queue.send("old", key="k")


def _waiting_scheduled(queue):
    return queue.send("old", key="k", delay=60)


def _leased(queue):
    sent = queue.send("old", key="k")
    queue.one()
    return sent


def _done(queue):
    sent = queue.send("old", key="k")
    queue.one().complete("result")
    return sent


def _dead(queue):
    sent = queue.send("old", key="k")
    queue.one().kill("boom")
    return sent


def _held(queue):
    return queue.send("old", key="k", group=unique())


def _nobody(queue):
    return 0


TAKEN = [_waiting_ready, _waiting_scheduled, _leased, _done]
HOLDERS = {
    None: _nobody,
    "h": _held,
    "s": _waiting_scheduled,
    "r": _waiting_ready,
    "l": _leased,
    "d": _done,
    "x": _dead,
}


@pytest.mark.parametrize("together", [False, True])  # MySQL sends one message by another way
@pytest.mark.parametrize("on_conflict", CONFLICTS)
@pytest.mark.parametrize("state", HOLDERS)
def test_a_key_has_the_outcome_of_the_table(queue, state, on_conflict, together):
    assert HOLDERS.keys() == KEY_OUTCOMES.keys()
    holder = HOLDERS[state](queue)
    assert state is None or STATE_CODES[queue.get(id=holder).state] == state
    outcome = KEY_OUTCOMES[state][on_conflict[0]]
    sends = [Send("new", key="k", on_conflict=on_conflict)]
    sends += [Send("other", key="other")] if together else []
    if outcome == base.CONFLICT:
        with pytest.raises(DuplicateKey):
            queue.send_many(sends)
        assert queue.get(key="k").id == holder
        return
    sent = queue.send_many(sends)[0]
    assert sent.outcome == OUTCOMES[outcome]
    assert (sent == holder) is (outcome != base.SENT)
    changed = outcome in (base.SENT, base.REPLACED)
    assert queue.get(key="k").body == ("new" if changed else "old")


@pytest.mark.parametrize("on_conflict", CONFLICTS)
def test_a_free_key_is_taken(queue, on_conflict):
    sent = queue.send(1, key="k", on_conflict=on_conflict)
    assert sent.outcome == "sent"
    assert queue.one().key == "k"


@pytest.mark.parametrize("prepare", TAKEN)
def test_10_15_ignore_gives_the_holders_id(queue, prepare):
    holder = prepare(queue)
    before = queue.get(key="k")._row
    sent = queue.send("new", key="k", on_conflict="ignore")
    assert (sent, sent.outcome, sent.created) == (holder, "duplicate", False)
    assert queue.get(key="k")._row == before
    assert queue.stats().sent == 1


@pytest.mark.parametrize("prepare", TAKEN)
def test_10_15_error_raises_and_changes_nothing(queue, prepare):
    prepare(queue)
    before = queue.get(key="k")._row
    with pytest.raises(DuplicateKey) as caught:
        queue.send("new", key="k")
    assert caught.value.keys == ["k"]
    assert caught.value.queue == queue.name
    assert queue.get(key="k")._row == before
    assert queue.stats().sent == 1


@pytest.mark.parametrize("prepare", [_waiting_ready, _waiting_scheduled, _done])
def test_10_15_replace_replaces_in_place(queue, clock, prepare):
    holder = prepare(queue)
    deliveries = queue.get(key="k").deliveries
    clock.tick(1)
    sent = queue.send(
        "new", key="k", on_conflict="replace", channel="c", priority=4, version=2, type="t"
    )
    assert (sent, sent.outcome, sent.created) == (holder, "replaced", False)
    message = queue.get(key="k")
    assert (message.body, message.channel, message.priority) == ("new", "c", 4)
    assert (message.version, message.type, message.state) == (2, "t", "ready")
    assert (message.attempts, message.deliveries) == (0, deliveries)
    assert (message.result, message.error, message.finished_at) == (None, None, None)
    assert message.due_at == clock.moment()
    assert queue.stats().sent == 1
    assert bodies(drain(queue)) == ["new"]


def test_10_15_replace_of_a_leased_message_is_refused(queue):
    holder = _leased(queue)
    before = queue.get(key="k")._row
    sent = queue.send("new", key="k", on_conflict="replace")
    assert (sent, sent.outcome, sent.created) == (holder, "refused", False)
    assert queue.get(key="k")._row == before


@pytest.mark.parametrize("on_conflict", CONFLICTS)
def test_10_15_the_key_of_a_dead_message_is_free(queue, on_conflict):
    dead = _dead(queue)
    sent = queue.send("new", key="k", on_conflict=on_conflict)
    assert sent.outcome == "sent"
    assert sent != dead
    assert queue.get(id=dead).key is None
    assert queue.get(id=dead).state == "dead"
    assert queue.get(key="k").id == sent
    assert counts(queue) == {"ready": 1, "dead": 1}


def test_replace_keeps_created_at_of_a_waiting_message(queue, clock):
    queue.send(1, key="k")
    clock.tick(5)
    queue.send(2, key="k", on_conflict="replace")
    assert queue.get(key="k").created_at == clock.moment(-5)


def test_replace_of_a_done_message_is_a_new_run(queue, clock):
    _done(queue)
    clock.tick(5)
    queue.send("new", key="k", on_conflict="replace")
    message = queue.one()
    assert message.created_at == clock.moment()
    assert (message.attempts, message.deliveries) == (1, 2)


def test_replace_evaluates_the_state_anew(queue):
    queue.send(1, key="k")
    queue.send(2, key="k", delay=60, on_conflict="replace")
    assert counts(queue) == {"scheduled": 1}
    queue.send(3, key="k", on_conflict="replace")
    assert counts(queue) == {"ready": 1}


def test_replace_clears_attempts_memo_and_error(queue):
    queue.send(1, key="k")
    queue.one().defer(0, memo="saved")
    queue.one().fail("boom", delay=60)
    before = queue.get(key="k")
    assert (before.attempts, before.memo, before.error) == (1, "saved", "boom")
    queue.send(2, key="k", on_conflict="replace")
    message = queue.get(key="k")
    assert (message.attempts, message.memo, message.error) == (0, None, None)
    assert message.deliveries == 2


def test_replace_clears_recovered(queue, clock):
    queue.send(1, key="k")
    queue.receive()
    clock.tick(31)
    queue.one().fail("boom", delay=1)
    queue.send(2, key="k", on_conflict="replace")
    assert queue.one().recovered is False


def test_replace_sets_lease_attempts_and_expiry(queue, clock):
    queue.send(1, key="k", lease=5, max_attempts=9, expires=100)
    queue.send(2, key="k", on_conflict="replace", lease=7, max_attempts=3)
    message = queue.get(key="k")
    assert (message.max_attempts, message.expires_at) == (3, None)
    assert queue.one().lease_until == clock.moment(7)


def test_a_key_is_free_after_ack(queue):
    queue.send(1, key="k")
    queue.one().ack()
    assert queue.send(2, key="k").created


def test_a_key_is_free_after_cancel(queue):
    queue.send(1, key="k")
    queue.cancel(key="k")
    assert queue.send(2, key="k").created


def test_a_key_is_taken_until_retention_ends(db, make, clock):
    queue = make(retention=10)
    queue.send(1, key="k")
    queue.one().ack()
    with pytest.raises(DuplicateKey):
        queue.send(2, key="k")
    clock.tick(10)
    db.maintain()
    assert queue.send(2, key="k").created


def test_a_deferred_message_keeps_its_key(queue):
    queue.send(1, key="k")
    queue.one().defer(60)
    with pytest.raises(DuplicateKey):
        queue.send(2, key="k")


def test_keys_belong_to_one_queue(make):
    one, other = make(), make()
    assert one.send(1, key="k").created
    assert other.send(2, key="k").created


def test_keys_span_channels(queue):
    queue.send(1, key="k", channel="a")
    with pytest.raises(DuplicateKey):
        queue.send(2, key="k", channel="b")


def test_no_key_never_conflicts(queue):
    queue.send_many([Send(1), Send(2, on_conflict="replace"), Send(3, on_conflict="ignore")])
    assert counts(queue) == {"ready": 3}


def test_10_15_same_keys_in_one_call_collapse_to_the_last(queue):
    sent = queue.send_many(
        [
            Send(1, key="k", on_conflict="ignore"),
            Send(2, key="other"),
            Send(3, key="k", on_conflict="ignore"),
            Send(4, key="k", on_conflict="ignore"),
        ]
    )
    assert [s.outcome for s in sent] == ["collapsed", "sent", "collapsed", "sent"]
    assert sent[0] == sent[2] == sent[3] != sent[1]
    assert sorted(bodies(drain(queue))) == [2, 4]
    assert queue.stats().sent == 2


def test_same_keys_in_one_call_collapse_with_error_too(queue):
    sent = queue.send_many([Send(1, key="k"), Send(2, key="k")])
    assert [s.outcome for s in sent] == ["collapsed", "sent"]
    assert bodies(drain(queue)) == [2]


def test_collapsed_items_get_the_outcome_id_of_a_replace(queue):
    holder = queue.send(0, key="k")
    sent = queue.send_many([Send(n, key="k", on_conflict="replace") for n in (1, 2)])
    assert list(sent) == [holder, holder]
    assert [s.outcome for s in sent] == ["collapsed", "replaced"]
    assert bodies(drain(queue)) == [2]


def test_a_conflict_in_any_item_sends_nothing(queue):
    queue.send(0, key="b")
    with pytest.raises(DuplicateKey) as caught:
        queue.send_many([Send(1, key="a"), Send(2, key="b"), Send(3), Send(4, key="c")])
    assert caught.value.keys == ["b"]
    assert bodies(drain(queue)) == [0]
    assert totals(queue)["sent"] == 1


def test_a_conflict_names_every_key(queue):
    queue.send_many([Send(0, key="a"), Send(0, key="b")])
    with pytest.raises(DuplicateKey) as caught:
        queue.send_many([Send(1, key="b"), Send(2, key="c"), Send(3, key="a")])
    assert caught.value.keys == ["b", "a"]


def test_a_conflict_undoes_the_replaces_of_its_call(queue):
    queue.send("old", key="r")
    queue.send("old", key="e")
    dead = queue.send("dead", key="x", priority=9)
    queue.one().kill("boom")
    with pytest.raises(DuplicateKey):
        queue.send_many(
            [
                Send("new", key="r", on_conflict="replace"),
                Send("new", key="x"),
                Send("new", key="e"),
            ]
        )
    assert queue.get(key="r").body == "old"
    assert queue.get(key="x").id == dead


def test_mixed_outcomes_in_one_call(queue):
    first = queue.send_many([Send(0, key="i"), Send(0, key="r"), Send(0, key="l", priority=9)])
    queue.one()
    sent = queue.send_many(
        [
            Send(1, key="n"),
            Send(2, key="i", on_conflict="ignore"),
            Send(3, key="r", on_conflict="replace"),
            Send(4, key="l", on_conflict="replace"),
            Send(5),
        ]
    )
    assert [s.outcome for s in sent] == ["sent", "duplicate", "replaced", "refused", "sent"]
    assert list(sent[1:4]) == list(first)
    assert sent[0] < sent[4]
    assert queue.stats().sent == 5


def test_cancel_by_key(queue):
    queue.send(1, key="k")
    assert queue.cancel(key="k") is True
    assert queue.cancel(key="k") is False
    assert counts(queue) == {}


def test_cancel_a_leased_message_by_key_needs_force(queue):
    _leased(queue)
    with pytest.raises(MessageLeased):
        queue.cancel(key="k")
    assert counts(queue) == {"leased": 1}
    assert queue.cancel(key="k", force=True) is True
    assert counts(queue) == {}


def test_reschedule_by_key(queue, clock):
    queue.send(1, key="k")
    assert queue.reschedule(key="k", delay=60) is True
    assert queue.get(key="k").due_at == clock.moment(60)


def test_long_keys_differ_in_their_last_byte(queue):
    base = "k" * 254
    queue.send(1, key=base + "a")
    assert queue.send(2, key=base + "b").created


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "A"), ("a", "a "), ("a", " a"), ("é", "e\u0301"), ("ß", "ss"), ("1", "01"), ("a", "ａ")],
)
def test_10_21_keys_compare_byte_by_byte(queue, one, other):
    queue.send(1, key=one)
    assert queue.send(2, key=other).created
    assert queue.get(key=one).body == 1
    assert queue.get(key=other).body == 2
