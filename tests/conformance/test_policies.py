"""Policies of channels: concurrency, pause, size, default and own (semantics §4.5, §3.6)."""

from __future__ import annotations

import pytest

from fairturn import ChannelFull, ChannelStats, Policy, Send
from tests.conformance.door import bodies, channels, counts, totals


def test_max_concurrency_bounds_the_leases(queue):
    queue.channel("a").set_policy(max_concurrency=2)
    queue.send_many([Send(n, channel="a") for n in range(5)])
    assert bodies(queue.receive(10)) == [0, 1]
    assert queue.receive(10) == []


def test_an_ack_frees_a_slot(queue):
    queue.channel("a").set_policy(max_concurrency=1)
    queue.send_many([Send(n, channel="a") for n in range(3)])
    for n in range(3):
        message = queue.one()
        assert message.body == n
        assert queue.receive() == []
        message.ack()


@pytest.mark.parametrize("verb", ["complete", "defer", "fail", "kill", "release"])
def test_every_verb_that_ends_a_lease_frees_its_slot(queue, verb):
    queue.channel("").set_policy(max_concurrency=1)
    queue.send_many([1, 2])
    getattr(queue.one(), verb)()
    assert len(queue.receive(5)) == 1


def test_extend_frees_no_slot(queue):
    queue.channel("").set_policy(max_concurrency=1)
    queue.send_many([1, 2])
    queue.one().extend(60)
    assert queue.receive(5) == []


def test_a_forced_cancel_frees_the_slot(queue):
    queue.channel("").set_policy(max_concurrency=1)
    queue.send_many([1, 2])
    queue.cancel(id=queue.one().id, force=True)
    assert bodies(queue.receive(5)) == [2]


def test_10_08_expired_leases_count_against_limits(db, queue, clock):
    """Without a sweep of this queue the slot stays taken; the sweep itself frees it in order."""
    queue.channel("").set_policy(max_concurrency=1)
    queue.send_many([1, 2])
    queue.one(lease=5)
    clock.tick(5)
    [one] = queue.receive(5)  # the sweep made it ready; it is given again, and only it
    assert (one.body, one.recovered) == (1, True)
    assert counts(queue) == {"ready": 1, "leased": 1}


def test_10_08_stats_show_expired_leases_as_ready(queue, clock):
    queue.channel("").set_policy(max_concurrency=1)
    queue.send_many([1, 2])
    queue.one(lease=5)
    clock.tick(5)
    assert counts(queue) == {"ready": 2}


def test_channels_have_their_own_slots(queue):
    for channel in "ab":
        queue.channel(channel).set_policy(max_concurrency=1)
    queue.send_many([Send(n, channel=c) for c in "abc" for n in range(3)])
    assert "".join(sorted(channels(queue.receive(10)))) == "abccc"


def test_10_06_the_default_policy_holds_for_each_channel(make):
    queue = make(policy=Policy(max_concurrency=1))
    queue.send_many([Send(n, channel=c) for c in "abc" for n in range(3)])
    assert "".join(channels(queue.receive(10))) == "abc"
    assert queue.receive(10) == []


def test_10_06_channels_under_the_default_policy_have_no_policy_of_their_own(make):
    queue = make(policy=Policy(max_concurrency=1))
    queue.send(1, channel="a")
    queue.receive()
    assert queue.channels() == [ChannelStats("a", 0, 0, 1, None)]


def test_an_own_policy_replaces_the_default_whole(make):
    queue = make(policy=Policy(max_concurrency=1, weight=5))
    queue.channel("a").set_policy(weight=2)
    queue.send_many([Send(n, channel="a") for n in range(3)])
    assert len(queue.receive(10)) == 3


def test_set_policy_replaces_the_own_policy_whole(queue):
    queue.channel("a").set_policy(max_concurrency=1)
    queue.channel("a").set_policy(weight=2)
    assert queue.channels()[0].policy == Policy(weight=2)
    queue.send_many([Send(n, channel="a") for n in range(3)])
    assert len(queue.receive(10)) == 3


def test_clear_policy_goes_back_to_the_default(make):
    queue = make(policy=Policy(max_concurrency=1))
    queue.channel("a").set_policy(max_concurrency=5)
    assert queue.channel("a").clear_policy() is True
    assert queue.channel("a").clear_policy() is False
    queue.send_many([Send(n, channel="a") for n in range(3)])
    assert len(queue.receive(10)) == 1


def test_clear_policy_lifts_every_limit(queue):
    queue.channel("a").set_policy(
        max_concurrency=1, rate="1/day", paused=True, ordered=True, max_size=1
    )
    queue.channel("a").clear_policy()
    queue.send_many([Send(n, channel="a") for n in range(3)])
    assert len(queue.receive(10)) == 3


def test_a_policy_may_come_before_the_first_message(queue):
    queue.channel("later").set_policy(max_concurrency=1)
    queue.send_many([Send(n, channel="later") for n in range(2)])
    assert len(queue.receive(10)) == 1


def test_10_01_a_lowered_limit_binds_the_leases_given_after_it(queue):
    queue.send_many(range(5))
    held = queue.receive(3)
    queue.channel("").set_policy(max_concurrency=2)
    assert queue.receive(5) == []
    held[0].ack()
    assert queue.receive(5) == []
    held[1].ack()
    assert bodies(queue.receive(5)) == [3]
    held[2].ack()


def test_a_raised_limit_opens_at_once(queue):
    queue.channel("").set_policy(max_concurrency=1)
    queue.send_many(range(5))
    queue.receive(5)
    queue.channel("").set_policy(max_concurrency=3)
    assert len(queue.receive(5)) == 2


def test_a_paused_channel_gives_nothing(queue):
    queue.channel("a").set_policy(paused=True)
    queue.send_many([Send(1, channel="a"), Send(2, channel="b")])
    assert bodies(queue.receive(10)) == [2]
    queue.channel("a").set_policy(paused=False)
    assert bodies(queue.receive(10)) == [1]


def test_a_default_policy_can_pause_all_channels_but_one(make):
    queue = make(policy=Policy(paused=True))
    queue.channel("vip").set_policy()
    queue.send_many([Send(1, channel="a"), Send(2, channel="vip")])
    assert bodies(queue.receive(10)) == [2]


def test_one_receive_shares_the_room_of_a_channel(queue):
    queue.channel("a").set_policy(max_concurrency=3)
    queue.send_many([Send(n, channel=c) for c in "ab" for n in range(10)])
    assert sorted(channels(queue.receive(10))) == ["a"] * 3 + ["b"] * 7


# --- max_size -----------------------------------------------------------------------------------


def test_max_size_bounds_the_unfinished(queue):
    queue.channel("a").set_policy(max_size=2)
    queue.send_many([Send(1, channel="a"), Send(2, channel="a")])
    with pytest.raises(ChannelFull) as caught:
        queue.send(3, channel="a")
    assert (caught.value.queue, caught.value.channel) == (queue.name, "a")
    assert counts(queue) == {"ready": 2}
    assert totals(queue)["sent"] == 2
    queue.send(4, channel="b")


def test_max_size_counts_leased_and_scheduled_ones(queue):
    queue.channel("").set_policy(max_size=3)
    queue.send_many([Send(1), Send(2, delay=60), Send(3)])
    queue.receive()
    with pytest.raises(ChannelFull):
        queue.send(4)


@pytest.mark.parametrize("finish", ["ack", "complete", "kill"])
def test_max_size_counts_no_finished_ones(queue, finish):
    queue.channel("").set_policy(max_size=1)
    queue.send(1)
    getattr(queue.one(), finish)()
    assert queue.send(2).created


def test_max_size_sends_all_or_nothing(queue):
    queue.channel("a").set_policy(max_size=2)
    with pytest.raises(ChannelFull):
        queue.send_many([Send(0, channel="b"), *(Send(n, channel="a") for n in range(3))])
    assert counts(queue) == {}
    queue.send_many([Send(n, channel="a") for n in range(2)])


def test_max_size_of_the_default_policy(make):
    queue = make(policy=Policy(max_size=1))
    queue.send_many([Send(1, channel="a"), Send(2, channel="b")])
    with pytest.raises(ChannelFull):
        queue.send(3, channel="a")


def test_max_size_counts_only_what_would_be_created(queue):
    queue.channel("").set_policy(max_size=1)
    first = queue.send(1, key="k")
    assert queue.send(2, key="k", on_conflict="ignore") == first
    assert queue.send(3, key="k", on_conflict="replace").outcome == "replaced"
    with pytest.raises(ChannelFull):
        queue.send(4)


def test_max_size_counts_a_dead_holders_key_as_new(queue):
    queue.send(1, key="k")
    queue.one().kill("boom")
    queue.channel("").set_policy(max_size=1)
    queue.send(2)
    with pytest.raises(ChannelFull):
        queue.send(3, key="k")
    assert queue.get(key="k").state == "dead"


def test_max_size_counts_collapsed_items_once(queue):
    queue.channel("").set_policy(max_size=1)
    sent = queue.send_many([Send(n, key="k") for n in range(5)])
    assert sent[4].created


def test_max_size_may_be_lowered_below_what_is_there(queue):
    queue.send_many(range(3))
    queue.channel("").set_policy(max_size=1)
    with pytest.raises(ChannelFull):
        queue.send(4)
    assert len(queue.receive(10)) == 3


# --- listing ------------------------------------------------------------------------------------


def test_channels_lists_messages_and_policies(queue):
    queue.send_many([Send(1, channel="b"), Send(2, channel="b", delay=60), Send(3, channel="a")])
    queue.one()
    queue.channel("c").set_policy(max_concurrency=4, rate="5/s", burst=2)
    policy = Policy(max_concurrency=4, rate="5/s", burst=2)
    assert queue.channels() == [
        ChannelStats("a", 0, 0, 1, None),
        ChannelStats("b", 1, 1, 0, None),
        ChannelStats("c", 0, 0, 0, policy),
    ]


def test_channels_without_unfinished_messages_are_not_listed(queue):
    queue.send_many([Send(n, channel=c) for n, c in enumerate("abc")])
    first, second, _ = queue.receive(3)
    first.kill("boom")
    second.complete()
    assert [c.channel for c in queue.channels()] == ["c"]


def test_channels_go_by_name_up_to_a_limit(queue):
    names = ["b", "a", "B", "é", ""]
    queue.send_many([Send(1, channel=name) for name in names])
    listed = [c.channel for c in queue.channels()]
    assert listed == sorted(names, key=str.encode)
    assert [c.channel for c in queue.channels(limit=2)] == listed[:2]


def test_channels_counts_by_stored_state(queue, clock):
    """§9.4: no due or expiry arithmetic here; stats() does that."""
    queue.send_many([Send(1, delay=5), Send(2)])
    queue.one(lease=5)
    clock.tick(10)
    assert queue.channels() == [ChannelStats("", 0, 1, 1, None)]
    assert counts(queue) == {"ready": 2}
