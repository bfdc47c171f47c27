"""The queues of the configuration file: created if missing, and set to the file's values.

Attributes and tags that the file does not name stay unchanged. A queue that is removed from the
file is not deleted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fairturn.core.errors import InvalidArgument
from fairturn.server.auth.callers import anonymous
from fairturn.server.config import Declared
from fairturn.server.sqs.request import Options, Service, SqsRequest
from fairturn.sqs import errors
from fairturn.sqs.errors import SqsError

log = logging.getLogger("fairturn.server")
_NAMES_ANOTHER = "RedrivePolicy"  # it names another queue, which may come later in the file

Ask = Callable[..., Awaitable[Mapping[str, Any]]]  # an action, a queue, and members of the input


async def declare(sqs: Service, options: Options, queues: Mapping[str, Declared]) -> None:
    caller = anonymous(options)

    async def ask(action: str, name: str, **input: Any) -> Mapping[str, Any]:
        return await sqs.answer(SqsRequest(action, name, input, "", caller)) or {}

    for step in (_create, _set):
        for name, queue in queues.items():
            try:
                await step(ask, name, queue)
            except SqsError as error:
                raise InvalidArgument(
                    f"queue {name} of the configuration: {error.message}"
                ) from error


async def _create(ask: Ask, name: str, queue: Declared) -> None:
    try:
        await ask("GetQueueUrl", name)
    except SqsError as error:
        if error.kind is not errors.QUEUE_DOES_NOT_EXIST:
            raise
        first = {key: text for key, text in queue.attributes.items() if key != _NAMES_ANOTHER}
        await ask("CreateQueue", name, Attributes=first, tags=dict(queue.tags))
        log.info("created queue %s", name)


async def _set(ask: Ask, name: str, queue: Declared) -> None:
    known = (await ask("GetQueueAttributes", name, AttributeNames=["All"]))["Attributes"]
    changed = {
        key: text for key, text in queue.attributes.items() if not _same(known.get(key, ""), text)
    }
    if changed:
        await ask("SetQueueAttributes", name, Attributes=changed)
        log.info("queue %s: set %s", name, ", ".join(sorted(changed)))
    tags = (await ask("ListQueueTags", name))["Tags"]
    new = {key: text for key, text in queue.tags.items() if tags.get(key) != text}
    if new:
        await ask("TagQueue", name, Tags=new)


def _same(one: str, other: str) -> bool:
    if one == other or one.lower() == other.lower() in ("true", "false"):
        return True
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False
