"""Beyond SQS: message attributes that Fairturn itself obeys, on queues that allow them.

    Fairturn.Priority   Number   messages of a higher priority are received first
    Fairturn.Key        String   while a message with this key waits or runs, another is not sent
    Fairturn.Type       String   the message's type, by which a worker finds its task

They are not stored as attributes. On other queues they are ordinary attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fairturn.core import check
from fairturn.core.errors import UsageError
from fairturn.core.limits import PRIORITY_MAX
from fairturn.sqs import errors
from fairturn.sqs.contents import Attribute

PRIORITY = "Fairturn.Priority"
KEY = "Fairturn.Key"
TYPE = "Fairturn.Type"
KNOWN = (PRIORITY, KEY, TYPE)
PREFIX = "Fairturn."


class ExtendedAttributes(NamedTuple):
    priority: int = 0
    key: str | None = None
    type: str | None = None


NONE = ExtendedAttributes()


def split(
    attributes: Mapping[str, Attribute], fifo: bool
) -> tuple[ExtendedAttributes, Mapping[str, Attribute]]:
    """Split a message's attributes into the extended ones and the ordinary ones."""
    ours = [name for name in attributes if name.startswith(PREFIX)]
    if not ours:
        return NONE, attributes
    for name in ours:
        if name not in KNOWN:
            raise errors.INVALID_PARAMETER_VALUE(
                f"The message attribute '{name}' is not one of {', '.join(KNOWN)}."
            )
    left = dict(attributes)
    priority, key, type = (left.pop(name, None) for name in KNOWN)
    if key is not None and fifo:
        raise errors.INVALID_PARAMETER_VALUE(
            f"{KEY} cannot be used with a FIFO queue: its MessageDeduplicationId does the same."
        )
    extended = ExtendedAttributes(
        0 if priority is None else _priority(priority),
        None if key is None else _name(KEY, key),
        None if type is None else _name(TYPE, type),
    )
    return extended, left


def _priority(attribute: Attribute) -> int:
    text: str = attribute.get("StringValue", "")
    if attribute["DataType"].partition(".")[0] == "Number":
        try:
            return check.integer(int(text), PRIORITY, -PRIORITY_MAX, PRIORITY_MAX)
        except ValueError:  # no whole number, or out of range
            pass
    raise errors.INVALID_PARAMETER_VALUE(
        f"The message attribute '{PRIORITY}' must be a Number: a whole number between "
        f"-{PRIORITY_MAX} and {PRIORITY_MAX}."
    )


def _name(name: str, attribute: Attribute) -> str:
    if attribute["DataType"].partition(".")[0] == "String":
        try:
            return check.name(attribute["StringValue"], name)
        except UsageError:
            pass
    raise errors.INVALID_PARAMETER_VALUE(
        f"The message attribute '{name}' must be a String of at most 255 bytes."
    )
