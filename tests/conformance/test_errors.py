"""Every bad input has its own typed error, and nothing is lost or half done (promise 10)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

import fairturn
from fairturn import InvalidArgument, InvalidBody, InvalidName, Send, UsageError
from fairturn.core.limits import HEADERS_BYTES

pytestmark = pytest.mark.few_variants

NAIVE = datetime(2030, 1, 1)
LOOP: list[object] = []
LOOP.append(LOOP)

BAD_SENDS = {
    "body: a set": ({1, 2}, {}, InvalidBody),
    "body: an object": (object(), {}, InvalidBody),
    "body: NaN": (float("nan"), {}, InvalidBody),
    "body: infinity in a list": ([float("inf")], {}, InvalidBody),
    "body: a lone surrogate": ("\ud800", {}, InvalidBody),
    "body: a loop": (LOOP, {}, InvalidBody),
    "body: bytes in JSON": ({"a": b"x"}, {}, InvalidBody),
    "headers: a list": (1, {"headers": ["x"]}, InvalidBody),
    "headers: not JSON": (1, {"headers": {"x": {1}}}, InvalidBody),
    "headers: too large": (1, {"headers": {"x": "y" * HEADERS_BYTES}}, InvalidArgument),
    "priority: text": (1, {"priority": "5"}, InvalidArgument),
    "priority: a fraction": (1, {"priority": 1.5}, InvalidArgument),
    "priority: 0.0": (1, {"priority": 0.0}, InvalidArgument),
    "priority: none": (1, {"priority": None}, InvalidArgument),
    "priority: a bool": (1, {"priority": True}, InvalidArgument),
    "priority: too high": (1, {"priority": 2**31 - 1}, InvalidArgument),
    "priority: too low": (1, {"priority": -(2**31 - 1)}, InvalidArgument),
    "delay: negative": (1, {"delay": -0.001}, InvalidArgument),
    "delay: negative timedelta": (1, {"delay": timedelta(seconds=-1)}, InvalidArgument),
    "delay: text": (1, {"delay": "5"}, InvalidArgument),
    "delay: NaN": (1, {"delay": float("nan")}, InvalidArgument),
    "delay: infinite": (1, {"delay": float("inf")}, InvalidArgument),
    "delay: a bool": (1, {"delay": True}, InvalidArgument),
    "delay: two hundred years": (1, {"delay": 200 * 366 * 86_400}, InvalidArgument),
    "at: naive": (1, {"at": NAIVE}, InvalidArgument),
    "at: text": (1, {"at": "2030-01-01"}, InvalidArgument),
    "at: NaN": (1, {"at": float("nan")}, InvalidArgument),
    "at: the year 20000": (1, {"at": 5.7e11}, InvalidArgument),
    "at and delay": (1, {"at": 5, "delay": 5}, InvalidArgument),
    "on_conflict: unknown": (1, {"key": "k", "on_conflict": "upsert"}, InvalidArgument),
    "on_conflict: none": (1, {"key": "k", "on_conflict": None}, InvalidArgument),
    "version: negative": (1, {"version": -1}, InvalidArgument),
    "version: too large": (1, {"version": 2**31}, InvalidArgument),
    "version: text": (1, {"version": "1"}, InvalidArgument),
    "lease: negative": (1, {"lease": -1}, InvalidArgument),
    "max_attempts: negative": (1, {"max_attempts": -1}, InvalidArgument),
    "max_attempts: a fraction": (1, {"max_attempts": 1.5}, InvalidArgument),
    "expires: negative": (1, {"expires": -1}, InvalidArgument),
    "key: empty": (1, {"key": ""}, InvalidName),
    "type: a number": (1, {"type": 5}, InvalidName),
    "channel: none": (1, {"channel": None}, InvalidName),
}


@pytest.mark.parametrize("case", BAD_SENDS)
def test_a_bad_send(queue, case):
    body, options, error = BAD_SENDS[case]
    with pytest.raises(error) as caught:
        queue.send(body, **options)
    assert isinstance(caught.value, UsageError)
    assert str(caught.value)
    with pytest.raises(error):
        queue.send_many([Send("good"), Send(body, **options)])
    assert queue.stats().total == 0
    assert queue.stats().sent == 0


BAD_CALLS = {
    "receive 0": lambda q: q.receive(0),
    "receive -1": lambda q: q.receive(-1),
    "receive too many": lambda q: q.receive(10_001),
    "receive text": lambda q: q.receive("1"),
    "receive with a negative lease": lambda q: q.receive(lease=-1),
    "receive with a negative wait": lambda q: q.receive(wait=-1),
    "receive with types as one text": lambda q: q.receive(types="abc"),
    "receive with a text version": lambda q: q.receive(version="1"),
    "receive with max_bytes 0": lambda q: q.receive(max_bytes=0),
    "receive with a text priority": lambda q: q.receive(min_priority="1"),
    "cancel without id or key": lambda q: q.cancel(),
    "cancel with both": lambda q: q.cancel(id=1, key="k"),
    "cancel with a text id": lambda q: q.cancel(id="1"),
    "get without id or key": lambda q: q.get(),
    "get a negative id": lambda q: q.get(id=-1),
    "get a huge id": lambda q: q.get(id=2**63),
    "explain nothing": lambda q: q.explain(),
    "reschedule to nothing": lambda q: q.reschedule(id=1),
    "reschedule to both": lambda q: q.reschedule(id=1, at=5, delay=5),
    "reschedule to a bad priority": lambda q: q.reschedule(id=1, priority=2**40),
    "redrive 0": lambda q: q.redrive(limit=0),
    "redrive with a negative delay": lambda q: q.redrive(delay=-1),
    "discard the ready": lambda q: q.discard(state="ready"),
    "discard 0": lambda q: q.discard(limit=0),
    "peek 0": lambda q: q.peek(0),
    "peek an unknown state": lambda q: q.peek(state="asleep"),
    "peek after text": lambda q: q.peek(after="x"),
    "failures 0": lambda q: q.failures(0),
    "failures of a text id": lambda q: q.failures(id="x"),
    "channels 0": lambda q: q.channels(0),
    "set an unknown setting": lambda q: q.set(colour="red"),
    "set lease to none": lambda q: q.set(lease=None),
    "set a negative retention": lambda q: q.set(retention=-1),
    "set max_attempts to text": lambda q: q.set(max_attempts="5"),
    "set a bad backoff": lambda q: q.set(backoff=fairturn.Backoff(1, 0, 1)),
    "set a fractional backoff": lambda q: q.set(backoff=fairturn.Backoff(1, 1.5, 1)),
    "policy: concurrency 0": lambda q: q.channel("c").set_policy(max_concurrency=0),
    "policy: burst 0": lambda q: q.channel("c").set_policy(burst=0),
    "policy: weight 0": lambda q: q.channel("c").set_policy(weight=0),
    "policy: weight too large": lambda q: q.channel("c").set_policy(weight=1001),
    "policy: max_size 0": lambda q: q.channel("c").set_policy(max_size=0),
    "policy: bad rate": lambda q: q.channel("c").set_policy(rate="often"),
    "policy: rate 0": lambda q: q.channel("c").set_policy(rate="0/s"),
    "policy: rate a number": lambda q: q.channel("c").set_policy(rate=5),
    "policy: rate beyond a microsecond": lambda q: q.channel("c").set_policy(rate="2000000/s"),
    "limit: concurrency 0": lambda q: q.set_limit(max_concurrency=0),
    "limit: bad rate": lambda q: q.set_limit(rate="5"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_bad_call(queue, case):
    queue.send(1)
    before = queue.settings()
    with pytest.raises(InvalidArgument):
        BAD_CALLS[case](queue)
    assert queue.settings() == before
    assert [c.policy for c in queue.channels()] == [None]
    assert queue.peek()[0].state == "ready"


BAD_VERBS = {
    "complete with a set": (lambda m: m.complete({1}), InvalidBody),
    "complete too large": (lambda m: m.complete("x" * 2**21), InvalidArgument),
    "defer by a negative delay": (lambda m: m.defer(-1), InvalidArgument),
    "defer with a set as memo": (lambda m: m.defer(memo={1}), InvalidBody),
    "defer with a huge memo": (lambda m: m.defer(memo="x" * 2**21), InvalidArgument),
    "fail with a negative delay": (lambda m: m.fail("x", delay=-1), InvalidArgument),
    "fail with details of bytes": (lambda m: m.fail("x", details=b"x"), InvalidArgument),
    "fail with details of a set": (lambda m: m.fail("x", details={1}), InvalidBody),
    "fail with a NUL in its reference": (lambda m: m.fail("x", reference="\0"), InvalidName),
    "kill with details of bytes": (lambda m: m.kill("x", details=b"x"), InvalidArgument),
    "extend by a negative lease": (lambda m: m.extend(-1), InvalidArgument),
}


@pytest.mark.parametrize("case", BAD_VERBS)
def test_a_bad_verb_leaves_the_lease_alone(queue, case):
    call, error = BAD_VERBS[case]
    queue.send(1)
    message = queue.one()
    before = queue.get(id=message.id)._row
    with pytest.raises(error):
        call(message)
    assert queue.get(id=message.id)._row == before
    message.ack()


def test_bad_database_calls(db):
    with pytest.raises(InvalidArgument):
        db.maintain(0)
    with pytest.raises(InvalidArgument):
        db.permit(ttl=-1)
    with pytest.raises(InvalidName):
        db.permit("\0")
    with pytest.raises(InvalidName):
        db.trace("")


@pytest.mark.parametrize("text", ["Robert'); --", "%s", "{}", "$1", "\\"])
def test_error_texts_survive_hostile_names(db, queue, text):
    with pytest.raises(fairturn.QueueNotFound, match="no queue is called"):
        db.queue(f"nobody {text}").send(1)
    queue.send(1, key=text)
    with pytest.raises(fairturn.DuplicateKey) as caught:
        queue.send(2, key=text)
    assert caught.value.keys == [text]
    queue.channel(text).set_policy(max_size=1)
    queue.send(3, channel=text)
    with pytest.raises(fairturn.ChannelFull) as full:
        queue.send(4, channel=text)
    assert full.value.channel == text


def test_an_error_in_a_call_leaves_the_door_usable(queue):
    queue.send(1, key="k")
    for _ in range(15):  # more often than a pool has connections
        with pytest.raises(fairturn.DuplicateKey):
            queue.send(2, key="k")
    message = queue.one()
    message.ack()
    for _ in range(15):
        with pytest.raises(fairturn.LeaseLost):
            message.ack()
    assert queue.send(3, key="k").created
