"""fairturn.Json: a body that is encoded already goes byte for byte (semantics §1.3)."""

from __future__ import annotations

import json

import pytest

from fairturn import BodyTooLarge, Json, Send
from tests.conformance.door import bodies

TEXTS = (
    "null",
    ' {"b" : 1,\n "a":2, "b":3 }\t\r\n',
    "[1.50, 1E2, -0, 12345678901234567890123]",
    '"\\u00e9 \\u0000 \\/ é \N{GRINNING FACE}"',
    '"\\ud800"',
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("given", [str, str.encode], ids=["str", "bytes"])
def test_it_comes_back_byte_for_byte(queue, text, given):
    queue.send(Json(given(text)))
    message = queue.one()
    assert message.raw == text.encode()
    assert message.body == json.loads(text)
    assert queue.get(id=message.id).raw == text.encode()


@pytest.mark.parametrize("n", [2, 1200])
def test_among_many(queue, n):
    queue.send_many([Json(f"[ {i} ]") if i % 2 else Send(Json("{ } \n")) for i in range(n)])
    found = sorted(queue.receive(n), key=lambda message: message.id)
    assert [m.raw for m in found] == [f"[ {i} ]".encode() if i % 2 else b"{ } \n" for i in range(n)]
    assert bodies(found[:2]) == [{}, [1]]


def test_in_a_batch_and_a_group(db, queue, grouped):
    with db.batch() as batch:
        batch.queue(queue.name).send(Json("[ 1 ]"))
    group = grouped(queue, end=Json("[ 2 ]"))
    group.send(Json("[ 3 ]"))
    assert [m.raw for m in queue.peek()] == [b"[ 1 ]", b"[ 2 ]", b"[ 3 ]"]
    group.cancel()


def test_its_bytes_are_what_counts(make):
    queue = make(max_body=5)
    queue.send(Json("[1,2]"))
    with pytest.raises(BodyTooLarge):
        queue.send(Json("[1, 2]"))


def test_as_a_result_and_a_memo_too(queue):
    queue.send(1)
    queue.one().defer(memo=Json("[ 1 ]"))
    message = queue.one()
    assert message.memo == [1]
    message.complete(Json('{ "a":1 }'))
    assert queue.get(id=message.id).result == {"a": 1}


def test_a_move_keeps_every_byte(make):
    queue, other = make(), make()
    queue.send(Json("[ 1 ]"))
    assert queue.move(other.name) == 1
    message = other.one()
    assert (message.raw, message.body) == (b"[ 1 ]", [1])
