"""How shoryuken-waiter does it, told again in Python: what our tests must be able to catch.

It stores what is more than 15 minutes away, and moves what is due within 15 minutes: all items of a
page are deleted, whoever has them; then they are sent by tens, with the seconds that remain, cut
off. Nobody looks at what SQS says about single entries. An error ends the poll; a supervisor starts
the next one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from fairturn.relay.dynamodb.items import INDEX, SCHEDULER, item, text

HORIZON = 15 * 60


class Original:
    def __init__(
        self,
        dynamodb: Any,
        sqs: Any,
        *,
        clock: Callable[[], float],
        on_step: Callable[[str, Sequence[str]], None] = lambda step, ids: None,
    ) -> None:
        self._dynamodb = dynamodb
        self._sqs = sqs
        self._clock = clock
        self._on_step = on_step

    def send_message(self, *, QueueUrl: str, MessageBody: str, At: float) -> None:
        """Of its adapter for Active Job."""
        delay = round(At - self._clock())
        queue = QueueUrl.rsplit("/", 1)[-1]
        if delay > HORIZON:
            self.put(queue, json.loads(MessageBody), At)
        else:
            self._sqs.send_message(QueueUrl=QueueUrl, MessageBody=MessageBody, DelaySeconds=delay)

    def put(self, queue: str, body: dict[str, Any], at: float) -> None:
        made = item(body["job_id"], at, body, {})
        self._dynamodb.put_item(TableName=queue, Item=made)

    def drain(self, queue: str) -> None:
        with contextlib.suppress(ClientError, BotoCoreError):  # the supervisor's business
            self._poll(queue)

    def _poll(self, queue: str) -> None:
        url = self._sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        asked: dict[str, Any] = {
            "TableName": queue,
            "IndexName": INDEX,
            "ConsistentRead": True,
            "KeyConditionExpression": "scheduler = :s AND perform_at < :t",
            "ExpressionAttributeValues": {
                ":s": {"S": SCHEDULER},
                ":t": {"N": repr(self._clock() + HORIZON)},
            },
        }
        for page in self._dynamodb.get_paginator("query").paginate(**asked):
            self._move(queue, url, page["Items"])

    def _move(self, queue: str, url: str, items: Sequence[dict[str, Any]]) -> None:
        ids = [one["sqs_message_body"]["M"]["job_id"]["S"] for one in items]
        self._on_step("found", ids)
        for id in ids:
            key = {"scheduler": {"S": SCHEDULER}, "job_id": {"S": id}}
            self._dynamodb.delete_item(TableName=queue, Key=key)
        self._on_step("claimed", ids)
        for start in range(0, len(items), 10):
            some = items[start : start + 10]
            entries = [self._entry(str(n), one) for n, one in enumerate(some)]
            self._sqs.send_message_batch(QueueUrl=url, Entries=entries)
            self._on_step("sent", ids[start : start + 10])

    def _entry(self, id: str, one: dict[str, Any]) -> dict[str, Any]:
        remaining = float(one["perform_at"]["N"]) - self._clock()
        body = text(one["sqs_message_body"])
        return {"Id": id, "MessageBody": body, "DelaySeconds": int(remaining)}
