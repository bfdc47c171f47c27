"""TagQueue, UntagQueue, ListQueueTags, AddPermission, RemovePermission.

Permissions are kept and shown, as a part of the queue's Policy; who may do what is decided by the
server's access keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from fairlead.server.sqs import checks, errors, settings
from fairlead.server.sqs.asking import Ask
from fairlead.server.sqs.book import Known, arn_of

if TYPE_CHECKING:
    from fairlead.server.sqs.service import Sqs


async def tag_queue(sqs: Sqs, ask: Ask) -> None:
    name = checks.queue_of(ask.input["QueueUrl"])
    given: dict[str, str] = ask.input["Tags"]
    settings.tags(given)

    def edit(known: Known, own: dict[str, Any]) -> Mapping[str, Any]:
        own["tags"] = {**known.tags, **given}
        settings.tag_count(name, len(own["tags"]))
        return {}

    await sqs.book.change(name, edit)


async def untag_queue(sqs: Sqs, ask: Ask) -> None:
    name = checks.queue_of(ask.input["QueueUrl"])
    keys: list[str] = ask.input.get("TagKeys", [])
    settings.tag_keys(keys)

    def edit(known: Known, own: dict[str, Any]) -> Mapping[str, Any]:
        own["tags"] = {key: value for key, value in known.tags.items() if key not in keys}
        return {}

    await sqs.book.change(name, edit)


async def list_queue_tags(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    known = await sqs.book.fresh(checks.queue_of(ask.input["QueueUrl"]))
    return {"Tags": dict(known.tags)}


# --- permissions ------------------------------------------------------------------------------


async def add_permission(sqs: Sqs, ask: Ask) -> None:
    name = checks.queue_of(ask.input["QueueUrl"])
    label: str = ask.input["Label"]
    accounts: list[str] = ask.input.get("AWSAccountIds", [])
    actions: list[str] = ask.input["Actions"]
    settings.permission(label, accounts, actions)
    arn = arn_of(ask, name)
    statement = {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _one_or_many([f"arn:aws:iam::{id}:root" for id in accounts])},
        "Action": _one_or_many([f"SQS:{action}" for action in actions]),
        "Resource": arn,
    }

    def edit(known: Known, own: dict[str, Any]) -> Mapping[str, Any]:
        policy = _policy(known) or {
            "Version": "2008-10-17",
            "Id": f"{arn}/SQSDefaultPolicy",
        }
        statements = _statements(policy)
        if any(_labelled(one, label) for one in statements):
            raise errors.invalid(label, "Label", "Already exists.")
        _keep(own, policy | {"Statement": [*statements, statement]})
        return {}

    await sqs.book.change(name, edit)


async def remove_permission(sqs: Sqs, ask: Ask) -> None:
    name = checks.queue_of(ask.input["QueueUrl"])
    label: str = ask.input["Label"]
    settings.permission_label(label)

    def edit(known: Known, own: dict[str, Any]) -> Mapping[str, Any]:
        policy = _policy(known)
        statements = _statements(policy)
        left = [one for one in statements if not _labelled(one, label)]
        if len(left) == len(statements):
            raise errors.invalid(label, "Label", "can't find label on existing policy.")
        _keep(own, policy | {"Statement": left} if left else None)
        return {}

    await sqs.book.change(name, edit)


def _one_or_many(items: Sequence[str]) -> str | Sequence[str]:
    return items[0] if len(items) == 1 else items


def _policy(known: Known) -> dict[str, Any]:
    return json.loads(known.attributes.get("Policy", "{}"))


def _statements(policy: Mapping[str, Any]) -> list[Any]:
    """A policy that was set as an attribute may have any shape; one statement may stand alone."""
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
