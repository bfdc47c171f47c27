"""From the address that is written with a queue to the destination it means.

    sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/orders     a queue of SQS, or of a server like it
    amqp://user:${RABBIT_PASSWORD}@host/vhost?routing_key=orders    an exchange of RabbitMQ
    postgresql://host/db#orders   mysql://…#orders   sqlite:///centre.db#orders
                                                                    a queue of another Fairlead database

Names in ``${…}`` are taken from the relay's environment, so that no secret need be in the database.
"""  # noqa: E501

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fairlead.relay import amqp, sqs_client
from fairlead.relay.destination import Destination, DestinationError

KINDS = "sqs:https://…, amqp://…, or a database's URL with #queue at its end"
_NAME = re.compile(r"\$\{(\w+)\}")
_SQS, _AMQP = ("sqs",), ("amqp", "amqps")
_FAIRLEAD = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")


def address_of(meta: Mapping[str, Any]) -> str | None:
    """Where a queue's messages go, as its ``meta`` says (semantics §11.4)."""
    found = meta.get("destination")
    return found if isinstance(found, str) else None


def check(address: str) -> str:
    """The address, if it can be one; what its variables hold is not known here."""
    if _NAME.fullmatch(address):
        return address
    scheme = _scheme(address)
    text = _NAME.sub("1", address)  # a number may also be a port
    if "${" in text:
        raise DestinationError(f"{shown(address)!r}: a variable is written ${{NAME}}")
    if scheme in _SQS:
        sqs_client.Address.of(text)
    elif scheme in _AMQP:
        amqp.check_address(text)
    elif not text.partition("#")[2]:
        raise DestinationError(f"{shown(address)!r} names no queue: write it behind a #")
    return address


def open_destination(
    address: str, queue: str, environment: Mapping[str, str] = os.environ
) -> Destination:
    """The destination of a queue's messages. Nothing is connected before it is needed."""
    text = expanded(address, environment)
    scheme = _scheme(check(text))
    if scheme in _SQS:
        from fairlead.relay import sqs

        return sqs.destination_for(text)
    if scheme in _AMQP:
        return amqp.destination_for(text, queue)
    from fairlead.relay import other

    return other.destination_for(text)


def expanded(address: str, environment: Mapping[str, str]) -> str:
    """The address with its variables. A part of a URL is quoted, a whole address is not."""
    whole = _NAME.fullmatch(address) is not None

    def value(match: re.Match[str]) -> str:
        found = environment.get(match[1])
        if found is None:
            raise DestinationError(
                f"{shown(address)!r} needs ${match[1]}, which is not set where the relay runs"
            )
        return found if whole else quote(found, safe="")

    return _NAME.sub(value, address)


def shown(address: str) -> str:
    """The address without a password."""
    return re.sub(r"(//[^:/?#@]*):[^@/]*@", r"\1:***@", address)


def _scheme(address: str) -> str:
    scheme, colon, _ = address.partition(":")
    if not colon or scheme not in (*_SQS, *_AMQP, *_FAIRLEAD):
        raise DestinationError(f"{shown(address)!r} is no destination: use {KINDS}")
    return scheme
