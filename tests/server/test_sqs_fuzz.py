"""Whatever arrives, `parse` gives a request of the table's types or one of our refusals.

Longer: FAIRTURN_FUZZ_EXAMPLES=100000 python -m pytest --timeout 0 tests/server/test_sqs_fuzz.py
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import quote_plus

from hypothesis import given, settings
from hypothesis import strategies as st

from fairturn.server.sqs.wire import protocols
from fairturn.server.sqs.wire.action_table import ACTIONS, ListOf, MapOf, Scalar, Structure, Type
from fairturn.sqs.errors import SqsError
from tests.server.sqs_models import received

EXAMPLES = int(os.environ.get("FAIRTURN_FUZZ_EXAMPLES", "300"))
FORM = [(b"Content-Type", b"application/x-www-form-urlencoded")]
KINDS = {"string": str, "integer": int, "long": int, "boolean": bool, "blob": bytes}

actions = st.sampled_from(sorted(ACTIONS))
odd_bytes = st.binary(max_size=40)
# Lone surrogates as well: JSON can spell them.
odd_text = st.text(st.characters(codec=None, exclude_categories=[]), max_size=40)
methods = st.sampled_from(["GET", "POST", "PUT", "HEAD", ""]) | odd_text
paths = st.sampled_from([b"/", b"", b"/1/orders", b"/%", b"/%ff/%00", b"//"]) | odd_bytes
header_names = st.sampled_from([b"Content-Type", b"X-Amz-Target", b"x-amzn-trace-id"]) | odd_bytes
header_values = (
    st.sampled_from(
        [
            b"application/x-amz-json-1.0",
            b"application/x-www-form-urlencoded",
            b"AmazonSQS.SendMessage",
            b"AmazonSQS.",
            b"AmazonSQS",
        ]
    )
    | odd_bytes
)
headers = st.lists(st.tuples(header_names, header_values), max_size=5)


def names(type: Type) -> set[str]:
    """Every word of the table, in JSON's and in Query's spelling."""
    match type:
        case Scalar():
            return set()
        case ListOf():
            return names(type.item)
        case MapOf():
            return names(type.value) | {type.key_name, type.value_name}
        case Structure():
            found = set(type.members)
            for member in type.members.values():
                found |= {member.query} | names(member.type)
            return found


words = sorted(set().union(*(names(action.input) for action in ACTIONS.values())))
keys = st.sampled_from(words) | st.text(max_size=5)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | odd_text
    | st.sampled_from(["YQ==", "String", "1", ""]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=25,
)
dotted = st.lists(
    st.sampled_from([*words, "1", "2", "0", "007", "", "-1", "x"]), min_size=1, max_size=10
).map(".".join)
parameters = st.lists(st.tuples(dotted, st.sampled_from(["", "1", "x", "YQ=="])), max_size=12)


def judged(
    method: str, path: bytes, query: bytes, given: list[tuple[bytes, bytes]], body: bytes
) -> None:
    headers = protocols.joined([(name.lower(), value) for name, value in given])
    protocol = protocols.protocol_of(headers)
    try:
        request = protocols.parse(method, path, query, headers, body)
    except SqsError as refused:
        assert_refused(protocol, refused)
        return
    assert request.protocol == protocol
    assert_typed(ACTIONS[request.action].input, request.members)


def assert_refused(protocol: protocols.ProtocolName, refused: SqsError) -> None:
    response = protocols.render_error(protocol, refused, "id")
    assert 400 <= response.status < 500
    if refused.status != 404:
        assert received(protocol, "SendMessage", response)["Error"]["Code"] == refused.code


def assert_typed(type: Type, value: Any) -> None:
    match type:
        case Scalar():
            assert value.__class__ is KINDS[type.kind]
            if type.kind == "string" and not type.free:
                value.encode()
        case ListOf():
            assert value.__class__ is list
            for item in value:
                assert_typed(type.item, item)
        case MapOf():
            assert value.__class__ is dict
            for key, item in value.items():
                key.encode()
                assert_typed(type.value, item)
        case Structure():
            assert value.__class__ is dict
            assert {
                name for name, member in type.members.items() if member.required_on_wire
            } <= set(value)
            for name, item in value.items():
                assert_typed(type.members[name].type, item)


@settings(max_examples=EXAMPLES)
@given(methods, paths, odd_bytes, headers, st.binary(max_size=200))
def test_arbitrary_requests(
    method: str, path: bytes, query: bytes, given: list[tuple[bytes, bytes]], body: bytes
) -> None:
    judged(method, path, query, given, body)


@settings(max_examples=EXAMPLES)
@given(actions, st.dictionaries(keys, json_values, max_size=6), st.booleans())
def test_arbitrary_members_in_json(action: str, members: dict[str, Any], named: bool) -> None:
    if named:
        members = {"QueueUrl": "u", "QueueName": "n", "MessageBody": "b"} | members
    target = [
        (b"Content-Type", b"application/x-amz-json-1.0"),
        (b"X-Amz-Target", b"AmazonSQS." + action.encode()),
    ]
    judged("POST", b"/", b"", target, json.dumps(members).encode())


@settings(max_examples=EXAMPLES)
@given(actions, parameters, st.sampled_from([b"/", b"/1/orders"]), st.booleans())
def test_arbitrary_parameters_in_query(
    action: str, given: list[tuple[str, str]], path: bytes, get: bool
) -> None:
    encoded = f"Action={action}&QueueUrl=u&MessageBody=b&" + "&".join(
        f"{quote_plus(name)}={quote_plus(value)}" for name, value in given
    )
    if get:
        judged("GET", path, encoded.encode(), [], b"")
    else:
        judged("POST", path, b"", FORM, encoded.encode())


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=60), st.binary(max_size=60), st.booleans())
def test_arbitrary_bytes_around_a_good_request(before: bytes, after: bytes, in_json: bool) -> None:
    if in_json:
        target = [
            (b"Content-Type", b"application/x-amz-json-1.0"),
            (b"X-Amz-Target", b"AmazonSQS.SendMessage"),
        ]
        body = before + b'{"QueueUrl":"u","MessageBody":"' + after + b'"}'
        judged("POST", b"/", b"", target, body)
    else:
        body = b"Action=SendMessage&" + before + b"&MessageBody=" + after
        judged("POST", b"/", b"", FORM, body)
