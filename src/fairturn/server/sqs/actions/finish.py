"""DeleteMessage, ChangeMessageVisibility and their batches.

On a standard queue a receipt handle is valid as long as its message exists, even if the message has
been received again since. On a FIFO queue it is valid until its visibility timeout: after that the
group is unlocked, and its next messages may be in flight.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairturn.core.message import Message
from fairturn.operations.receives import row_of
from fairturn.server.sqs.queue_cache import QueueInfo
from fairturn.server.sqs.request import SqsRequest
from fairturn.sqs import checks, errors, limits, receipt_handles
from fairturn.sqs.errors import SqsError
from fairturn.sqs.receipt_handles import Receipt

if TYPE_CHECKING:
    from fairturn.aio.queue import AsyncQueue
    from fairturn.server.sqs.service import Sqs

SKEW = 60  # seconds by which the clocks of two servers may differ

Entry = Mapping[str, Any]
Refusals = Sequence[SqsError | None]  # one for each entry
Check = Callable[[QueueInfo, Entry, Receipt], None]
# Does an action on checked entries, which have these receipts.
Act = Callable[["Sqs", QueueInfo, Sequence[Entry], Sequence[Receipt]], Awaitable[Refusals]]


async def delete_message(sqs: Sqs, request: SqsRequest) -> None:
    await _single(sqs, request, _delete)


async def delete_message_batch(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    return await _batch(sqs, request, _delete)


async def change_message_visibility(sqs: Sqs, request: SqsRequest) -> None:
    await _single(sqs, request, _change, _check_visibility)


async def change_message_visibility_batch(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    return await _batch(sqs, request, _change, _check_visibility)


async def _single(sqs: Sqs, request: SqsRequest, act: Act, check: Check | None = None) -> None:
    info = await sqs.queue_cache.cached(request.queue)
    [refused] = await act(sqs, info, [request.input], [_receipt(info, request.input, check)])
    if refused is not None:
        raise refused


async def _batch(
    sqs: Sqs, request: SqsRequest, act: Act, check: Check | None = None
) -> Mapping[str, Any]:
    entries: list[dict[str, Any]] = request.input.get("Entries", [])
    info = await sqs.queue_cache.cached(request.queue)
    checks.batch(request.action, entries)
    failed: list[dict[str, str | bool]] = []
    sound: list[Entry] = []
    receipts: list[Receipt] = []
    for entry in entries:
        try:
            receipts.append(_receipt(info, entry, check))
            sound.append(entry)
        except SqsError as error:
            failed.append(error.entry(entry["Id"]))
    successful: list[dict[str, str]] = []
    refusals: Refusals = await act(sqs, info, sound, receipts) if sound else ()
    for entry, refused in zip(sound, refusals, strict=True):
        if refused is None:
            successful.append({"Id": entry["Id"]})
        else:
            failed.append(refused.entry(entry["Id"]))
    return {"Successful": successful, "Failed": failed}


def _receipt(info: QueueInfo, entry: Entry, check: Check | None) -> Receipt:
    """Check an entry and return its receipt."""
    receipt = receipt_handles.receipt(entry["ReceiptHandle"])
    if check is not None:
        check(info, entry, receipt)
    return receipt


# --- deleting ---


async def _delete(
    sqs: Sqs, info: QueueInfo, entries: Sequence[Entry], receipts: Sequence[Receipt]
) -> Refusals:
    if info.fifo:
        return await _delete_fifo(sqs, info, entries, receipts)
    deleted = await sqs.traffic.delete(info.name, receipts, info.ordered)
    if not all(deleted):
        queue = sqs.queue_cache.queue(info.name)
        for receipt, done in zip(receipts, deleted, strict=True):
            if not done:
                await _delete_old(queue, receipt)
    return [None] * len(receipts)


async def _delete_old(queue: AsyncQueue, receipt: Receipt) -> None:
    """Delete a message by the handle of an older delivery, if the message still exists."""
    message = await _message_of(queue, receipt)
    if message is not None and message.state != "done":
        await queue.cancel(id=receipt.id, force=True)


async def _message_of(queue: AsyncQueue, receipt: Receipt) -> Message | None:
    """Return the message of an older delivery. After a failover or a restore another message may
    have its id; that one was created at another time."""
    message = await queue.get(id=receipt.id)
    if message is None or row_of(message).created_at != receipt.created:
        return None
    return message


async def _delete_fifo(
    sqs: Sqs, info: QueueInfo, entries: Sequence[Entry], receipts: Sequence[Receipt]
) -> Refusals:
    live = await _live(sqs, info, receipts)
    held = [receipt for receipt in receipts if live[receipt]]
    done = dict(zip(held, await sqs.traffic.delete(info.name, held, True), strict=True))
    return [
        # A message that does not exist counts as deleted.
        None
        if live[receipt] is None or done.get(receipt)
        else errors.invalid(
            entry["ReceiptHandle"], "ReceiptHandle", "The receipt handle has expired."
        )
        for entry, receipt in zip(entries, receipts, strict=True)
    ]


async def _live(
    sqs: Sqs, info: QueueInfo, receipts: Sequence[Receipt]
) -> dict[Receipt, bool | None]:
    """Return whether each message is in flight by this delivery; None: it does not exist."""
    queue = sqs.queue_cache.queue(info.name)
    found: dict[Receipt, bool | None] = {}
    now = await sqs.queue_cache.now()
    for receipt in receipts:
        message = await queue.get(id=receipt.id)
        if message is None:
            found[receipt] = None
            continue
        until = message.lease_until
        found[receipt] = (
            message.state == "leased"
            and message.token == receipt.token
            and until is not None
            and until.timestamp() > now
        )
    return found


# --- changing visibility ---


def _check_visibility(info: QueueInfo, entry: Entry, receipt: Receipt) -> None:
    seconds: int | None = entry.get("VisibilityTimeout")
    if seconds is None:
        raise errors.missing("VisibilityTimeout")
    checks.number("VisibilityTimeout", seconds, info.max_visibility)
    if info.extended:
        return
    if time.time() + seconds > receipt.received + limits.VISIBILITY + SKEW:
        raise errors.invalid(
            seconds,
            "VisibilityTimeout",
            "Total VisibilityTimeout for the message is beyond the limit "
            f"[{limits.VISIBILITY} seconds]",
        )


async def _change(
    sqs: Sqs, info: QueueInfo, entries: Sequence[Entry], receipts: Sequence[Receipt]
) -> Refusals:
    queue = sqs.queue_cache.queue(info.name)
    live = await _live(sqs, info, receipts) if info.fifo else None
    changed: set[Receipt] = set()
    for seconds in {entry["VisibilityTimeout"] for entry in entries}:
        some = {
            receipt
            for entry, receipt in zip(entries, receipts, strict=True)
            if entry["VisibilityTimeout"] == seconds and (live is None or live[receipt])
        }
        changed |= await _extend(queue, some, seconds)
        if not info.fifo:
            for receipt in some - changed:
                if await _change_old(queue, receipt, seconds):
                    changed.add(receipt)
    sqs.traffic.polls.wake(info.name)  # a message may be visible now
    return [
        None
        if receipt in changed
        else errors.invalid(
            entry["ReceiptHandle"],
            "ReceiptHandle",
            "Message does not exist or is not available for visibility timeout change.",
        )
        for entry, receipt in zip(entries, receipts, strict=True)
    ]


async def _extend(queue: AsyncQueue, receipts: set[Receipt], seconds: int) -> set[Receipt]:
    """Set the visibility of these deliveries; return those that are still the latest."""
    leases = [queue.lease(receipt.id, receipt.token) for receipt in receipts]
    extended = await queue.extend(leases, seconds, exact=True)
    lost = {(message.id, message.token) for message in extended.lost}
    return {receipt for receipt in receipts if (receipt.id, receipt.token) not in lost}


async def _change_old(queue: AsyncQueue, receipt: Receipt, seconds: int) -> bool:
    """Change a message by the handle of an older delivery: the latest delivery is changed."""
    message = await _message_of(queue, receipt)
    if message is None or message.token is None:
        return False
    latest = receipt._replace(token=message.token)
    return bool(await _extend(queue, {latest}, seconds))
