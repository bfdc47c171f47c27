"""The tables of shoryuken-waiter and their items. Pure.

A table has the name of its queue. All its items have the same hash key, so that an index over
``perform_at`` finds those that are due:

    scheduler               S  always "shoryuken-waiter"
    job_id                  S  a second put with the same id replaces the item
    perform_at              N  seconds since the epoch, with a fraction
    sqs_message_body        M  the job as Active Job serialises it; or S: any text, not for the gem
    sqs_message_attributes  M  of {"string_value": S, "data_type": S}, as the Ruby SDK names them

A drain of ours adds ``fairturn_claim`` and ``fairturn_claimed_until`` while it hands an item over.
The gem ignores both, and a second put removes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

from fairturn.core.errors import InvalidArgument
from fairturn.sqs import bodies

SCHEDULER = "shoryuken-waiter"
INDEX = "scheduler-perform_at-index"
CLAIM, CLAIMED_UNTIL = "fairturn_claim", "fairturn_claimed_until"
HORIZON = 900  # seconds: the longest delay of SQS
# Shoryuken's adapter gives every message this attribute, to recognize a job of Active Job.
ACTIVE_JOB: Mapping[str, Any] = {
    "shoryuken_class": {
        "DataType": "String",
        "StringValue": "ActiveJob::QueueAdapters::ShoryukenAdapter::JobWrapper",
    }
}

_KEYS = [("scheduler", "HASH"), ("job_id", "RANGE")]
_INDEX_KEYS = [("scheduler", "HASH"), ("perform_at", "RANGE")]
_TYPES = {"scheduler": "S", "job_id": "S", "perform_at": "N"}
_SNAKE = {"DataType": "data_type", "StringValue": "string_value", "BinaryValue": "binary_value"}
_CAMEL = {snake: camel for camel, snake in _SNAKE.items()}
_CONSTANTS = {"BOOL": {True: "true", False: "false"}, "NULL": {True: "null"}}


class Unreadable(ValueError):
    """An item that is not a message; the text says what is wrong with it."""


# --- the table ------------------------------------------------------------------------------------


def definition(table: str) -> dict[str, Any]:
    """The arguments of CreateTable."""
    return {
        "TableName": table,
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in _TYPES.items()
        ],
        "KeySchema": _schema(_KEYS),
        "LocalSecondaryIndexes": [
            {
                "IndexName": INDEX,
                "KeySchema": _schema(_INDEX_KEYS),
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }


def _schema(keys: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in keys]


def has_layout(described: Mapping[str, Any]) -> bool:
    """Does the table, as DescribeTable returns it, have the gem's layout?"""
    kinds = {a["AttributeName"]: a["AttributeType"] for a in described["AttributeDefinitions"]}
    indexes = {one["IndexName"]: one for one in described.get("LocalSecondaryIndexes") or ()}
    return (
        _keys(described) == _KEYS
        and INDEX in indexes
        and _keys(indexes[INDEX]) == _INDEX_KEYS
        and all(kinds.get(name) == kind for name, kind in _TYPES.items())
    )


def _keys(described: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = sorted((one["KeyType"], one["AttributeName"]) for one in described["KeySchema"])
    return [(name, kind) for kind, name in found]  # HASH before RANGE


def key(job_id: str) -> dict[str, Any]:
    return {"scheduler": {"S": SCHEDULER}, "job_id": {"S": job_id}}


# --- an item to write -----------------------------------------------------------------------------


def item(
    job_id: str, perform_at: float, body: Any, attributes: Mapping[str, Any]
) -> dict[str, Any]:
    """``body``: a dict, or a text that is stored unchanged. ``attributes``: as in boto3."""
    return {
        **key(job_id),
        "perform_at": {"N": repr(perform_at)},
        "sqs_message_body": value(body),
        "sqs_message_attributes": {
            "M": {name: _stored(name, attributes[name]) for name in attributes}
        },
    }


def _stored(name: str, attribute: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(attribute) - set(_SNAKE)
    if unknown or "DataType" not in attribute:
        raise InvalidArgument(
            f"attribute {name!r} must have DataType and StringValue or BinaryValue, as in boto3, "
            f"not {sorted(attribute)}"
        )
    return {"M": {_SNAKE[part]: value(attribute[part]) for part in attribute}}


def job(text: Any) -> dict[str, Any]:
    """The body for the gem, from a dict or its JSON text."""
    if isinstance(text, str):
        try:
            text = json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
        except ValueError:
            text = None
    if not isinstance(text, dict):
        raise InvalidArgument(
            "the gem stores jobs: the body must be a JSON object (as Active Job serialises it). "
            "For any other text make the store with gem=False; the gem must then not drain the "
            "table"
        )
    return cast("dict[str, Any]", text)


def own_id(body: Mapping[str, Any], queue: str, job_id: str | None) -> str:
    """The job_id of the body. The gem deletes by it, and sends to the body's queue_name, so both
    are checked."""
    own = body.get("job_id")
    if not isinstance(own, str) or not own or job_id not in (None, own):
        raise InvalidArgument(
            f"the job's own job_id is {own!r}: it must be a text, and the same as the argument, "
            "because the gem deletes by it. Without the gem make the store with gem=False"
        )
    if body.get("queue_name") != queue:
        raise InvalidArgument(
            f"the job's queue_name is {body.get('queue_name')!r}, not {queue!r}: the gem sends to "
            "the queue that it names. Without the gem make the store with gem=False"
        )
    return own


def _no_constant(word: str) -> Any:
    raise ValueError(word)


def value(given: Any) -> dict[str, Any]:
    """A JSON value in DynamoDB's form."""
    match given:
        case str():
            return {"S": given}
        case bool():
            return {"BOOL": given}
        case None:
            return {"NULL": True}
        case int() | Decimal():
            return {"N": str(given)}
        case float() if given - given == 0:  # neither infinite nor NaN
            return {"N": repr(given)}
        case bytes() | bytearray():
            return {"B": bytes(given)}
        case dict():
            members = cast("dict[Any, Any]", given)
            return {"M": {_member(name): value(one) for name, one in members.items()}}
        case list() | tuple():
            return {"L": [value(one) for one in cast("list[Any]", given)]}
        case _:
            raise InvalidArgument(f"{given!r} is not JSON: DynamoDB cannot hold it")


def _member(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a member must be a string, not {name!r}")
    return name


# --- an item that was read ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting message, with the ``body`` and ``attributes`` that SQS will get."""

    job_id: str
    at: datetime
    body: str
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    claimed: bool = False
    """A drain is handing it over: it can no longer be cancelled."""


def claimed_until(found: Mapping[str, Any]) -> float:
    """When the claim of an item expires; 0: it has none."""
    return float(found.get(CLAIMED_UNTIL, {"N": "0"})["N"])


def read(found: Mapping[str, Any], now: float) -> Waiting:
    """The message of an item, whether the gem or a store wrote it."""
    try:
        return Waiting(
            job_id=found["job_id"]["S"],
            at=datetime.fromtimestamp(float(found["perform_at"]["N"]), UTC),
            body=_body(found.get("sqs_message_body")),
            attributes=_attributes(found.get("sqs_message_attributes", {"M": {}})),
            claimed=CLAIM in found and claimed_until(found) >= now,
        )
    except Unreadable:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, OSError) as error:
        raise Unreadable(
            f"it does not have the gem's layout: {type(error).__name__} {error}"
        ) from error


def _body(stored: Mapping[str, Any] | None) -> str:
    if stored is None:
        raise Unreadable("it has no sqs_message_body")
    if "S" in stored:
        return stored["S"]
    return bodies.shown(text(stored).encode(), is_json=True)


def text(stored: Mapping[str, Any]) -> str:
    """A value of DynamoDB as JSON. Numbers keep all digits. Maps and sets have no order in
    DynamoDB; they are sorted, so that an item has the same text whenever it is read."""
    [(kind, held)] = stored.items()
    match kind:
        case "S":
            return json.dumps(held, ensure_ascii=False)
        case "N":
            return held
        case "BOOL" | "NULL":
            return _CONSTANTS[kind][held]
        case "L":
            return f"[{','.join(text(one) for one in held)}]"
        case "SS":
            return json.dumps(sorted(held), ensure_ascii=False)
        case "NS":
            return f"[{','.join(sorted(held))}]"
        case "M":
            members = (
                f"{json.dumps(n, ensure_ascii=False)}:{text(one)}"
                for n, one in sorted(held.items())
            )
            return f"{{{','.join(members)}}}"
        case _:
            raise Unreadable(f"its body holds a value of type {kind}, which JSON does not have")


def _attributes(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _attribute(name, one["M"]) for name, one in stored["M"].items()}


def _attribute(name: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part, stored in parts.items():
        if part not in _CAMEL:
            raise Unreadable(f"its attribute {name!r} has a {part!r}, which SQS does not accept")
        [held] = stored.values()
        wanted, said = (bytes, "not binary") if part == "binary_value" else (str, "no text")
        if not isinstance(held, wanted):  # Ruby's nil, for example
            raise Unreadable(f"its attribute {name!r} has a {part} that is {said}")
        found[_CAMEL[part]] = held
    if "DataType" not in found:
        raise Unreadable(f"its attribute {name!r} has no data_type")
    return found
