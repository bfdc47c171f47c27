"""Converts SQS's texts and attributes to Fairturn's bodies and headers, and back.

    sent with SQS                      stored                        seen by the library
    a JSON object or array             the same bytes, as JSON       the dict or list
    any other text                     a JSON string                 the str
    attribute a = String "x"           header "a": "x"               the str
    attribute n = Number "7"           header "n": {"type": "Number", "value": "7"}
    attribute b = Binary               header "b": {"type": "Binary", "value": base64}

    sent with the library              shown by SQS
    a str                              that text
    other JSON                         its text as stored
    bytes                              as UTF-8 text, or in base64
    headers with an attribute's name   String, or Number; others are not shown

SQS's own data of a message is stored in headers with a colon in their names, which no attribute can
have.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, cast

from fairturn.core.errors import UsageError
from fairturn.core.json_body import Json
from fairturn.sqs.characters import ILLEGAL, legal
from fairturn.sqs.contents import Attribute

SENDER = "sqs:sender"
DEDUPLICATION = "sqs:dedup"
TRACE = "sqs:trace"
# The SenderId of messages without a known sender: from the library, and from unsigned requests.
ANONYMOUS = "AIDAFAIRTURNANONYMOUS"

# Matches the names that `contents` allows.
_NAME = re.compile("(?!(?ai:aws|amazon)?\\.)(?!.*\\.\\.)[A-Za-z0-9_.\u00c0-\u017f-]{1,256}(?<!\\.)")
_TYPE = re.compile(r"(String|Number|Binary)(?:\..*)?", re.DOTALL)
_decode = json.JSONDecoder().raw_decode  # json.loads would first search for blanks


# --- bodies ---


def stored(text: str) -> Json | str:
    """Return the body to store for a text sent with SQS."""
    if text[0] in "{[":
        try:
            return Json(text)
        except UsageError:  # no valid JSON
            return text
    return text


def shown(raw: bytes, is_json: bool) -> str:
    """Return the text of a stored body; `raw` are the bytes in the database."""
    if not is_json:
        return _of_bytes(raw)
    text = raw.decode()
    if text.startswith('"'):
        plain, _ = _decode(text)
        if legal(plain):
            return plain
    # JSON can have illegal characters only inside its strings, where they can be escaped.
    return ILLEGAL.sub(_escaped, text)


def _of_bytes(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = None
    return b64encode(raw).decode() if text is None or not legal(text) else text


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


# --- attributes ---


def headers(attributes: Mapping[str, Attribute]) -> dict[str, Any]:
    """Return the headers to store for the checked attributes of a message."""
    made: dict[str, Any] = {}
    for name, attribute in attributes.items():
        kind: str = attribute["DataType"]
        if kind == "String":
            made[name] = attribute["StringValue"]
        elif kind.startswith("Binary"):
            value = b64encode(attribute["BinaryValue"]).decode()
            made[name] = {"type": kind, "value": value}
        else:
            made[name] = {"type": kind, "value": attribute["StringValue"]}
    return made


def attributes(headers: Mapping[str, Any]) -> dict[str, Attribute]:
    """Return the message attributes of stored headers, from any sender."""
    found: dict[str, Attribute] = {}
    for name, value in headers.items():
        if _NAME.fullmatch(name) is not None:
            attribute = _attribute(value)
            if attribute is not None:
                found[name] = attribute
    return found


def _attribute(value: Any) -> Attribute | None:
    if isinstance(value, str):
        if not value:
            return None  # SQS has no empty values
        return _string(value if legal(value) else json.dumps(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {"DataType": "Number", "StringValue": str(value)}
    if isinstance(value, dict):
        typed = _typed(cast("dict[str, Any]", value))
        if typed is not None:
            return typed
    return _string(json.dumps(value))


def _string(text: str) -> Attribute:
    return {"DataType": "String", "StringValue": text}


def _typed(header: dict[str, Any]) -> Attribute | None:
    """Return the attribute that was stored as this header; None for another dict."""
    kind, value = header.get("type"), header.get("value")
    if len(header) != 2 or not isinstance(kind, str) or not isinstance(value, str) or not value:
        return None
    match = _TYPE.fullmatch(kind)
    if match is None or not legal(kind) or not legal(value):
        return None
    if match[1] != "Binary":
        return {"DataType": kind, "StringValue": value}
    try:
        return {"DataType": kind, "BinaryValue": binascii.a2b_base64(value, strict_mode=True)}
    except ValueError:
        return None
