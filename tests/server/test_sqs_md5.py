"""Digests that AWS itself gave for these."""

from __future__ import annotations

from typing import Any

import pytest

from fairturn.sqs import md5


def text(value: str, kind: str = "String") -> dict[str, Any]:
    return {"DataType": kind, "StringValue": value}


TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"


@pytest.mark.parametrize(
    ("attributes", "digest"),
    [
        ({"timestamp": text("1493147359900", "Number")}, "235c5c510d26fb653d073faed50ae77c"),
        ({"AWSTraceHeader": text(TRACE)}, "5ae4d5d7636402d80f4eb6d213245a88"),
        ({"Foo": text("Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
        ({"Hello": text("There")}, "a311262e065454b75da111d535b8dacd"),
        (
            {"Hello": text("There"), "Help.Me": text("Me"), "General": text("Kenobi")},
            "4c360f3fdafd970e05fae2f149d997f5",
        ),
        (
            {
                "attr1": {
                    "DataType": "Binary",
                    "BinaryValue": b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c"
                    b"-2d2482211f6489da-01",
                }
            },
            "8cbe4db156db8a94db8b801b7addb984",
        ),
    ],
)
def test_of_attributes(attributes: dict[str, Any], digest: str) -> None:
    assert md5.of_attributes(attributes) == digest


def test_the_order_they_are_given_in_does_not_matter() -> None:
    one = {"b": text("1"), "a": text("2")}
    other = {"a": text("2"), "b": text("1")}
    assert md5.of_attributes(one) == md5.of_attributes(other)


def test_a_type_of_your_own_counts() -> None:
    assert md5.of_attributes({"a": text("1", "Number")}) != md5.of_attributes(
        {"a": text("1", "Number.int")}
    )


def test_without_attributes_there_is_none() -> None:
    assert md5.of_attributes({}) is None


def test_of_a_body() -> None:
    assert md5.of_body("test") == "098f6bcd4621d373cade4e832627b4f6"
    assert md5.of_body("msg") == "6e2baaf3b97dbeef01c0043275f9a0e7"
