"""AWS JSON 1.0: members of an action from a JSON object, and back."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, cast

from fairturn.server.sqs.wire.action_table import (
    STRING,
    Action,
    ListOf,
    MapOf,
    Scalar,
    Structure,
    Type,
)
from fairturn.sqs import errors, limits
from fairturn.sqs.characters import SURROGATE
from fairturn.sqs.errors import SqsError

# Of each kind: its type in Python and its name in errors.
_KINDS: dict[str, tuple[type[Any], str]] = {
    "string": (str, "a String"),
    "integer": (int, "an Integer"),
    "long": (int, "a Long"),
    "boolean": (bool, "a Boolean"),
    "blob": (str, "a Blob"),
}
# Strings, brackets, commas. An unterminated string extends to the end of the text, so that no byte
# is scanned twice.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{},]', re.DOTALL)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_LONE_SURROGATES = "backslashreplace"  # one becomes \\udxxx, which is its spelling in JSON


# --- parsing ---


def parse(action: Action, body: bytes) -> dict[str, Any]:
    # Counting bytes is nearly free, and shows that most requests are small enough.
    opened = body.count(b"[") + body.count(b"{")
    if opened > limits.DEPTH or body.count(b",") + opened > limits.VALUES:
        _check_shape(body)
    try:
        given: Any = _decode(body.decode()) if body else {}
    except (ValueError, RecursionError) as error:
        # A text that is not UTF-8 is also a ValueError, and an integer of thousands of digits.
        raise errors.SERIALIZATION("The request's body is not valid JSON.") from error
    if not isinstance(given, dict):
        raise errors.SERIALIZATION("The request's body is not a JSON object.")
    return _structure(action.input, cast("dict[str, Any]", given), "")


def _check_shape(body: bytes) -> None:
    """Refuse a body that would need much more memory than its bytes, before it is parsed.

    Brackets and commas inside a string do not count: a message may be JSON or CSV itself.
    """
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
            if isinstance(member.type, Scalar):
                value = _scalar(member.type, value)
            else:
                value = _value(member.type, value, f"{where}{member.query}")
            if value not in ("", [], {}) or not member.required_on_wire:
                members[name] = value
                continue
        if member.required_on_wire:
            raise errors.missing(where + member.name_in_error)
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
    expected, name = _KINDS[type.kind]
    if expected is int and given.__class__ is float and given.is_integer():
        given = int(given)
    if given.__class__ is not expected:  # a bool is no int here
        raise _unconvertible(name, given)
    if type.kind == "blob":
        return _blob(given)
    if expected is int and not -type.bound <= given < type.bound:
        raise errors.SERIALIZATION(f"A number is out of range for {name}")
    if expected is str and not (type.free or given.isascii()) and SURROGATE.search(given):
        raise errors.SERIALIZATION("A string is not valid Unicode.")
    return given


def _blob(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:  # binascii.Error, or text that is not ASCII
        raise errors.SERIALIZATION("A binary value is not valid Base64.") from error


def _unconvertible(name: str, given: Any) -> SqsError:
    if isinstance(given, list | dict):
        return _not_expected(cast("list[Any] | dict[str, Any]", given))
    if given is None:  # in a list; a member that is null counts as missing
        found = "NULL_VALUE"
    elif isinstance(given, bool):
        found = "TRUE_VALUE" if given else "FALSE_VALUE"
    else:
        found = "STRING_VALUE" if isinstance(given, str) else "NUMBER_VALUE"
    return errors.SERIALIZATION(f"{found} can not be converted to {name}")


def _not_expected(given: list[Any] | dict[str, Any]) -> SqsError:
    what = "list" if isinstance(given, list) else "structure or map"
    return errors.SERIALIZATION(f"Start of {what} found where not expected.")


# --- rendering ---


def render(action: Action, result: Mapping[str, Any]) -> bytes:
    if action.output is None:
        return b"{}"
    return _encode(_shown(action.output, result)).encode("utf-8", _LONE_SURROGATES)


def render_error(error: SqsError) -> bytes:
    value = {"__type": error.type, "message": error.message}
    return _encode(value).encode("utf-8", _LONE_SURROGATES)


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
