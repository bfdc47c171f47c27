"""Messages that SQS refuses, what they weigh, and which attributes a receiver is shown."""

from __future__ import annotations

from typing import Any

import pytest

from fairturn.sqs import contents
from tests.server.sqs_asking import refusal


def text(value: Any = "v", kind: str = "String") -> dict[str, Any]:
    return {"DataType": kind, "StringValue": value}


@pytest.mark.parametrize("body", ["a", "\t\n\r ", "\x7f\x80", "\ud7ff\ue000\ufffd", "😀\U0010ffff"])
def test_bodies(body: str) -> None:
    contents.body(body)


@pytest.mark.parametrize("char", ["\x00", "\x08", "\x0b", "\x1f", "\ud800", "\ufffe"])
def test_bodies_with_characters_that_cannot_be_sent(char: str) -> None:
    error = refusal(contents.body, f"fine{char}fine")
    assert error.code == "InvalidMessageContents"
    assert error.message == (
        "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | "
        "#xE000 to #xFFFD | #x10000 to #x10FFFF"
    )


def test_an_empty_body() -> None:
    error = refusal(contents.body, "")
    assert error.code == "MissingParameter"
    assert error.message == "The request must contain the parameter MessageBody."


def test_what_counts_to_the_size() -> None:
    assert contents.size("ü€", {}) == 5
    attributes = {
        "ab": text("cde"),  # 2 + 6 + 3
        "x": {"DataType": "Binary.z", "BinaryValue": b"1234"},  # 1 + 8 + 4
    }
    assert contents.size("1", attributes) == 1 + 11 + 13


def test_a_size_can_be_told_of_what_is_refused_later() -> None:
    assert contents.size("\ud800", {"\u017f": {}}) == 3 + 2


def test_a_message_that_is_too_large() -> None:
    contents.fits(1024, 1024)
    error = refusal(contents.fits, 1025, 1024)
    assert error.code == "InvalidParameterValue"
    assert error.message == (
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    )


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "Àſ", "x" * 256, "aws", "awsome", "amazonas.x"])
def test_names_of_attributes(name: str) -> None:
    contents.attributes({name: text()})


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("", "must contain non-empty message attribute name"),
        ("x" * 257, "Length of message attribute name"),
        ("AWS.x", "reserved for internal use"),
        ("aws.x", "reserved for internal use"),
        ("Amazon.x", "reserved for internal use"),
        (".a", "start or end with a dot"),
        ("a.", "start or end with a dot"),
        ("a..b", "two in a row"),
        ("a b", "'#x20'"),
        ("a\n", "'#xA'"),
        ("a€", "'#x20AC'"),
        ("a\u0180", "'#x180'"),
        ("a\u00bf", "'#xBF'"),
    ],
)
def test_names_that_attributes_cannot_have(name: str, part: str) -> None:
    error = refusal(contents.attributes, {"fine": text(), name: text()})
    assert error.code == "InvalidParameterValue"
    assert part in error.message


def test_ten_attributes_and_no_more() -> None:
    contents.attributes({f"a{n}": text() for n in range(10)})
    error = refusal(contents.attributes, {f"a{n}": text() for n in range(12)})
    assert error.message == "Number of message attributes [12] exceeds the allowed maximum [10]."


@pytest.mark.parametrize(
    "attribute",
    [
        text("v", "String.custom"),
        text("1", "Number"),
        text("-1.5e10", "Number.float"),
        text(".5", "Number"),
        text("5.", "Number"),
        text("9" * 38, "Number"),
        {"DataType": "Binary", "BinaryValue": b"\x00"},
        {"DataType": "Binary", "BinaryValue": b"\x00", "StringValue": ""},
        {"DataType": "String", "StringValue": "v", "BinaryValue": b""},
    ],
)
def test_values_of_attributes(attribute: dict[str, Any]) -> None:
    contents.attributes({"a": attribute})


@pytest.mark.parametrize(
    ("attribute", "code", "message"),
    [
        (
            {"StringValue": "v"},
            "InvalidParameterValue",
            "The message attribute 'a' must contain non-empty message attribute type.",
        ),
        (
            text("v", ""),
            "InvalidParameterValue",
            "The message attribute 'a' must contain non-empty message attribute type.",
        ),
        (
            text("v", "string"),
            "InvalidParameterValue",
            (
                "The message attribute 'a' has an invalid message attribute type, the set of "
                "supported type prefixes is Binary, Number, and String."
            ),
        ),
        (
            text(""),
            "InvalidParameterValue",
            (
                "The message attribute 'a' must contain non-empty message attribute value for "
                "message attribute type 'String'."
            ),
        ),
        (
            {"DataType": "Binary.x", "BinaryValue": b""},
            "InvalidParameterValue",
            (
                "The message attribute 'a' must contain non-empty message attribute value for "
                "message attribute type 'Binary.x'."
            ),
        ),
        (
            {"DataType": "Binary", "StringValue": "v"},
            "InvalidParameterValue",
            "The message attribute 'a' with type 'Binary' must use field 'Binary'.",
        ),
        (
            {"DataType": "Number", "BinaryValue": b"1"},
            "InvalidParameterValue",
            "The message attribute 'a' with type 'Number' must use field 'String'.",
        ),
        (
            {"DataType": "String", "StringListValues": ["v"]},
            "AWS.SimpleQueueService.UnsupportedOperation",
            "Message attribute list values are not supported: attribute 'a'.",
        ),
        (
            text("v\x00"),
            "InvalidMessageContents",
            (
                "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
                "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
            ),
        ),
    ],
)
def test_values_that_attributes_cannot_have(
    attribute: dict[str, Any], code: str, message: str
) -> None:
    error = refusal(contents.attributes, {"a": attribute})
    assert (error.code, error.message) == (code, message)


@pytest.mark.parametrize("value", ["x", "1x", "--1", "1e", ".", "٣", "9" * 39, "NaN", "9" * 10**6])
def test_numbers_that_are_none(value: str) -> None:
    error = refusal(contents.attributes, {"a": text(value, "Number")})
    assert "to a number" in error.message


def test_the_trace_header_is_the_only_system_attribute() -> None:
    contents.system_attributes({"AWSTraceHeader": text("Root=1")})
    for given in ({"SenderId": text()}, {"AWSTraceHeader": text("1", "Number")}):
        assert refusal(contents.system_attributes, given).code == "InvalidParameterValue"


GIVEN = {"Hello": text("There"), "General": text("Kenobi"), "Help.Me": text("Me")}


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([], set()),
        (["All"], set(GIVEN)),
        (["ALL"], set(GIVEN)),
        ([".*"], set(GIVEN)),
        (["*"], set(GIVEN)),
        (["Foo", "All"], set(GIVEN)),
        (["Foo", "Help"], set()),
        (["Hello", "General"], {"Hello", "General"}),
        (["Foo", "Hello"], {"Hello"}),
        (["Hel.*"], {"Hello", "Help.Me"}),
        (["Help.*", "General"], {"Help.Me", "General"}),
        (["Help.M.*"], {"Help.Me"}),
        (["AWS.", "..foo", "a b", "", "hello", "Hel*", "all"], set()),
    ],
)
def test_which_attributes_are_shown(names: list[str], shown: set[str]) -> None:
    assert contents.chosen(GIVEN, names) == {name: GIVEN[name] for name in shown}
