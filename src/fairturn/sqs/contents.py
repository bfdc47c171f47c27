"""SQS's checks of a message's content, its size, and the choice of attributes to show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from fairturn.sqs import errors, limits
from fairturn.sqs.characters import ILLEGAL, legal

Attribute: TypeAlias = Mapping[str, Any]  # DataType, and StringValue (str) or BinaryValue (bytes)

TRACE_HEADER = "AWSTraceHeader"  # the one system attribute that can be sent

_UNNAMED = re.compile("[^A-Za-z0-9_.\u00c0-\u017f-]")
# Possessive (++): a megabyte of digits is scanned only once.
_NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,3})?")
_RESERVED = ("aws.", "amazon.")
_TYPES = ("String", "Number", "Binary")


# --- the body ---


def body(text: str) -> None:
    if not text:
        raise errors.missing("MessageBody")
    if ILLEGAL.search(text):
        raise errors.INVALID_MESSAGE_CONTENTS()


def size(text: str, attributes: Mapping[str, Attribute] | None) -> int:
    """Return the size: the body, and the names, types and values of the attributes.

    It also works for unchecked messages: the size of a whole batch is checked first.
    """
    total = _bytes(text)
    for name, attribute in (attributes or {}).items():
        total += _bytes(name) + len(attribute.get("BinaryValue", b""))
        total += _bytes(attribute.get("DataType", "")) + _bytes(attribute.get("StringValue", ""))
    return total


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def fits(weight: int, most: int) -> None:
    """`most` is the queue's MaximumMessageSize."""
    if weight > most:
        raise too_long(most)


def too_long(most: int) -> errors.SqsError:
    return _refused(
        f"One or more parameters are invalid. Reason: Message must be shorter than {most} bytes."
    )


# --- the attributes ---


def attributes(given: Mapping[str, Attribute]) -> None:
    """Check the message attributes of one message."""
    if len(given) > limits.MESSAGE_ATTRIBUTES:
        raise errors.INVALID_PARAMETER_VALUE(
            f"Number of message attributes [{len(given)}] exceeds the allowed maximum "
            f"[{limits.MESSAGE_ATTRIBUTES}]."
        )
    for name, attribute in given.items():
        _name(name)
        _value(name, attribute)


def system_attributes(given: Mapping[str, Attribute]) -> None:
    for name, attribute in given.items():
        if name != TRACE_HEADER:
            raise errors.INVALID_PARAMETER_VALUE(
                f"Message system attribute name '{name:.80}' is invalid."
            )
        _value(name, attribute)
        if attribute["DataType"] != "String":
            raise errors.INVALID_PARAMETER_VALUE(
                f"The message system attribute '{name}' must have the type 'String'."
            )


def _name(name: str) -> None:
    if not name:
        raise _refused("The request must contain non-empty message attribute name.")
    if len(name) > limits.ATTRIBUTE_NAME_CHARS:
        raise _refused("Length of message attribute name must be less than 256 bytes.")
    if name.lower().startswith(_RESERVED):
        raise _refused(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. "
            "These strings are reserved for internal use."
        )
    if name.startswith(".") or name.endswith(".") or ".." in name:
        raise _refused(
            f"Invalid message attribute name '{name}': it must not start or end with a dot, "
            "or have two in a row."
        )
    odd = _UNNAMED.search(name)
    if odd is not None:
        raise _refused(
            f"Invalid non-alphanumeric character '#x{ord(odd.group()):X}' was found in the message "
            "attribute name. Can only include alphanumeric characters, hyphens, underscores, or "
            "dots."
        )


def _value(name: str, attribute: Attribute) -> None:
    kind = _kind(name, attribute)
    if "StringListValues" in attribute or "BinaryListValues" in attribute:
        raise errors.UNSUPPORTED_OPERATION(
            f"Message attribute list values are not supported: attribute '{name}'."
        )
    field = "BinaryValue" if kind == "Binary" else "StringValue"
    other = "StringValue" if kind == "Binary" else "BinaryValue"
    # Some clients send an empty value of the other kind for an absent one.
    if attribute.get(other):
        raise _refused(
            f"The message attribute '{name}' with type '{attribute['DataType']}' must use field "
            f"'{field.removesuffix('Value')}'."
        )
    value = attribute.get(field)
    if not value:
        raise _refused(
            f"The message attribute '{name}' must contain non-empty message attribute value for "
            f"message attribute type '{attribute['DataType']}'."
        )
    if kind != "Binary" and not legal(value):
        raise errors.INVALID_MESSAGE_CONTENTS()
    if kind == "Number" and not _is_number(value):
        raise _refused(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def _kind(name: str, attribute: Attribute) -> str:
    """Return String, Number or Binary: the first part of a type such as Number.float."""
    data_type: str = attribute.get("DataType", "")
    if not data_type:
        raise _refused(
            f"The message attribute '{name}' must contain non-empty message attribute type."
        )
    if len(data_type) > limits.DATA_TYPE_CHARS or not legal(data_type):
        raise _refused("Length of message attribute type must be less than 256 bytes.")
    kind = data_type.partition(".")[0]
    if kind not in _TYPES:
        raise _refused(
            f"The message attribute '{name}' has an invalid message attribute type, the set of "
            "supported type prefixes is Binary, Number, and String."
        )
    return kind


def _is_number(text: str) -> bool:
    if _NUMBER.fullmatch(text) is None:
        return False
    mantissa = re.split("[eE]", text)[0]
    return sum(char.isdigit() for char in mantissa) <= limits.NUMBER_DIGITS


def _refused(text: str) -> errors.SqsError:
    return errors.INVALID_PARAMETER_VALUE(text)


# --- which attributes a receiver asked for ---


def chosen(given: Mapping[str, Attribute], names: Iterable[str]) -> dict[str, Attribute]:
    """Return the attributes that MessageAttributeNames asks for: by name, `All`, `.*`, `*`,
    `Prefix.*`.

    A name that no attribute can have is no error: it finds nothing. Celery sends `ALL`.
    """
    exact: set[str] = set()
    prefixes: list[str] = []
    for name in names:
        if name in ("All", "ALL", ".*", "*"):
            return dict(given)
        if name.endswith(".*"):
            prefixes.append(name.removesuffix(".*"))
        else:
            exact.add(name)
    return {
        name: attribute
        for name, attribute in given.items()
        if name in exact or name.startswith(tuple(prefixes))
    }
