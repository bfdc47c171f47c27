"""Round-robin over channels (semantics §4.8, DESIGN §10.12)."""

from __future__ import annotations

from collections import Counter

import pytest

from fairturn import Policy, Send
from tests.conformance.door import bodies, channels, drain


def fill(queue, **counts: int) -> None:
    queue.send_many([Send(n, channel=c) for c, count in counts.items() for n in range(count)])


def test_promise_07_channels_take_turns(queue):
    fill(queue, a=3, b=3, c=3)
    assert "".join(channels(drain(queue))) == "abcabcabc"


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 100])
def test_turns_are_the_same_for_every_batch_size(queue, n):
    fill(queue, a=4, b=2, c=5)
    assert "".join(channels(drain(queue, n))) == "abcabcacacc"


def test_10_12_batches_are_interleaved(queue):
    fill(queue, a=10, b=10)
    assert "".join(channels(queue.receive(6))) == "ababab"


def test_10_12_once_round_before_second_helpings(queue):
    fill(queue, a=100, b=1, c=1)
    assert sorted(channels(queue.receive(3))) == ["a", "b", "c"]


def test_a_full_channel_does_not_starve_a_small_one(queue):
    fill(queue, big=1000)
    assert channels(queue.receive(1)) == ["big"]
    queue.send("b", channel="small")
    assert "small" in channels(queue.receive(1) + queue.receive(1))


def test_work_conserving_the_only_channel_gets_everything(queue):
    fill(queue, only=20)
    assert len(queue.receive(20)) == 20


def test_a_new_channel_is_served_within_one_round(queue):
    fill(queue, a=50, b=50, c=50)
    queue.receive(4)
    queue.send("new", channel="bb")
    assert "bb" in channels(queue.receive(4))


def test_the_cursor_goes_on_where_it_was(queue):
    fill(queue, a=9, b=9, c=9, d=9)
    assert "".join(channels(queue.receive(3))) == "abc"
    assert "".join(channels(queue.receive(3))) == "dab"


def test_a_restarted_consumer_starts_anew(db, queue):
    fill(queue, a=9, b=9)
    assert channels(queue.receive(1)) == ["a"]
    db.forget()
    assert len(queue.receive(18)) == 17


def test_10_12_the_default_channel_comes_first(queue):
    queue.send_many([Send(1, channel="a"), Send(2), Send(3, channel="b")])
    assert channels(drain(queue)) == ["", "a", "b"]


def test_channels_go_in_byte_order(queue):
    names = ["b", "A", "a", "é", "Z", "a ", "\U0001f9f5", "ￚ", "0", "_"]
    queue.send_many([Send(1, channel=name) for name in names])
    assert channels(queue.receive(20)) == sorted(names, key=str.encode)


def test_channels_go_in_byte_order_one_by_one(queue):
    names = ["b", "A", "a", "é", "Z", "a ", "\U0001f9f5", "ￚ", "0", "_"]
    queue.send_many([Send(1, channel=name) for name in names])
    assert channels(drain(queue)) == sorted(names, key=str.encode)


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 100])
def test_10_12_weights_hold_for_every_batch_size(queue, n):
    queue.channel("a").set_policy(weight=3)
    fill(queue, a=6, b=4)
    assert "".join(channels(drain(queue, n))) == "aaabaaabbb"


def test_10_12_a_channel_keeps_its_turn_for_weight_messages(queue):
    queue.channel("b").set_policy(weight=2)
    fill(queue, a=4, b=4, c=4)
    got = "".join(channels(queue.receive(1))[0] for _ in range(8))
    assert got == "abbcabbc"


def test_the_queues_default_weight(queue):
    queue.set(policy=Policy(weight=2))
    queue.channel("a").set_policy()
    fill(queue, a=4, b=4)
    assert "".join(channels(drain(queue))) == "abbabbaa"


def test_a_turn_that_ends_early_passes_on(queue):
    queue.channel("a").set_policy(weight=5)
    fill(queue, a=2, b=3)
    assert "".join(channels(drain(queue))) == "aabbb"


@pytest.mark.parametrize("n", [1, 4, 5, 9, 13])
def test_a_batch_that_ends_within_a_turn_while_others_run_dry(queue, n):
    queue.channel("a").set_policy(weight=2)
    fill(queue, a=10, b=1, c=10)
    assert "".join(channels(drain(queue, n))) == "aabc" + "aac" * 4 + "c" * 5


def test_proportion_over_a_long_run(queue):
    for channel, weight in (("a", 1), ("b", 2), ("c", 5)):
        queue.channel(channel).set_policy(weight=weight)
    fill(queue, a=100, b=100, c=100)
    got = Counter(m.channel for _ in range(8) for m in queue.receive(10))
    assert got == {"a": 10, "b": 20, "c": 50}


def test_a_changed_weight_counts_from_the_next_turn(queue):
    fill(queue, a=10, b=10)
    assert "".join(channels(queue.receive(2))) == "ab"
    queue.channel("a").set_policy(weight=3)
    assert "".join(channels(queue.receive(4))) == "aaab"


# --- closed channels are passed by ----------------------------------------------------------------


def test_closed_channels_lose_no_turn(queue):
    queue.channel("b").set_policy(max_concurrency=1)
    fill(queue, a=5, b=5, c=5)
    assert "".join(channels(queue.receive(6))) == "abcaca"
    assert "".join(channels(queue.receive(2))) == "ca"


@pytest.mark.parametrize("closed", [10, 300])
def test_10_12_many_closed_channels_do_not_hide_an_open_one(queue, closed):
    queue.set(policy=Policy(paused=True))
    queue.channel("zz").set_policy()
    queue.send_many([Send(n, channel=f"c{n:05}") for n in range(closed)])
    queue.send("yes", channel="zz")
    assert bodies(queue.receive(1, wait=5)) == ["yes"]


def test_many_channels_at_their_limit_do_not_hide_an_open_one(queue):
    queue.set(policy=Policy(max_concurrency=1))
    queue.send_many([Send(n, channel=f"c{n % 300:05}") for n in range(600)])
    assert len(queue.receive(300)) == 300
    queue.send("yes", channel="zz")
    assert bodies(queue.receive(1, wait=5)) == ["yes"]


def test_two_queues_have_two_cursors(make):
    one, other = make(), make()
    fill(one, a=4, b=4)
    fill(other, a=4, b=4)
    assert channels(one.receive(1)) == ["a"]
    assert channels(other.receive(1)) == ["a"]
    assert channels(one.receive(1)) == ["b"]
