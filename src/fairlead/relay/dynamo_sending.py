"""What waited in DynamoDB to a queue of SQS, in batches that it takes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairlead.relay import dynamo_errors as errors
from fairlead.relay.destination import Later, Never, Outcome
from fairlead.relay.dynamo_items import HORIZON, Waiting
from fairlead.relay.sqs_entries import Entry, batches, failed
from fairlead.relay.sqs_trouble import meaning
from fairlead.server.sqs import contents


class Answer(NamedTuple):
    """What became of a message. ``perhaps``: it failed, or only its answer did not arrive."""

    outcome: Outcome
    perhaps: bool = False


def entry(place: int, message: Waiting, now: float, group: str | None) -> Entry:
    """``group``: of a FIFO queue."""
    fields: dict[str, Any] = {"Id": str(place), "MessageBody": message.body}
    if message.attributes:
        fields["MessageAttributes"] = message.attributes
    perform_at = message.at.timestamp()
    if group is None:
        # Rounded up, so that it is not early; overdue is at once.
        fields["DelaySeconds"] = min(max(math.ceil(perform_at - now), 0), HORIZON)
    else:  # a FIFO queue has no delays of single messages; but it knows what it was sent before
        fields["MessageDeduplicationId"] = _fingerprint(message)
        fields["MessageGroupId"] = group
    return Entry(place, fields, contents.size(message.body, message.attributes))


def _fingerprint(message: Waiting) -> str:
    """The same for the same message. What was put again with another body is another one."""
    what = [message.job_id, message.at.timestamp(), message.body, message.attributes]
    text = json.dumps(what, sort_keys=True, default=bytes.hex)
    return hashlib.sha256(text.encode()).hexdigest()


def send(sqs: Any, url: str, entries: Sequence[Entry], in_time: Callable[[], bool]) -> list[Answer]:
    """Send them; what became of each, in their order. Nothing of AWS's is raised. They may be many
    calls: when it is no longer ``in_time`` the rest is not sent."""
    found: list[Answer] = []
    waiting = batches(entries)
    while waiting:
        if not in_time():  # SQS was slow, or this process asleep: another may have them
            late = Answer(Later("it was claimed too long ago to be sent now", down=True))
            return [*found, *(late for batch in waiting for _ in batch)]
        batch = waiting.pop(0)
        try:
            answer = sqs.send_message_batch(QueueUrl=url, Entries=[one.fields for one in batch])
        except errors.ERRORS as error:
            why = meaning(error, url)
            if isinstance(why, Never) and len(batch) > 1:
                # For what one of them is like, or a server takes less than SQS does: by halves.
                middle = len(batch) // 2
                waiting[:0] = [batch[:middle], batch[middle:]]
                continue
            lost = Answer(why or Later(str(error), down=True), not errors.certain(error))
            found += [lost] * len(batch)
            if not isinstance(why, Never):  # what follows would fail alike, or pass it
                rest = Answer(lost.outcome)
                return [*found, *(rest for batch in waiting for _ in batch)]
        else:
            found += _answers(batch, answer)
    return found


def _answers(batch: Sequence[Entry], answer: dict[str, Any]) -> list[Answer]:
    refused = {one["Id"]: Answer(failed(one)) for one in answer.get("Failed", ())}
    sent = {one["Id"]: Answer(None) for one in answer.get("Successful", ())}
    unknown = Answer(Later("SQS answered, and said nothing about this message"), perhaps=True)
    return [sent.get(one.id) or refused.get(one.id) or unknown for one in batch]
