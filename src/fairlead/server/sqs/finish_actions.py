"""DeleteMessage, ChangeMessageVisibility and their batches.

On a standard queue a receipt handle is good for as long as its message exists, even when the
message has been received again since. On a FIFO queue it ends with its visibility: then the group
is free, and what comes after the message may be on its way already.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairlead.server.sqs import checks, errors, handles, limits
from fairlead.server.sqs.asking import Ask
from fairlead.server.sqs.book import Known
from fairlead.server.sqs.errors import SqsError
from fairlead.server.sqs.handles import Receipt
from fairlead.server.sqs.receive_actions import is_ordered, most_visibility

if TYPE_CHECKING:
    from fairlead.aio.queue import AsyncQueue
    from fairlead.server.sqs.service import Sqs

SKEW = 60  # seconds by which the clocks of two servers may differ

Entry = Mapping[str, Any]
# Does an action on some entries, all of them checked; what is refused of each, or None.
Doing = Callable[[Sequence[Entry], Sequence[Receipt]], Awaitable[Sequence[SqsError | None]]]


async def delete_message(sqs: Sqs, ask: Ask) -> None:
    known = await sqs.book.known(checks.queue_of(ask.input["QueueUrl"]))
    handle: str = ask.input["ReceiptHandle"]
    [refused] = await _delete(sqs, known, [ask.input], [handles.receipt(handle)])
    if refused is not None:
        raise refused


async def delete_message_batch(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    entries: list[dict[str, Any]] = ask.input.get("Entries", [])
    known = await sqs.book.known(checks.queue_of(ask.input["QueueUrl"]))
    checks.batch("DeleteMessageBatch", entries)
    return await _batch(
        entries, lambda some, receipts: _delete(sqs, known, some, receipts), lambda entry, _: None
    )


async def change_message_visibility(sqs: Sqs, ask: Ask) -> None:
    known = await sqs.book.known(checks.queue_of(ask.input["QueueUrl"]))
    receipt = handles.receipt(ask.input["ReceiptHandle"])
    _check_visibility(known, ask.input, receipt)
    [refused] = await _change(sqs, known, [ask.input], [receipt])
    if refused is not None:
        raise refused


async def change_message_visibility_batch(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    entries: list[dict[str, Any]] = ask.input.get("Entries", [])
    known = await sqs.book.known(checks.queue_of(ask.input["QueueUrl"]))
    checks.batch("ChangeMessageVisibilityBatch", entries)
    return await _batch(
        entries,
        lambda some, receipts: _change(sqs, known, some, receipts),
        lambda entry, receipt: _check_visibility(known, entry, receipt),
    )


async def _batch(
    entries: Sequence[Entry], do: Doing, check: Callable[[Entry, Receipt], None]
) -> Mapping[str, Any]:
    failed: list[dict[str, str | bool]] = []
    sound: list[Entry] = []
    receipts: list[Receipt] = []
    for entry in entries:
        try:
            receipt = handles.receipt(entry["ReceiptHandle"])
            check(entry, receipt)
        except SqsError as error:
            failed.append(error.entry(entry["Id"]))
        else:
            sound.append(entry)
            receipts.append(receipt)
    successful: list[dict[str, str]] = []
    if sound:
        for entry, refused in zip(sound, await do(sound, receipts), strict=True):
            if refused is None:
                successful.append({"Id": entry["Id"]})
            else:
                failed.append(refused.entry(entry["Id"]))
    return {"Successful": successful, "Failed": failed}


# --- deleting ---


async def _delete(
    sqs: Sqs, known: Known, entries: Sequence[Entry], receipts: Sequence[Receipt]
) -> Sequence[SqsError | None]:
    if known.fifo:
        return await _delete_fifo(sqs, known, entries, receipts)
    deleted = await sqs.traffic.delete(known.name, receipts, is_ordered(known))
    if not all(deleted):
        queue = sqs.book.queue(known.name)
        for receipt, done in zip(receipts, deleted, strict=True):
            if not done:
                await _delete_old(queue, receipt)
    return [None] * len(receipts)


async def _delete_old(queue: AsyncQueue, receipt: Receipt) -> None:
    """The handle's delivery is over. The message goes all the same, if there still is one."""
    message = await queue.get(id=receipt.id)
    if message is not None and message.state != "done":
        await queue.cancel(id=receipt.id, force=True)


async def _delete_fifo(
    sqs: Sqs, known: Known, entries: Sequence[Entry], receipts: Sequence[Receipt]
) -> Sequence[SqsError | None]:
    live = await _live(sqs, known, receipts)
    held = [receipt for receipt in receipts if live[receipt]]
    done = dict(zip(held, await sqs.traffic.delete(known.name, held, True), strict=True))
    return [
        # Deleted already is as good as deleted now.
        None
        if live[receipt] is None or done.get(receipt)
        else errors.invalid(
            entry["ReceiptHandle"], "ReceiptHandle", "The receipt handle has expired."
        )
        for entry, receipt in zip(entries, receipts, strict=True)
    ]


async def _live(sqs: Sqs, known: Known, receipts: Sequence[Receipt]) -> dict[Receipt, bool | None]:
    """Whether each message is in flight by this very delivery; None: there is no such message."""
    queue = sqs.book.queue(known.name)
    found: dict[Receipt, bool | None] = {}
    now = await sqs.book.now()
    for receipt in receipts:
        message = await queue.get(id=receipt.id)
        if message is None:
            found[receipt] = None
            continue
        until = message.lease_until
        found[receipt] = (
            message.state == "leased"
            and message.deliveries == receipt.delivery
            and until is not None
            and until.timestamp() > now
        )
    return found


# --- changing visibility ---


def _check_visibility(known: Known, entry: Entry, receipt: Receipt) -> None:
    seconds: int | None = entry.get("VisibilityTimeout")
    if seconds is None:
        raise errors.missing("VisibilityTimeout")
    checks.visibility(seconds, most_visibility(known))
    if known.extended:
        return
    if time.time() + seconds > receipt.received + limits.VISIBILITY + SKEW:
        raise errors.invalid(
            seconds,
            "VisibilityTimeout",
            "Total VisibilityTimeout for the message is beyond the limit "
            f"[{limits.VISIBILITY} seconds]",
        )


async def _change(
    sqs: Sqs, known: Known, entries: Sequence[Entry], receipts: Sequence[Receipt]
) -> Sequence[SqsError | None]:
    queue = sqs.book.queue(known.name)
    live = await _live(sqs, known, receipts) if known.fifo else None
    changed: set[Receipt] = set()
    for seconds in {entry["VisibilityTimeout"] for entry in entries}:
        some = {
            receipt
            for entry, receipt in zip(entries, receipts, strict=True)
            if entry["VisibilityTimeout"] == seconds and (live is None or live[receipt])
        }
        changed |= await _extend(queue, some, seconds)
        if not known.fifo:
            for receipt in some - changed:
                if await _change_old(queue, receipt, seconds):
                    changed.add(receipt)
    sqs.traffic.polls.wake(known.name)  # something may be visible now
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
    """Those whose deliveries are the latest, and go on for so many seconds now."""
    leases = [queue.lease(receipt.id, receipt.delivery) for receipt in receipts]
    extended = await queue.extend(leases, seconds, exact=True)
    lost = {(message.id, message.deliveries) for message in extended.lost}
    return {receipt for receipt in receipts if (receipt.id, receipt.delivery) not in lost}


async def _change_old(queue: AsyncQueue, receipt: Receipt, seconds: int) -> bool:
    """The handle's delivery is over; if the message was received again, that delivery is meant."""
    message = await queue.get(id=receipt.id)
    if message is None or message.state != "leased":
        return False
    latest = receipt._replace(delivery=message.deliveries)
    return bool(await _extend(queue, {latest}, seconds))
