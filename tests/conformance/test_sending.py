"""Sending: bodies, times, attributes, batches (semantics §3)."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone

import pytest

from fairturn import BodyTooLarge, InvalidArgument, Send
from tests.conformance.door import bodies, counts, ids, totals

JSON_BODIES = [
    None,
    True,
    False,
    0,
    -1,
    2**62,
    10**40,
    1.5,
    1e308,
    "",
    "text",
    "O'Brien; DROP TABLE message; --",
    '\0 \x01 \ufffd \U0001f9f5 %s :x $1 {} \\ "',
    [],
    {},
    [1, [2, [3, [4]]]],
    {"a": {"b": [None, True, 1.5, "é"]}, "": ""},
]
BYTE_BODIES = [
    b"",
    b"\0",
    b"\x00\xff\xfe'\"\\%",
    bytes(range(256)),
    b"\xed\xa0\x80",
    b"x" * 100_000,
]


@pytest.mark.parametrize("body", JSON_BODIES, ids=range(len(JSON_BODIES)))
def test_a_json_body_comes_back_as_it_was(queue, body):
    queue.send(body)
    message = queue.one()
    assert message.body == body
    assert type(message.body) is type(body)
    assert json.loads(message.raw) == body


@pytest.mark.parametrize("body", BYTE_BODIES, ids=range(len(BYTE_BODIES)))
def test_a_bytes_body_comes_back_as_it_was(queue, body):
    queue.send(body)
    message = queue.one()
    assert message.body == body
    assert type(message.body) is bytes
    assert message.raw == body


def test_bytearray_and_memoryview_are_bytes(queue):
    queue.send_many([bytearray(b"a\0"), memoryview(b"b\xff")])
    assert bodies(queue.receive(2)) == [b"a\0", b"b\xff"]


def test_bytes_that_look_like_json_stay_bytes(queue):
    queue.send_many([b"[1]", [1]])
    assert bodies(queue.receive(2)) == [b"[1]", [1]]


def test_a_body_of_a_megabyte(queue):
    body = bytes(range(256)) * 4096
    queue.send(body)
    assert queue.one().raw == body


def test_attributes_come_back(queue, clock):
    headers = {"traceparent": "00-1'\"\\", "n": [1, None], "\U0001f9f5": "\0"}
    id = queue.send(
        {"a": 1},
        channel="tenant 7",
        priority=-5,
        key="the key",
        version=3,
        type="welcome",
        headers=headers,
        at=clock.moment(-10),
    )
    message = queue.one()
    assert (message.id, message.queue, message.channel) == (id, queue.name, "tenant 7")
    assert (message.priority, message.key, message.version) == (-5, "the key", 3)
    assert (message.type, message.headers, message.memo) == ("welcome", headers, None)
    assert (message.due_at, message.created_at) == (clock.moment(-10), clock.moment())
    assert (message.attempts, message.deliveries, message.recovered) == (1, 1, False)
    assert message.lease_until == clock.moment(30)


def test_attributes_that_are_not_given(queue, clock):
    queue.send(1)
    message = queue.one()
    assert (message.channel, message.priority, message.key) == ("", 0, None)
    assert (message.version, message.type, message.headers) == (0, None, {})
    assert message.due_at == message.created_at == clock.moment()


def test_send_returns_the_id(queue):
    sent = queue.send(1)
    assert sent.created
    assert sent.outcome == "sent"
    assert sent.id == sent == queue.one().id


def test_ids_ascend(queue):
    sent = [queue.send(n) for n in range(5)]
    assert sent == sorted(set(sent))


def test_due_exactly_now_is_ready(queue, clock):
    queue.send(1, at=clock.moment())
    assert counts(queue) == {"ready": 1}
    assert queue.peek()[0].state == "ready"


def test_due_a_microsecond_from_now_is_scheduled(queue, clock):
    queue.send(1, at=clock.moment() + timedelta(microseconds=1))
    assert counts(queue) == {"scheduled": 1}
    received = queue.receive()
    assert received == []
    assert received.retry_after == pytest.approx(1e-6)
    clock.us += 1
    assert bodies(queue.receive()) == [1]


@pytest.mark.parametrize("delay", [1, 0.5, timedelta(milliseconds=1), 86_400 * 365])
def test_a_delayed_message_waits_exactly_its_delay(queue, clock, delay):
    queue.send(1, delay=delay)
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    clock.tick(seconds)
    clock.us -= 1
    assert queue.receive() == []
    clock.us += 1
    assert bodies(queue.receive()) == [1]


def test_delay_0_is_now(queue):
    queue.send(1, delay=0)
    assert counts(queue) == {"ready": 1}


def test_at_takes_datetimes_of_any_zone(queue, clock):
    rome = timezone(timedelta(hours=2))
    queue.send(1, at=clock.moment(60).astimezone(rome))
    assert queue.peek()[0].due_at == clock.moment(60)


def test_at_takes_seconds_since_the_epoch(queue, clock):
    queue.send(1, at=clock.seconds + 60)
    queue.send(2, at=math.floor(clock.seconds) + 61)
    assert [m.due_at for m in queue.peek()] == [clock.moment(60), clock.moment(61)]


def test_at_may_be_in_the_past(queue):
    queue.send(1, at=datetime(1970, 1, 1, tzinfo=UTC))
    queue.send(2, at=0)
    queue.send(3, at=datetime(1999, 12, 31, tzinfo=UTC))
    assert bodies(queue.receive(3)) == [1, 2, 3]


def test_at_may_be_in_the_year_9999(queue):
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    queue.send(1, at=last)
    assert queue.peek()[0].due_at == last
    assert queue.receive() == []


def test_send_many_keeps_the_order(queue):
    sent = queue.send_many(list(range(50)))
    assert sent == sorted(sent)
    received = queue.receive(50)
    assert ids(received) == sent
    assert bodies(received) == list(range(50))


def test_send_many_takes_every_attribute(queue, clock):
    queue.send_many(
        [
            Send({"n": 1}, channel="a", priority=2, type="t", headers={"h": 1}, version=4),
            Send(b"raw", delay=60, key="k", lease=7, max_attempts=1, expires=90),
            "plain",
        ]
    )
    one, two, three = queue.peek()
    assert (one.body, one.channel, one.priority, one.type) == ({"n": 1}, "a", 2, "t")
    assert (one.headers, one.version) == ({"h": 1}, 4)
    assert (two.body, two.key, two.due_at) == (b"raw", "k", clock.moment(60))
    assert (two.max_attempts, two.expires_at) == (1, clock.moment(90))
    assert three.body == "plain"


def test_send_many_of_nothing(queue):
    assert queue.send_many([]) == []
    assert totals(queue) == {}


def test_send_many_takes_any_iterable(queue):
    assert len(queue.send_many(n for n in range(3))) == 3


def test_send_many_of_thousands_over_many_channels(queue):
    sent = queue.send_many([Send(n, channel=f"c{n % 7}") for n in range(2500)])
    assert len(set(sent)) == 2500
    assert sent == sorted(sent)
    assert queue.stats().ready == 2500
    assert totals(queue) == {"sent": 2500}


def test_send_many_mixes_due_times(queue):
    queue.send_many([Send(1), Send(2, delay=5), Send(3, at=0)])
    assert counts(queue) == {"ready": 2, "scheduled": 1}


def test_send_many_is_all_or_nothing(queue):
    queue.set(max_body=10)
    with pytest.raises(BodyTooLarge):
        queue.send_many([1, 2, "x" * 100, 3])
    assert queue.stats().total == 0
    assert totals(queue) == {}


def test_a_body_of_exactly_max_body_fits(queue):
    queue.set(max_body=10)
    queue.send(b"0123456789")
    with pytest.raises(BodyTooLarge) as caught:
        queue.send(b"0123456789+")
    assert (caught.value.size, caught.value.limit) == (11, 10)
    assert queue.stats().total == 1


def test_max_body_counts_the_encoded_bytes(queue):
    queue.set(max_body=10)
    queue.send("é" * 4)  # two quotes and four times two bytes
    with pytest.raises(BodyTooLarge):
        queue.send("é" * 5)


def test_max_body_0_takes_empty_bodies_only(make):
    queue = make(max_body=0)
    queue.send(b"")
    with pytest.raises(BodyTooLarge):
        queue.send(b"x")


def test_a_message_has_its_own_lease(queue, clock):
    queue.send(1, lease=99)
    assert queue.one().lease_until == clock.moment(99)


def test_a_message_has_its_own_max_attempts(queue):
    queue.send(1, max_attempts=1)
    queue.one().fail("boom")
    assert counts(queue) == {"dead": 1}


def test_max_attempts_0_is_unlimited(queue, clock):
    queue.send(1, max_attempts=0)
    for attempt in range(1, 12):
        message = queue.one()
        assert message.attempts == attempt
        message.fail("again")
    assert counts(queue) == {"ready": 1}


def test_priorities_of_both_ends(queue):
    edge = 2**31 - 2
    queue.send_many([Send("low", priority=-edge), Send("high", priority=edge), Send("mid")])
    received = queue.receive(3)
    assert bodies(received) == ["high", "mid", "low"]
    assert [m.priority for m in received] == [edge, 0, -edge]


def test_channel_handle_sends_to_its_channel(queue):
    queue.channel("tenant").send("hi", priority=3)
    message = queue.one()
    assert (message.channel, message.priority, message.body) == ("tenant", 3, "hi")


@pytest.mark.parametrize("expires", [0, 5])
def test_expires_is_counted_from_now(queue, clock, expires):
    queue.send(1, expires=expires)
    clock.tick(expires)
    assert queue.receive() == []


def test_a_send_is_counted_once_per_message(queue):
    queue.send(1)
    queue.send_many([2, 3])
    with pytest.raises(InvalidArgument):
        queue.send(4, delay=-1)
    assert totals(queue) == {"sent": 3}
