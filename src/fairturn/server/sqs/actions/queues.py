"""CreateQueue, DeleteQueue, GetQueueUrl, ListQueues, Get- and SetQueueAttributes, PurgeQueue,
ListDeadLetterSourceQueues."""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairturn.core.settings import Policy
from fairturn.server.sqs import attribute_rules, queue_attributes, queue_cache
from fairturn.server.sqs.request import SqsRequest
from fairturn.sqs import checks, errors, limits

if TYPE_CHECKING:
    from fairturn.server.sqs.service import Sqs

PURGE_PAUSE = 60  # seconds between two purges of a queue

_ACCOUNT = re.compile(r"[0-9]{12}")
_PURGED = "sqs:purged"


async def create_queue(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    name = request.queue
    given: dict[str, str] = request.input.get("Attributes", {})
    tags: dict[str, str] = request.input.get("tags", {})
    fifo = attribute_rules.is_true(given.get("FifoQueue", ""))
    checks.queue_name(name, fifo)
    extended = sqs.options.extended or attribute_rules.is_true(
        tags.get(queue_cache.EXTENDED_TAG, "")
    )
    attribute_rules.attributes(given, fifo, extended)
    if tags:
        attribute_rules.tags(tags)
        attribute_rules.tag_count(name, len(tags))
    url = {"QueueUrl": request.url_of(name)}
    if await _is_there_already(sqs, request, name, given):
        return url
    await _check_pause(sqs, name)
    await queue_attributes.check_dead_letter(sqs.queue_cache, request, name, fifo, given)
    own: dict[str, Any] = {"tags": tags}
    core = queue_attributes.apply(given, own)
    if fifo:
        own["scope"] = given.get("DeduplicationScope", "queue")
    created = await sqs.queue_cache.create(
        name,
        {
            "lease": queue_cache.VISIBILITY,
            "expires": queue_cache.RETENTION,
            "max_attempts": 0,
            "max_body": queue_cache.MAX_BODY,
            # A receive takes all it can from one group before the next group.
            "policy": Policy(ordered=fifo, weight=limits.RECEIVE if fifo else 1),
            **core,
            "meta": queue_cache.with_sqs_part({}, own),
        },
    )
    if not created:  # created by another request meanwhile
        await _is_there_already(sqs, request, name, given)
    return url


async def _is_there_already(
    sqs: Sqs, request: SqsRequest, name: str, given: Mapping[str, str]
) -> bool:
    """Whether the queue exists; raise QueueNameExists if it has other attributes."""
    try:
        info = await sqs.queue_cache.fresh(name)
    except errors.SqsError as error:
        if error.kind is errors.QUEUE_DOES_NOT_EXIST:
            return False
        raise
    attribute = queue_attributes.difference(info, given, request.arn_of(name))
    if attribute is not None:
        raise errors.QUEUE_NAME_EXISTS(
            "A queue already exists with the same name and a different value for attribute "
            f"{attribute}"
        )
    return True


async def delete_queue(sqs: Sqs, request: SqsRequest) -> None:
    name = request.queue
    if not await sqs.queue_cache.drop(name):
        raise errors.QUEUE_DOES_NOT_EXIST()
    if sqs.options.recreate_pause > 0 and queue_cache.is_sqs_name(name):
        internal = await sqs.moves.internal()
        await internal.remember(f"deleted:{name}", True, keep=sqs.options.recreate_pause)


async def _check_pause(sqs: Sqs, name: str) -> None:
    if sqs.options.recreate_pause > 0:
        internal = await sqs.moves.internal()
        if await internal.recall(f"deleted:{name}") is not None:
            raise errors.QUEUE_DELETED_RECENTLY()


async def get_queue_url(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    name = request.queue
    await sqs.queue_cache.fresh(name)
    # All accounts share the queues of one database; the URL has the requested account.
    owner: str = request.input.get("QueueOwnerAWSAccountId", "")
    account = owner if _ACCOUNT.fullmatch(owner) else request.caller.account
    return {"QueueUrl": f"{request.base_url}/{account}/{name}"}


async def get_queue_attributes(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    name = request.queue
    info = await sqs.queue_cache.fresh(name)
    asked = attribute_rules.asked_of_queue(request.input.get("AttributeNames", []))
    shown = queue_attributes.shown(info, request.arn_of(name))
    if asked & queue_attributes.COUNTS.keys():
        stats = await sqs.queue_cache.queue(name).stats()
        for attribute, count in queue_attributes.COUNTS.items():
            shown[attribute] = str(count(stats))
    return {"Attributes": {key: value for key, value in shown.items() if key in asked}}


async def set_queue_attributes(sqs: Sqs, request: SqsRequest) -> None:
    name = request.queue
    given: dict[str, str] = request.input["Attributes"]
    info = await sqs.queue_cache.fresh(name)
    attribute_rules.attributes(given, info.fifo, info.extended)
    if info.fifo and not attribute_rules.is_true(given.get("FifoQueue", "true")):
        raise errors.INVALID_ATTRIBUTE_VALUE(
            "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not "
            "supported."
        )
    await queue_attributes.check_dead_letter(sqs.queue_cache, request, name, info.fifo, given)
    now = await sqs.queue_cache.now()

    def edit(info: queue_cache.QueueInfo, own: dict[str, Any]) -> Mapping[str, Any]:
        own["modified"] = int(now)
        return queue_attributes.apply(given, own)

    await sqs.queue_cache.change(name, edit)


async def purge_queue(sqs: Sqs, request: SqsRequest) -> None:
    name = request.queue
    queue = sqs.queue_cache.queue(name)
    if await queue.recall(_PURGED) is not None:
        raise errors.PURGE_QUEUE_IN_PROGRESS(
            f"Only one PurgeQueue operation on {name} is allowed every {PURGE_PAUSE} seconds."
        )
    await queue.purge()
    await queue.remember(_PURGED, True, keep=PURGE_PAUSE)  # after the purge, which deletes it


# --- lists ------------------------------------------------------------------------------------


async def list_queues(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    prefix: str = request.input.get("QueueNamePrefix", "")
    names = [
        name
        for name in await sqs.queue_cache.names()
        if name.startswith(prefix) and request.caller.allows(request.action, name)
    ]
    urls, token = _page(request, names, prefix)
    return {"QueueUrls": urls, "NextToken": token}


async def list_dead_letter_source_queues(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    name = request.queue
    await sqs.queue_cache.fresh(name)
    names = [
        source
        for source in await sqs.queue_cache.sources(name)
        if request.caller.allows(request.action, source)
    ]
    urls, token = _page(request, names, name)
    return {"queueUrls": urls, "NextToken": token}


def _page(request: SqsRequest, names: Sequence[str], of: str) -> tuple[list[str], str | None]:
    """Return the URLs of one page and the token of the next; `of` identifies the list.

    A token has the last name of its page, so that added or deleted queues do not shift the pages.
    Without MaxResults there is one page, as at AWS.
    """
    most: int | None = request.input.get("MaxResults")
    token: str | None = request.input.get("NextToken")
    if most is not None:
        checks.number("MaxResults", most)
    if token is not None:
        if most is None:
            raise errors.INVALID_PARAMETER_VALUE(
                "MaxResults is a mandatory parameter when you provide a value for NextToken."
            )
        after = _after(token, of)
        names = [name for name in names if name > after]
    page = names[: most or limits.MAX_RESULTS]
    more = most is not None and len(names) > len(page)
    return [request.url_of(name) for name in page], _token(of, page[-1]) if more else None


def _token(of: str, last: str) -> str:
    return urlsafe_b64encode(json.dumps([of, last]).encode()).decode()


def _after(token: str, of: str) -> str:
    try:
        found = json.loads(urlsafe_b64decode(token.encode()))
    except (binascii.Error, ValueError, RecursionError):
        found = None
    match found:
        case [str(listed), str(last)] if listed == of:
            return last
        case [str(), str()]:
            raise errors.INVALID_PARAMETER_VALUE(
                "Invalid NextToken value. If you are passing in NextToken, you must not change the "
                "other request parameters."
            )
        case _:
            raise errors.INVALID_PARAMETER_VALUE("Invalid or expired next token.")
