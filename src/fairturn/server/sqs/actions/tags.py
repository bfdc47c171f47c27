"""TagQueue, UntagQueue, ListQueueTags, AddPermission, RemovePermission.

Permissions are stored and shown as a part of the queue's Policy, but have no effect: the server's
access keys decide over access.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from fairturn.server.sqs import attribute_rules
from fairturn.server.sqs.queue_cache import QueueInfo
from fairturn.server.sqs.request import SqsRequest
from fairturn.sqs import errors

if TYPE_CHECKING:
    from fairturn.server.sqs.service import Sqs


async def tag_queue(sqs: Sqs, request: SqsRequest) -> None:
    given: dict[str, str] = request.input["Tags"]
    attribute_rules.tags(given)

    def edit(info: QueueInfo, own: dict[str, Any]) -> Mapping[str, Any]:
        own["tags"] = {**info.tags, **given}
        attribute_rules.tag_count(request.queue, len(own["tags"]))
        return {}

    await sqs.queue_cache.change(request.queue, edit)


async def untag_queue(sqs: Sqs, request: SqsRequest) -> None:
    keys: list[str] = request.input.get("TagKeys", [])
    attribute_rules.tag_keys(keys)

    def edit(info: QueueInfo, own: dict[str, Any]) -> Mapping[str, Any]:
        own["tags"] = {key: value for key, value in info.tags.items() if key not in keys}
        return {}

    await sqs.queue_cache.change(request.queue, edit)


async def list_queue_tags(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    info = await sqs.queue_cache.fresh(request.queue)
    return {"Tags": dict(info.tags)}


# --- permissions ------------------------------------------------------------------------------


async def add_permission(sqs: Sqs, request: SqsRequest) -> None:
    label: str = request.input["Label"]
    accounts: list[str] = request.input.get("AWSAccountIds", [])
    actions: list[str] = request.input["Actions"]
    attribute_rules.permission(label, accounts, actions)
    arn = request.arn_of(request.queue)
    statement = {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _one_or_many([f"arn:aws:iam::{id}:root" for id in accounts])},
        "Action": _one_or_many([f"SQS:{action}" for action in actions]),
        "Resource": arn,
    }

    def edit(info: QueueInfo, own: dict[str, Any]) -> Mapping[str, Any]:
        policy = _policy(info) or {
            "Version": "2008-10-17",
            "Id": f"{arn}/SQSDefaultPolicy",
        }
        statements = _statements(policy)
        if any(_labelled(one, label) for one in statements):
            raise errors.invalid(label, "Label", "Already exists.")
        _keep(own, policy | {"Statement": [*statements, statement]})
        return {}

    await sqs.queue_cache.change(request.queue, edit)


async def remove_permission(sqs: Sqs, request: SqsRequest) -> None:
    label: str = request.input["Label"]
    attribute_rules.permission_label(label)

    def edit(info: QueueInfo, own: dict[str, Any]) -> Mapping[str, Any]:
        policy = _policy(info)
        statements = _statements(policy)
        left = [one for one in statements if not _labelled(one, label)]
        if len(left) == len(statements):
            raise errors.invalid(label, "Label", "can't find label on existing policy.")
        _keep(own, policy | {"Statement": left} if left else None)
        return {}

    await sqs.queue_cache.change(request.queue, edit)


def _one_or_many(items: Sequence[str]) -> str | Sequence[str]:
    return items[0] if len(items) == 1 else items


def _policy(info: QueueInfo) -> dict[str, Any]:
    return json.loads(info.attributes.get("Policy", "{}"))


def _statements(policy: Mapping[str, Any]) -> list[Any]:
    """Return the statements. A policy set as an attribute may have a single one, without a list."""
    found: Any = policy.get("Statement", [])
    return cast("list[Any]", found) if isinstance(found, list) else [found]


def _labelled(statement: Any, label: str) -> bool:
    return isinstance(statement, dict) and cast("dict[str, Any]", statement).get("Sid") == label


def _keep(own: dict[str, Any], policy: Mapping[str, Any] | None) -> None:
    attributes: dict[str, str] = {**own.get("attributes", {})}
    attributes.pop("Policy", None)
    if policy is not None:
        attributes["Policy"] = json.dumps(policy, separators=(",", ":"))
    own["attributes"] = attributes
