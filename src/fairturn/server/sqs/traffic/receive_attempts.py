"""ReceiveRequestAttemptId: a client can repeat a receive whose answer was lost.

The id and the deliveries of its answer are remembered for five minutes in the database: any process
can repeat the answer. It is repeated only while each of its messages is in flight by the same
delivery with unchanged visibility. After a delete, a change of visibility or another receive of one
of them, the next call with the id is an ordinary receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fairturn.aio.queue import AsyncQueue
from fairturn.core.message import Message
from fairturn.operations.receives import row_of

KEEP = 300  # seconds

# Remembered for each message: its id, its token, and until when it is invisible.
_Given = tuple[int, int, int | None]


class Answer(NamedTuple):
    messages: Sequence[Message]
    received: int  # seconds since the epoch: a part of the receipt handles, which must not change


NOTHING = Answer((), 0)


async def remember(queue: AsyncQueue, attempt: str, answer: Answer) -> None:
    given = [_given(message) for message in answer.messages]
    value = {"received": answer.received, "given": given}
    await queue.remember(_name(attempt), value, keep=KEEP)


async def repeated(queue: AsyncQueue, attempt: str, lease: float) -> Answer:
    """Return the same messages by the same deliveries, invisible for ``lease`` seconds from now;
    nothing if there was no such attempt, or a message has changed since."""
    remembered: dict[str, Any] | None = await queue.recall(_name(attempt))
    if remembered is None:
        return NOTHING
    given: list[_Given] = [(id, token, until) for id, token, until in remembered["given"]]
    messages = await _get(queue, given)
    if [_given(message) for message in messages if message.state == "leased"] != given:
        return NOTHING
    leases = [queue.lease(id, token) for id, token, _ in given]
    extended = await queue.extend(leases, lease, exact=True)
    if extended.lost:
        return NOTHING
    answer = Answer(await _get(queue, given), remembered["received"])
    await remember(queue, attempt, answer)
    return answer


async def _get(queue: AsyncQueue, given: Sequence[_Given]) -> list[Message]:
    found = [await queue.get(id=id) for id, _, _ in given]
    return [message for message in found if message is not None]


def _given(message: Message) -> _Given:
    row = row_of(message)
    return row.id, row.token, row.lease_until


def _name(attempt: str) -> str:
    return f"sqs:attempt:{attempt}"
