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

from fairlead.connecting import Options, target
from fairlead.errors import FairleadError
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
    else:
        url, _, there = text.partition("#")
        if not there:
            raise DestinationError(f"{shown(address)!r} names no queue: write it behind a #")
        _shown_target(url)
    return address


def check_other(address: str, queue: str, here: str) -> None:
    """Raise if it is the queue itself, in the database ``here``."""
    url, _, there = address.partition("#")
    if there != queue or _scheme(address) not in _FAIRLEAD or _NAME.search(url):
        return
    if _shown_target(url) == here:
        raise DestinationError(f"{shown(address)} is the queue itself: name another one")


def _shown_target(url: str) -> str | None:
    """The database that a URL means, as it is shown; None: its driver is not installed here."""
    if url.startswith("sqlite:") and url.removeprefix("sqlite:").strip("/") in ("", ":memory:"):
        raise DestinationError(f"{url!r} is gone with the relay: name a file")
    try:
        return target(url, Options()).shown
    except ModuleNotFoundError:
        return None
    except FairleadError as error:
        raise DestinationError(str(error)) from None


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

    try:
        return other.destination_for(text)
    except ModuleNotFoundError as error:  # the text, which is ours, says what to install
        raise DestinationError(str(error)) from None


def expanded(address: str, environment: Mapping[str, str]) -> str:
    """The address with its variables. A part of a URL is quoted, a whole address is not."""
    whole = _NAME.fullmatch(address) is not None

    names = dict.fromkeys(_NAME.findall(address))
    missing = [f"${name}" for name in names if name not in environment]
    if missing:
        what = " and ".join(missing)
        raise DestinationError(f"{shown(address)!r} needs {what}: not set where the relay runs")
    return _NAME.sub(
        lambda name: environment[name[1]] if whole else quote(environment[name[1]], safe=""),
        address,
    )


def shown(address: str) -> str:
    """The address without a password."""
    return re.sub(r"(//[^:/?#@]*):[^@/]*@", r"\1:***@", address)


def _scheme(address: str) -> str:
    scheme, colon, _ = address.partition(":")
    if not colon or scheme not in (*_SQS, *_AMQP, *_FAIRLEAD):
        raise DestinationError(f"{shown(address)!r} is no destination: use {KINDS}")
    return scheme
