"""Beyond SQS: message attributes that are orders to Fairlead, on queues that allow them.

    Fairlead.Priority   Number   the higher, the sooner
    Fairlead.Key        String   while a message with this key waits or runs, another is not sent
    Fairlead.Type       String   the message's type: by it a worker finds its task

They are not stored as attributes. On other queues they are attributes like all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fairlead.errors import UsageError
from fairlead.limits import PRIORITY_MAX
from fairlead.operations import check
from fairlead.server.sqs import errors
from fairlead.server.sqs.contents import Attribute

PRIORITY = "Fairlead.Priority"
KEY = "Fairlead.Key"
TYPE = "Fairlead.Type"
KNOWN = (PRIORITY, KEY, TYPE)
PREFIX = "Fairlead."


class Extras(NamedTuple):
    priority: int = 0
    key: str | None = None
    type: str | None = None


NONE = Extras()


def taken(
    attributes: Mapping[str, Attribute], fifo: bool
) -> tuple[Extras, Mapping[str, Attribute]]:
    """The orders among the attributes of a message, and the attributes that are left."""
    ours = [name for name in attributes if name.startswith(PREFIX)]
    if not ours:
        return NONE, attributes
    for name in ours:
        if name not in KNOWN:
            raise errors.INVALID_PARAMETER_VALUE(
                f"The message attribute '{name}' is none of {', '.join(KNOWN)}."
            )
    left = dict(attributes)
    priority, key, type = (left.pop(name, None) for name in KNOWN)
    if key is not None and fifo:
        raise errors.INVALID_PARAMETER_VALUE(
            f"{KEY} cannot be used with a FIFO queue: its MessageDeduplicationId does the same."
        )
    extras = Extras(
        0 if priority is None else _priority(priority),
        None if key is None else _name(KEY, key),
        None if type is None else _name(TYPE, type),
    )
    return extras, left


def _priority(attribute: Attribute) -> int:
    text: str = attribute.get("StringValue", "")
    if attribute["DataType"].partition(".")[0] == "Number":
        try:
            return check.integer(int(text), PRIORITY, -PRIORITY_MAX, PRIORITY_MAX)
        except ValueError:  # no whole number, or out of range
            pass
    raise errors.INVALID_PARAMETER_VALUE(
        f"The message attribute '{PRIORITY}' must be a Number: a whole one between "
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
