"""SQS's texts and attributes are what they were after a stay in the core, and so are its bodies."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairturn import Json
from fairturn.core import check
from fairturn.core.values import decode
from fairturn.sqs import bodies, contents
from fairturn.sqs.characters import ILLEGAL, legal
from fairturn.sqs.errors import SqsError

LEGAL = st.text(min_size=1).map(lambda text: ILLEGAL.sub("", text)).filter(bool)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
NAMES = st.text("ab.Z_-é7ſ", min_size=1, max_size=8)


def in_the_core(body: Any) -> tuple[bytes, bool]:
    """What a database would hold of it."""
    raw, is_json = check.payload(body, "the body")
    return raw, bool(is_json)


# --- bodies ---


@given(LEGAL | JSON.map(json.dumps).map(lambda text: ILLEGAL.sub("", text)))
def test_a_text_comes_back_as_it_was_sent(text: str) -> None:
    assert bodies.shown(*in_the_core(bodies.stored(text))) == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1,  2]", [1, 2]),
        ('{"a": 1, "a": 2}', {"a": 2}),
        (' {"a": 1}', ' {"a": 1}'),  # a text, since it must come back with its blank
        ("{a: 1}", "{a: 1}"),
        ("[NaN]", "[NaN]"),
        ("{}x", "{}x"),
        ("[" * 100_000, "[" * 100_000),
        ("7", "7"),
        ("null", "null"),
        ('"quoted"', '"quoted"'),
        ("hello", "hello"),
    ],
)
def test_a_worker_sees_objects_and_lists_and_any_other_text_as_a_str(text: str, seen: Any) -> None:
    raw, is_json = in_the_core(bodies.stored(text))
    assert decode(raw, is_json) == seen
    assert bodies.shown(raw, is_json) == text


def test_json_is_stored_byte_for_byte() -> None:
    stored = bodies.stored('{"b" : 1.50,\n"a":"\\u00e9"}')
    assert isinstance(stored, Json)
    assert in_the_core(stored)[0] == b'{"b" : 1.50,\n"a":"\\u00e9"}'


@given(st.text(st.characters(exclude_categories=["Cs"])).filter(legal))
def test_a_str_of_the_library_is_shown_as_its_text(text: str) -> None:
    assert bodies.shown(*in_the_core(text)) == text


@given(JSON)
def test_any_json_of_the_library_is_shown_in_legal_characters_and_means_the_same(
    value: Any,
) -> None:
    shown = bodies.shown(*in_the_core(value))
    assert legal(shown)
    if not isinstance(value, str) or not legal(value):
        assert json.loads(shown) == value


@given(st.binary())
def test_bytes_are_shown_as_text_where_they_are_one_else_in_base64(raw: bytes) -> None:
    shown = bodies.shown(*in_the_core(raw))
    assert legal(shown)
    assert raw in (shown.encode(), b64decode(shown) if shown.encode() != raw else raw)


def test_bytes_that_look_like_a_json_string_are_no_json_string() -> None:
    assert bodies.shown(b'"a"', False) == '"a"'


# --- attributes ---

STRINGS = st.builds(
    lambda kind, value: {"DataType": kind, "StringValue": value},
    st.sampled_from(["String", "String.uuid", "String."]),
    LEGAL,
)
NUMBERS = st.builds(
    lambda kind, value: {"DataType": kind, "StringValue": str(value)},
    st.sampled_from(["Number", "Number.int"]),
    st.integers(-(10**30), 10**30),
)
BINARIES = st.builds(
    lambda kind, value: {"DataType": kind, "BinaryValue": value},
    st.sampled_from(["Binary", "Binary.gif"]),
    st.binary(min_size=1),
)


def _sound(attributes: dict[str, Any]) -> bool:
    try:
        contents.attributes(attributes)
    except SqsError:
        return False
    return True


@given(st.dictionaries(NAMES, STRINGS | NUMBERS | BINARIES, max_size=10).filter(_sound))
def test_attributes_come_back_as_they_were_sent(attributes: dict[str, Any]) -> None:
    headers = json.loads(json.dumps(bodies.headers(attributes)))
    assert bodies.attributes(headers) == attributes


def test_a_string_attribute_is_a_plain_header_for_the_library() -> None:
    attributes = {
        "colour": {"DataType": "String", "StringValue": "red"},
        "size": {"DataType": "Number", "StringValue": "7"},
        "seal": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    assert bodies.headers(attributes) == {
        "colour": "red",
        "size": {"type": "Number", "value": "7"},
        "seal": {"type": "Binary", "value": "AP8="},
    }


@pytest.mark.parametrize(
    ("header", "attribute"),
    [
        ("red", ("String", "red")),
        (7, ("Number", "7")),
        (1.5, ("Number", "1.5")),
        (True, ("String", "true")),
        (None, ("String", "null")),
        ([1], ("String", "[1]")),
        ({"a": 1}, ("String", '{"a": 1}')),
        ({"type": "Colour", "value": "x"}, ("String", '{"type": "Colour", "value": "x"}')),
        ({"type": "Binary", "value": "?"}, ("String", '{"type": "Binary", "value": "?"}')),
        ({"type": "Number", "value": 7}, ("String", '{"type": "Number", "value": 7}')),
        ("a\0b", ("String", '"a\\u0000b"')),
    ],
)
def test_headers_of_the_library_are_shown(header: Any, attribute: tuple[str, str]) -> None:
    kind, value = attribute
    assert bodies.attributes({"x": header}) == {"x": {"DataType": kind, "StringValue": value}}


@given(
    st.dictionaries(
        st.text(max_size=9), JSON | st.fixed_dictionaries({"type": LEGAL, "value": LEGAL})
    )
)
def test_whatever_the_headers_are_only_sound_attributes_are_shown(headers: dict[str, Any]) -> None:
    for name, attribute in bodies.attributes(headers).items():
        if attribute["DataType"] == "Number":  # a library's number may have more digits than 38
            attribute = {"DataType": "Number", "StringValue": "1"}
        if len(attribute["DataType"]) <= 256:
            contents.attributes({name: attribute})


@given(st.text(max_size=12) | NAMES | st.sampled_from(["AWS.x", "amazon.x", "aws", "Amazonas.x"]))
def test_names_that_no_attribute_can_have_are_not_shown(name: str) -> None:
    sound = _sound({name: {"DataType": "String", "StringValue": "x"}})
    assert (name in bodies.attributes({name: "x"})) == sound


def test_what_sqs_keeps_with_a_message_is_no_attribute() -> None:
    ours = {bodies.SENDER: "AIDAX", bodies.DEDUPLICATION: "1", bodies.TRACE: "Root=1"}
    assert bodies.attributes(ours) == {}
