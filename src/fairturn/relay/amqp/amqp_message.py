"""A message in AMQP's form. Pure.

Every message is encoded once before any message is sent. So one that cannot be encoded fails alone,
and does not disturb the channel's count of deliveries.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pamqp.commands import Basic
from pamqp.common import FieldTable
from pamqp.header import ContentHeader

from fairturn.relay.amqp.address import PLACEHOLDER
from fairturn.relay.destination import Parcel

JSON, BYTES = "application/json", "application/octet-stream"
PERSISTENT = 2
PRIORITIES = 255
KEY_BYTES = 255  # of a routing key
NAME_BYTES = 128  # of a header's name; the encoder would silently cut a longer one
FRAME = 8  # bytes around the content of a frame
_ROUTING = ("CC", "BCC")  # headers with more routing keys for RabbitMQ


class Unsendable(ValueError):
    """AMQP cannot transport this message; the text says why."""


@dataclass(frozen=True, slots=True)
class AmqpMessage:
    """One message, ready to be published. ``head``: the bytes of the frame with its properties."""

    body: bytes
    routing_key: str
    properties: Basic.Properties
    head: int

    @property
    def name(self) -> str:
        return cast("str", self.properties.message_id)

    @property
    def routing_keys(self) -> list[str]:
        """All keys by which RabbitMQ routes it."""
        headers = cast("dict[str, Any]", self.properties.headers)
        return [self.routing_key, *(key for name in _ROUTING for key in headers.get(name, ()))]


def amqp_message(parcel: Parcel, template: str) -> AmqpMessage:
    """The message of a parcel. ``template``: its routing key, with placeholders."""
    message = parcel.message
    routing_key = key_of(template, message.queue, message.channel, message.type)
    try:
        properties = Basic.Properties(
            content_type=JSON if message.is_json else BYTES,
            headers=_headers(parcel),
            delivery_mode=PERSISTENT,
            priority=min(max(message.priority, 0), PRIORITIES),
            message_id=parcel.identity,
            timestamp=message.created_at,
            message_type=message.type,
        )
        head = len(ContentHeader(properties=properties, body_size=len(message.raw)).marshal())
    except Unsendable:
        raise
    except (TypeError, ValueError, struct.error, RecursionError) as error:
        raise Unsendable(f"AMQP cannot transport its headers: {error}") from error
    return AmqpMessage(message.raw, routing_key, properties, head + FRAME)


def key_of(template: str, queue: str, channel: str, type: str | None) -> str:
    values = {"queue": queue, "channel": channel, "type": type or ""}
    key = PLACEHOLDER.sub(lambda match: values[match[1]], template)
    if len(key.encode()) > KEY_BYTES:
        raise Unsendable(f"its routing key would be longer than {KEY_BYTES} bytes: {key!r}")
    return key


def _headers(parcel: Parcel) -> FieldTable:
    message = parcel.message
    headers = message.headers
    for name in _ROUTING:
        if name in headers and not _is_texts(headers[name]):
            raise Unsendable(
                f"RabbitMQ reads more routing keys from the header {name}, so it must be a list of "
                f"texts: {headers[name]!r}"
            )
    if "x-death" in headers and not _is_deaths(headers["x-death"]):
        raise Unsendable(
            "RabbitMQ counts in the header x-death how often a message was dead-lettered, and a "
            "queue that cannot read it crashes: it must be a list of objects whose count is an "
            f"integer: {headers['x-death']!r}"
        )
    found = _table(headers)
    found["fairturn.queue"] = message.queue
    found["fairturn.channel"] = message.channel
    found["fairturn.id"] = message.id
    return cast("FieldTable", found)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[Any]", value))


def _is_deaths(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict) and type(_value(cast("Any", one).get("count", 0))) is int
        for one in cast("list[Any]", value)
    )


def _table(values: Mapping[str, Any]) -> dict[str, Any]:
    for name in values:
        if len(name.encode()) > NAME_BYTES:
            raise Unsendable(f"a header's name has at most {NAME_BYTES} bytes in AMQP: {name!r}")
    return {name: _value(value) for name, value in values.items()}


def _value(value: Any) -> Any:
    """A JSON value in AMQP's types. Integers of more than 64 bits and floats become JSON text: AMQP
    cannot hold the former, and the encoder cuts the latter to 32 bits."""
    if isinstance(value, dict):
        return _table(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return [_value(one) for one in cast("list[Any]", value)]
    if isinstance(value, float) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        return json.dumps(value)
    return value
