"""SQS's texts and attributes as Fairlead's bodies and headers, and back.

    sent with SQS                      stored                        seen by the library
    a JSON object or array             these very bytes, as JSON     the dict or list
    any other text                     a JSON string                 the str
    attribute a = String "x"           header "a": "x"               the str
    attribute n = Number "7"           header "n": {"type": "Number", "value": "7"}
    attribute b = Binary               header "b": {"type": "Binary", "value": base64}

    sent with the library              shown by SQS
    a str                              that text
    other JSON                         its text as stored
    bytes                              as UTF-8 text, or in base64
    headers with an attribute's name   String, or Number; others are not shown

What SQS itself keeps with a message are headers whose names no attribute can have (they contain a
colon).
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, cast

from fairlead import Json
from fairlead.errors import UsageError
from fairlead.server.sqs.characters import ILLEGAL, legal
from fairlead.server.sqs.contents import Attribute

SENDER = "sqs:sender"
DEDUPLICATION = "sqs:dedup"
TRACE = "sqs:trace"
# The SenderId of messages whose sender nobody knows: of the library, and of unsigned requests.
NOBODY = "AIDAFAIRLEADANONYMOUS"

# The names that `contents` lets pass, in one look.
_NAME = re.compile("(?!(?ai:aws|amazon)?\\.)(?!.*\\.\\.)[A-Za-z0-9_.\u00c0-\u017f-]{1,256}(?<!\\.)")
_TYPE = re.compile(r"(String|Number|Binary)(?:\..*)?", re.DOTALL)
_decode = json.JSONDecoder().raw_decode  # json.loads would look for blanks around it first


# --- bodies ---


def stored(text: str) -> Json | str:
    """The body to send for a text of SQS's."""
    if text[0] in "{[":
        try:
            return Json(text)
        except UsageError:  # it only looks like JSON
            return text
    return text


def shown(raw: bytes, is_json: bool) -> str:
    """The text that stands for a stored body; `raw` is what the database holds."""
    if not is_json:
        return _of_bytes(raw)
    text = raw.decode()
    if text.startswith('"'):
        plain: str = _decode(text)[0]
        if legal(plain):
            return plain
    # Only inside its strings can JSON hold such characters, and there they can be escaped.
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
    """The headers to store for the attributes of a message, which have been checked."""
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
    """The message attributes to show for stored headers, whoever sent them."""
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
    """A header that an attribute was stored as; a dict of the library's may look otherwise."""
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
