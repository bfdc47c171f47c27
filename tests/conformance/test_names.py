"""Names of every kind round-trip, or are refused alike on every backend (semantics §1)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairturn import InvalidName, Send
from tests.conformance.door import channels, drain, unique

NAMES = {
    "quote": "O'Brien",
    "double quote": 'say "hi"',
    "backtick": "`back`",
    "percent": "100%s %d %% %(x)s",
    "backslash": "a\\b\\\\c\\'",
    "four bytes": "\U0001f9f5\U0001f680",
    "combining": "e\u0301",
    "right to left": "\u202eabc\u05d0",
    "sql": "'; DROP TABLE message; --",
    "comment": "/* x */ -- y # z",
    "colon": ":x :1 ::text",
    "dollar": "$1 $$ $body$",
    "braces": "{} {0} {x!r}",
    "question mark": "? ?1",
    "blank": " ",
    "trailing blank": "a ",
    "leading blank": " a",
    "tab and newline": "a\tb\nc\r",
    "control": "\x01\x1f\x7f\x80",
    "null the word": "NULL",
    "number": "0",
    "wildcards": "_%",
    "long": "x" * 255,
    "long in bytes": "é" * 127 + "x",
    "last code point": "\U0010ffff",
    "before the surrogates": "\ud7ff",
    "json": '{"a": [1, "\\u0000"]}',
}


@pytest.mark.parametrize("name", NAMES)
def test_queue_names(db, make, name):
    text = NAMES[name]
    queue = make(text)
    assert text in db.queues()
    assert queue.settings().name == text
    queue.send(1)
    message = queue.one()
    assert message.queue == text
    message.ack()
    queue.pause()
    assert db.stats().queues[text].acked == 1
    assert queue.drop() is True
    assert text not in db.queues()


@pytest.mark.parametrize("name", NAMES)
def test_channels_keys_and_types(queue, name):
    text = NAMES[name]
    queue.channel(text).set_policy(max_concurrency=1)
    id = queue.send(1, channel=text, key=text, type=text)
    queue.send(2, channel=text)
    assert queue.get(key=text).id == id
    message = queue.one(types=[text])
    assert (message.channel, message.key, message.type) == (text, text, text)
    assert queue.receive() == []
    message.fail("boom", reference=text)
    assert queue.failures(key=text)[0].reference == text
    assert [c.channel for c in queue.channels()] == [text]
    assert queue.explain(key=text).id == id
    assert queue.cancel(key=text) is True
    assert queue.channel(text).clear_policy() is True
    assert channels(drain(queue)) == [text]


BROKEN = {
    "NUL": "a\0b",
    "only NUL": "\0",
    "lone surrogate": "\ud800",
    "256 bytes": "x" * 256,
    "256 bytes of UTF-8": "é" * 128,
    "10,000 characters": "x" * 10_000,
    "bytes": b"name",
    "number": 7,
    "none": None,
}


@pytest.mark.few_variants
@pytest.mark.parametrize("broken", BROKEN)
def test_broken_queue_names(db, broken):
    with pytest.raises(InvalidName):
        db.queue(BROKEN[broken])


@pytest.mark.few_variants
@pytest.mark.parametrize("broken", BROKEN)
def test_broken_channels(queue, broken):
    with pytest.raises(InvalidName):
        queue.send(1, channel=BROKEN[broken])
    with pytest.raises(InvalidName):
        queue.channel(BROKEN[broken])
    assert queue.stats().total == 0


@pytest.mark.few_variants
@pytest.mark.parametrize("broken", [name for name in BROKEN if name != "none"])
def test_broken_keys_and_types(queue, broken):
    name = BROKEN[broken]
    for options in ({"key": name}, {"type": name}):
        with pytest.raises(InvalidName):
            queue.send(1, **options)
        with pytest.raises(InvalidName):
            queue.send_many([Send(0), Send(1, **options)])
    with pytest.raises(InvalidName):
        queue.get(key=name)
    with pytest.raises(InvalidName):
        queue.cancel(key=name)
    with pytest.raises(InvalidName):
        queue.receive(types=[name])
    assert queue.stats().total == 0


def test_empty_names_are_refused_but_for_the_default_channel(db, queue):
    with pytest.raises(InvalidName):
        db.queue("")
    for options in ({"key": ""}, {"type": ""}):
        with pytest.raises(InvalidName):
            queue.send(1, **options)
    queue.send(1, channel="")
    assert queue.one().channel == ""


@pytest.mark.parametrize(
    "names",
    [("a", "A"), ("a", "a "), ("á", "a\u0301"), ("a", "á"), ("ß", "ss"), ("x", "x\t"), ("I", "ı")],
)
def test_10_21_names_compare_byte_by_byte(db, make, names):
    prefix = unique()
    queues = [make(prefix + name) for name in names]
    for queue, name in zip(queues, names, strict=True):
        queue.send(name)
        for channel in names:
            queue.channel(channel).set_policy(max_concurrency=1)
            queue.send_many([Send(n, channel=channel) for n in range(2)])
    for queue, name in zip(queues, names, strict=True):
        assert queue.one().body == name
        assert sorted(channels(queue.receive(9))) == sorted(names)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)


@settings(
    max_examples=20,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(channel=TEXT, key=TEXT.filter(bool), type=TEXT.filter(bool), body=st.text(max_size=50))
def test_any_text_comes_back(queue, channel, key, type, body):
    body = body.encode("utf-8", "replace").decode()
    queue.send(body, channel=channel, key=key, type=type, headers={key: body})
    message = queue.one(types=[type])
    assert (message.body, message.channel, message.key) == (body, channel, key)
    assert (message.type, message.headers) == (type, {key: body})
    message.ack()


def test_nul_is_kept_in_bodies_headers_and_memos(queue):
    queue.send("a\0b", headers={"x": "\0"})
    message = queue.one()
    assert (message.body, message.headers) == ("a\0b", {"x": "\0"})
    message.defer(0, memo="\0")
    message = queue.one()
    assert message.memo == "\0"
    message.complete("\0")
    assert queue.peek()[0].result == "\0"
