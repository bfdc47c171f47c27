"""CreateQueue, DeleteQueue, GetQueueUrl, ListQueues, Get- and SetQueueAttributes, PurgeQueue,
ListDeadLetterSourceQueues."""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairlead.server.sqs import book, checks, errors, limits, queue_attributes, settings
from fairlead.server.sqs.asking import Ask
from fairlead.values import Policy

if TYPE_CHECKING:
    from fairlead.server.sqs.service import Sqs

PURGE_PAUSE = 60  # seconds between two purges of a queue

_ACCOUNT = re.compile(r"[0-9]{12}")
_PURGED = "sqs:purged"


async def create_queue(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    name: str = ask.input["QueueName"]
    given: dict[str, str] = ask.input.get("Attributes", {})
    tags: dict[str, str] = ask.input.get("tags", {})
    fifo = settings.is_true(given.get("FifoQueue", ""))
    checks.queue_name(name, fifo)
    extended = sqs.options.extended or settings.is_true(tags.get(book.EXTENDED_TAG, ""))
    settings.attributes(given, fifo, book.extended_bounds() if extended else None)
    if tags:
        settings.tags(tags)
        settings.tag_count(name, len(tags))
    url = {"QueueUrl": book.url_of(ask, name)}
    if await _is_there_already(sqs, ask, name, given):
        return url
    await _check_pause(sqs, name)
    await queue_attributes.check_dead_letter(sqs.book, ask, name, fifo, given)
    own: dict[str, Any] = {"tags": tags}
    core = queue_attributes.apply(given, own)
    if fifo:
        own["scope"] = given.get("DeduplicationScope", "queue")
    made = await sqs.book.create(
        name,
        {
            "lease": book.VISIBILITY,
            "expires": book.RETENTION,
            "max_attempts": 0,
            "max_body": book.MAX_BODY,
            # A batch is filled from one group before the next.
            "policy": Policy(ordered=fifo, weight=limits.RECEIVE if fifo else 1),
            **core,
            "meta": book.with_sqs_part({}, own),
        },
    )
    if not made:  # somebody was faster
        await _is_there_already(sqs, ask, name, given)
    return url


async def _is_there_already(sqs: Sqs, ask: Ask, name: str, given: Mapping[str, str]) -> bool:
    """Whether there is such a queue; QueueAlreadyExists where it is not as it is asked for."""
    try:
        known = await sqs.book.fresh(name)
    except errors.SqsError as error:
        if error.kind is errors.QUEUE_DOES_NOT_EXIST:
            return False
        raise
    attribute = queue_attributes.difference(known, given, book.arn_of(ask, name))
    if attribute is not None:
        raise errors.QUEUE_NAME_EXISTS(
            "A queue already exists with the same name and a different value for attribute "
            f"{attribute}"
        )
    return True


async def delete_queue(sqs: Sqs, ask: Ask) -> None:
    name = checks.queue_of(ask.input["QueueUrl"])
    if not await sqs.book.drop(name):
        raise errors.QUEUE_DOES_NOT_EXIST()
    if sqs.options.recreate_pause > 0 and book.is_sqs_name(name):
        internal = await sqs.internal()
        await internal.remember(f"deleted:{name}", True, keep=sqs.options.recreate_pause)


async def _check_pause(sqs: Sqs, name: str) -> None:
    if sqs.options.recreate_pause > 0:
        internal = await sqs.internal()
        if await internal.recall(f"deleted:{name}") is not None:
            raise errors.QUEUE_DELETED_RECENTLY()


async def get_queue_url(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    name: str = ask.input["QueueName"]
    await sqs.book.fresh(name)
    # All accounts share the queues of one database; the URL has the account that was asked for.
    owner: str = ask.input.get("QueueOwnerAWSAccountId", "")
    account = owner if _ACCOUNT.fullmatch(owner) else ask.account
    return {"QueueUrl": f"{ask.base_url}/{account}/{name}"}


async def get_queue_attributes(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    name = checks.queue_of(ask.input["QueueUrl"])
    known = await sqs.book.fresh(name)
    asked = settings.asked_of_queue(ask.input.get("AttributeNames", []))
    shown = queue_attributes.shown(known, book.arn_of(ask, name))
    if asked & queue_attributes.COUNTS.keys():
        stats = await sqs.book.queue(name).stats()
        for attribute, count in queue_attributes.COUNTS.items():
            shown[attribute] = str(count(stats))
    return {"Attributes": {key: value for key, value in shown.items() if key in asked}}


async def set_queue_attributes(sqs: Sqs, ask: Ask) -> None:
    name = checks.queue_of(ask.input["QueueUrl"])
    given: dict[str, str] = ask.input["Attributes"]
    known = await sqs.book.fresh(name)
    settings.attributes(given, known.fifo, known.bounds)
    if known.fifo and not settings.is_true(given.get("FifoQueue", "true")):
        raise errors.INVALID_ATTRIBUTE_VALUE(
            "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not "
            "supported."
        )
    await queue_attributes.check_dead_letter(sqs.book, ask, name, known.fifo, given)
    now = await sqs.book.now()

    def edit(known: book.Known, own: dict[str, Any]) -> Mapping[str, Any]:
        own["modified"] = int(now)
        return queue_attributes.apply(given, own)

    await sqs.book.change(name, edit)


async def purge_queue(sqs: Sqs, ask: Ask) -> None:
    name = checks.queue_of(ask.input["QueueUrl"])
    queue = sqs.book.queue(name)
    if await queue.recall(_PURGED) is not None:
        raise errors.PURGE_QUEUE_IN_PROGRESS(
            f"Only one PurgeQueue operation on {name} is allowed every {PURGE_PAUSE} seconds."
        )
    await queue.purge()
    await queue.remember(_PURGED, True, keep=PURGE_PAUSE)  # after it, for a purge forgets it


# --- lists ------------------------------------------------------------------------------------


async def list_queues(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    prefix: str = ask.input.get("QueueNamePrefix", "")
    names = [
        name
        for name in await sqs.book.names()
        if name.startswith(prefix) and ask.allows(ask.action, name)
    ]
    urls, token = _page(ask, names, prefix)
    return {"QueueUrls": urls, "NextToken": token}


async def list_dead_letter_source_queues(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    name = checks.queue_of(ask.input["QueueUrl"])
    await sqs.book.fresh(name)
    names = [source for source in await sqs.book.sources(name) if ask.allows(ask.action, source)]
    urls, token = _page(ask, names, name)
    return {"queueUrls": urls, "NextToken": token}


def _page(ask: Ask, names: Sequence[str], of: str) -> tuple[list[str], str | None]:
    """The URLs of one page and where the next one begins; `of`: what the list is of.

    A token is the last name of its page, so a page is right whatever comes and goes before it.
    Without MaxResults there is one page, as at AWS.
    """
    most: int | None = ask.input.get("MaxResults")
    token: str | None = ask.input.get("NextToken")
    if most is not None:
        checks.max_results(most)
    if token is not None:
        if most is None:
            raise errors.INVALID_PARAMETER_VALUE(
                "MaxResults is a mandatory parameter when you provide a value for NextToken."
            )
        after = _after(token, of)
        names = [name for name in names if name > after]
    page = names[: most or limits.MAX_RESULTS]
    more = most is not None and len(names) > len(page)
    return [book.url_of(ask, name) for name in page], _token(of, page[-1]) if more else None


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
