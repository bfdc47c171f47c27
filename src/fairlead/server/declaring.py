"""The queues of the configuration file: made if missing, set to what the file says.

Only what the file names is touched: other attributes and tags keep what somebody gave them, and a
queue that is taken out of the file stays.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from fairlead.errors import InvalidArgument
from fairlead.server.callers import everyone
from fairlead.server.config import Declared
from fairlead.server.http import Answers
from fairlead.server.sqs import errors
from fairlead.server.sqs.asking import Ask, Options
from fairlead.server.sqs.bodies import NOBODY
from fairlead.server.sqs.errors import SqsError

log = logging.getLogger("fairlead.server")
_NAMES_ANOTHER = "RedrivePolicy"  # a queue that may come later in the file
_BASE = "http://localhost"  # of URLs that nobody sees


async def declare(sqs: Answers, options: Options, queues: Mapping[str, Declared]) -> None:
    async def ask(action: str, **input: Any) -> Mapping[str, Any]:
        found = await sqs.answer(
            Ask(
                action=action,
                input=input,
                base_url=_BASE,
                account=options.account,
                region=options.region,
                sender=NOBODY,
                trace=None,
                allows=everyone,
            )
        )
        return found or {}

    for step in (_make, _set):
        for name, queue in queues.items():
            try:
                await step(ask, name, queue)
            except SqsError as error:
                raise InvalidArgument(
                    f"queue {name} of the configuration: {error.message}"
                ) from error


async def _make(ask: Any, name: str, queue: Declared) -> None:
    try:
        await ask("GetQueueUrl", QueueName=name)
    except SqsError as error:
        if error.kind is not errors.QUEUE_DOES_NOT_EXIST:
            raise
        first = {key: text for key, text in queue.attributes.items() if key != _NAMES_ANOTHER}
        await ask("CreateQueue", QueueName=name, Attributes=first, tags=dict(queue.tags))
        log.info("queue %s was made", name)


async def _set(ask: Any, name: str, queue: Declared) -> None:
    url = (await ask("GetQueueUrl", QueueName=name))["QueueUrl"]
    known = (await ask("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])).get(
        "Attributes", {}
    )
    changed = {
        key: text for key, text in queue.attributes.items() if not _same(known.get(key, ""), text)
    }
    if changed:
        await ask("SetQueueAttributes", QueueUrl=url, Attributes=changed)
        log.info("queue %s: %s set", name, ", ".join(sorted(changed)))
    tags = (await ask("ListQueueTags", QueueUrl=url)).get("Tags", {})
    new = {key: text for key, text in queue.tags.items() if tags.get(key) != text}
    if new:
        await ask("TagQueue", QueueUrl=url, Tags=new)


def _same(one: str, other: str) -> bool:
    if one == other or one.lower() == other.lower() in ("true", "false"):
        return True
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False
