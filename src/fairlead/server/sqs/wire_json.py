"""AWS JSON 1.0: a JSON object to the members of an action, and back."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, cast

from fairlead.server.sqs import errors, limits
from fairlead.server.sqs.actions import STRING, Action, ListOf, MapOf, Scalar, Structure, Type
from fairlead.server.sqs.characters import encodable
from fairlead.server.sqs.errors import SqsError

CONTENT_TYPE = "application/x-amz-json-1.0"

_NAMES = {
    "string": "a String",
    "integer": "an Integer",
    "long": "a Long",
    "boolean": "a Boolean",
    "blob": "a Blob",
}
# Strings, brackets, commas. A string without an end is one to the end of the text, so that
# nothing is looked at twice.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{},]', re.DOTALL)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


# --- in ---


def parse(action: Action, body: bytes) -> dict[str, Any]:
    given = _object(body)
    return _structure(action.takes, given, "")


def _object(body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    _check_shape(body)
    try:
        given = _decode(body.decode())
    except (ValueError, RecursionError) as error:
        # ValueError also is a text that is not UTF-8, and an integer of thousands of digits.
        raise errors.SERIALIZATION("The request's body is not valid JSON.") from error
    if not isinstance(given, dict):
        raise errors.SERIALIZATION("The request's body is not a JSON object.")
    return cast("dict[str, Any]", given)


def _check_shape(body: bytes) -> None:
    """Refuse what would cost much more memory than its bytes, before it is built.

    Counting bytes is nearly free and settles most requests. Only where there are many brackets or
    commas it matters which of them are inside a string: a message may well be JSON or CSV itself.
    """
    opened = body.count(b"[") + body.count(b"{")
    if opened <= limits.DEPTH and body.count(b",") + opened <= limits.VALUES:
        return
    depth = 0
    for count, token in enumerate(_TOKENS.finditer(body)):
        byte = body[token.start()]
        if byte in b"[{":
            depth += 1
        elif byte in b"]}":
            depth -= 1
        if depth > limits.DEPTH:
            raise errors.SERIALIZATION("The request's body is nested too deeply.")
        if count > limits.VALUES:
            raise errors.SERIALIZATION("The request's body has too many values.")


def _structure(structure: Structure, given: dict[str, Any], where: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, member in structure.members.items():
        value = given.get(name)
        if value is not None:
            value = _value(member.type, value, f"{where}{member.query}")
            if value not in ("", [], {}) or not member.insisted:
                members[name] = value
                continue
        if member.insisted:
            raise errors.missing(where + member.asked)
    return members


def _value(type: Type, given: Any, where: str) -> Any:
    match type:
        case Scalar():
            return _scalar(type, given)
        case ListOf():
            items = _expect(given, list)
            return [_value(type.item, item, f"{where}.{n}.") for n, item in enumerate(items, 1)]
        case MapOf():
            return {
                _scalar(STRING, key): _value(type.value, value, f"{where}.{key}.")
                for key, value in _expect(given, dict).items()
                if value is not None
            }
        case Structure():
            return _structure(type, _expect(given, dict), where)


def _expect(given: Any, kind: type[Any]) -> Any:
    if not isinstance(given, kind):
        if isinstance(given, list | dict):
            raise _not_expected(cast("list[Any] | dict[str, Any]", given))
        raise errors.SERIALIZATION("Unexpected field type")
    return given


def _scalar(type: Scalar, given: Any) -> Any:
    match type.kind:
        case "string":
            if isinstance(given, str):
                if not type.free and not encodable(given):
                    raise errors.SERIALIZATION("A string is not valid Unicode.")
                return given
        case "blob":
            if isinstance(given, str):
                return _blob(given)
        case "boolean":
            if isinstance(given, bool):
                return given
        case _:
            if isinstance(given, float) and given.is_integer():
                given = int(given)
            if isinstance(given, int) and not isinstance(given, bool):
                return _bounded(type, given)
    raise _unconvertible(type, given)


def _bounded(type: Scalar, number: int) -> int:
    if not -type.bound <= number < type.bound:
        raise errors.SERIALIZATION(f"A number is out of range for {_NAMES[type.kind]}")
    return number


def _blob(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:  # binascii.Error, or text that is not ASCII
        raise errors.SERIALIZATION("A binary value is not valid Base64.") from error


def _unconvertible(type: Scalar, given: Any) -> SqsError:
    if isinstance(given, list | dict):
        return _not_expected(cast("list[Any] | dict[str, Any]", given))
    if given is None:  # in a list; as a member, null is the same as nothing
        found = "NULL_VALUE"
    elif isinstance(given, bool):
        found = "TRUE_VALUE" if given else "FALSE_VALUE"
    else:
        found = "STRING_VALUE" if isinstance(given, str) else "NUMBER_VALUE"
    return errors.SERIALIZATION(f"{found} can not be converted to {_NAMES[type.kind]}")


def _not_expected(given: list[Any] | dict[str, Any]) -> SqsError:
    what = "list" if isinstance(given, list) else "structure or map"
    return errors.SERIALIZATION(f"Start of {what} found where not expected.")


# --- out ---


def render(action: Action, result: Mapping[str, Any]) -> bytes:
    if action.gives is None:
        return b"{}"
    return _bytes(_shown(action.gives, result))


def render_error(type: str, message: str) -> bytes:
    return _bytes({"__type": type, "message": message})


def _bytes(value: dict[str, Any]) -> bytes:
    # Half a surrogate pair becomes \udxxx, which is how JSON spells it.
    return _encode(value).encode("utf-8", "backslashreplace")


def _shown(type: Type, value: Any) -> Any:
    match type:
        case Scalar():
            return b64encode(value).decode() if type.kind == "blob" else value
        case ListOf():
            return [_shown(type.item, item) for item in value]
        case MapOf():
            if type.value is STRING:
                return value
            return {key: _shown(type.value, item) for key, item in value.items()}
        case Structure():
            return {
                name: _shown(type.members[name].type, item)
                for name, item in value.items()
                if item is not None and item != [] and item != {}
            }
