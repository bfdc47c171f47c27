"""From the address in a queue's ``meta`` to its destination.

    sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/orders     a queue of SQS, or of a server like it
    amqp://user:${RABBIT_PASSWORD}@host/vhost?routing_key=orders    an exchange of RabbitMQ
    postgresql://host/db#orders   mysql://…#orders   sqlite:///centre.db#orders
                                                                    a queue of another Fairturn database

``${NAME}`` is replaced from the relay's environment, so that the database holds no secrets.
"""  # noqa: E501

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fairturn.core.errors import FairturnError
from fairturn.execution.database_url import Options, target
from fairturn.relay import fairturn_destination
from fairturn.relay.amqp import address as amqp_address
from fairturn.relay.destination import Destination, DestinationError
from fairturn.relay.sqs import destination as sqs_destination
from fairturn.relay.sqs.clients import Address

KINDS = "sqs:https://…, amqp://…, or a database's URL with #queue at its end"
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SQS, _AMQP = ("sqs",), ("amqp", "amqps")
_FAIRTURN = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")


def address_of(meta: Mapping[str, Any]) -> str | None:
    """The address of a queue's destination, from its ``meta`` (semantics §11.4)."""
    found = meta.get("destination")
    return found if isinstance(found, str) else None


def check(address: str) -> str:
    """The address, if its form is right. The values of its variables are not known here."""
    if _VARIABLE.fullmatch(address):
        return address
    scheme = _scheme(address)
    text = _VARIABLE.sub("1", address)  # a number, because it may be the port
    if "${" in text:
        raise DestinationError(f"{shown(address)!r}: a variable is written ${{NAME}}")
    if scheme in _SQS:
        Address.of(text)
    elif scheme in _AMQP:
        amqp_address.check_address(text)
    else:
        url, _, there = text.partition("#")
        if not there:
            raise DestinationError(f"{shown(address)!r} names no queue: write it after a #")
        _shown_target(url)
    return address


def check_other(address: str, queue: str, here: str) -> None:
    """Raise if the address is the queue itself, in the database ``here``."""
    url, _, there = address.partition("#")
    if there != queue or _scheme(address) not in _FAIRTURN or _VARIABLE.search(url):
        return
    if _shown_target(url) == here:
        raise DestinationError(f"{shown(address)} is the queue itself: name another one")


def _shown_target(url: str) -> str | None:
    """The database of a URL as text, without a password; None: its driver is not installed."""
    if url.startswith("sqlite:") and url.removeprefix("sqlite:").strip("/") in ("", ":memory:"):
        raise DestinationError(f"{url!r} would end with the relay: name a file")
    try:
        return target(url, Options()).shown
    except ModuleNotFoundError:
        return None
    except FairturnError as error:
        raise DestinationError(str(error)) from None


def open_destination(
    address: str, queue: str, environment: Mapping[str, str] = os.environ
) -> Destination:
    """The destination that an address means for a queue. It connects when it is first used."""
    text = expanded(address, environment)
    scheme = _scheme(check(text))
    if scheme in _SQS:
        return sqs_destination.destination_for(text)
    if scheme in _AMQP:
        return amqp_address.destination_for(text, queue)
    try:
        return fairturn_destination.destination_for(text)
    except ModuleNotFoundError as error:  # our own text, which says what to install
        raise DestinationError(str(error)) from None


def expanded(address: str, environment: Mapping[str, str]) -> str:
    """The address with the values of its variables. They are quoted, as parts of a URL, unless a
    variable is the whole address."""
    whole = _VARIABLE.fullmatch(address) is not None
    names = dict.fromkeys(_VARIABLE.findall(address))
    missing = [f"${name}" for name in names if name not in environment]
    if missing:
        what = " and ".join(missing)
        raise DestinationError(f"{shown(address)!r} needs {what}: not set where the relay runs")
    return _VARIABLE.sub(
        lambda match: environment[match[1]] if whole else quote(environment[match[1]], safe=""),
        address,
    )


def shown(address: str) -> str:
    """The address without a password."""
    return re.sub(r"(//[^:/?#@]*):[^@/]*@", r"\1:***@", address)


def _scheme(address: str) -> str:
    scheme, colon, _ = address.partition(":")
    if not colon or scheme not in (*_SQS, *_AMQP, *_FAIRTURN):
        raise DestinationError(f"{shown(address)!r} is no destination: use {KINDS}")
    return scheme
