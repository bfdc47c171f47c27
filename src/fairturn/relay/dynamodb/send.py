"""Waiting messages as entries for SQS, and sending them in batches."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairturn.relay.destination import Later, Never, Outcome
from fairturn.relay.dynamodb import errors
from fairturn.relay.dynamodb.items import HORIZON, Waiting
from fairturn.relay.sqs.entries import UNMENTIONED, Entry, batches, failed
from fairturn.relay.sqs.errors import meaning
from fairturn.sqs import contents


class Answer(NamedTuple):
    """The outcome of a message. ``perhaps``: it may have arrived, and only the answer was lost."""

    outcome: Outcome
    perhaps: bool = False


def entry(place: int, message: Waiting, now: float, group: str | None) -> Entry:
    """The entry of a message. ``group``: its MessageGroupId; None: it is no FIFO queue."""
    fields: dict[str, Any] = {"Id": str(place), "MessageBody": message.body}
    if message.attributes:
        fields["MessageAttributes"] = message.attributes
    perform_at = message.at.timestamp()
    if group is None:
        # Rounded up, so that it is not early. An overdue message has no delay.
        fields["DelaySeconds"] = min(max(math.ceil(perform_at - now), 0), HORIZON)
    else:  # a FIFO queue has no delay for a message, but it recognizes a duplicate
        fields["MessageDeduplicationId"] = _fingerprint(message)
        fields["MessageGroupId"] = group
    return Entry(place, fields, contents.size(message.body, message.attributes))


def _fingerprint(message: Waiting) -> str:
    """The deduplication id: the same at every try, and another one if the job is put again with
    another body."""
    what = [message.job_id, message.at.timestamp(), message.body, message.attributes]
    text = json.dumps(what, sort_keys=True, default=bytes.hex)
    return hashlib.sha256(text.encode()).hexdigest()


def send(sqs: Any, url: str, entries: Sequence[Entry], in_time: Callable[[], bool]) -> list[Answer]:
    """Send the entries and return the answers in their order. Errors of AWS are answers, too. When
    it is no longer ``in_time`` between two calls, the rest is not sent."""
    found: list[Answer] = []
    waiting = batches(entries)
    while waiting:
        if not in_time():  # SQS was slow, or this process slept: another drain may claim them
            late = Answer(Later("its claim was too old for sending it", down=True))
            return [*found, *(late for batch in waiting for _ in batch)]
        batch = waiting.pop(0)
        try:
            answer = sqs.send_message_batch(QueueUrl=url, Entries=[one.fields for one in batch])
        except errors.ERRORS as error:
            why = meaning(error, url)
            if isinstance(why, Never) and len(batch) > 1:
                # One of them is wrong, or the server accepts less than SQS: send halves.
                middle = len(batch) // 2
                waiting = [batch[:middle], batch[middle:], *waiting]
                continue
            lost = Answer(why or Later(str(error), down=True), not errors.certain(error))
            found += [lost] * len(batch)
            if not isinstance(why, Never):  # the next ones would fail, too, or overtake this one
                rest = Answer(lost.outcome)
                return [*found, *(rest for batch in waiting for _ in batch)]
        else:
            found += _answers(batch, answer)
    return found


def _answers(batch: Sequence[Entry], answer: dict[str, Any]) -> list[Answer]:
    refused = {one["Id"]: Answer(failed(one)) for one in answer.get("Failed", ())}
    sent = {one["Id"]: Answer(None) for one in answer.get("Successful", ())}
    unknown = Answer(UNMENTIONED, perhaps=True)
    return [sent.get(one.id) or refused.get(one.id) or unknown for one in batch]
