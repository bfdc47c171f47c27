"""The DynamoDB table of a queue: every request to it."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from fairturn.core.errors import InvalidArgument
from fairturn.relay.dynamodb import errors
from fairturn.relay.dynamodb.items import INDEX, SCHEDULER, definition, has_layout, key
from fairturn.sqs import checks

_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")


class Table:
    """It has the name of its queue. What boto3 raises becomes a TableError."""

    def __init__(self, dynamodb: Any, queue: str) -> None:
        if _NAME.fullmatch(queue) is None:
            raise InvalidArgument(
                f"no DynamoDB table can be called {queue!r}: the queue's name must have 3 to 255 "
                "letters, digits, '_', '-' and '.'"
            )
        self._dynamodb = dynamodb
        self.queue = queue
        self.fifo = queue.endswith(checks.FIFO)
        self.shown = f"DynamoDB table {queue!r}"

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except errors.ERRORS as error:
            raise errors.of_table(error, self.queue) from error

    def create(self) -> bool:
        """Create it and wait until it can be used. False: it exists already."""
        try:
            with self._errors():
                self._dynamodb.create_table(**definition(self.queue))
                self._dynamodb.get_waiter("table_exists").wait(
                    TableName=self.queue, WaiterConfig={"Delay": 1, "MaxAttempts": 120}
                )
        except errors.TableError as error:
            if error.code != errors.EXISTS:
                raise
            self.check()
            return False
        return True

    def check(self) -> None:
        """Raise unless the table exists and has the gem's layout."""
        if not self.has_layout():
            raise errors.wrong_layout(self.queue)

    def has_layout(self) -> bool:
        with self._errors():
            answer = self._dynamodb.describe_table(TableName=self.queue)
        return has_layout(errors.member(answer, "Table", self.shown))

    def put(self, item: dict[str, Any]) -> None:
        with self._errors():
            self._dynamodb.put_item(TableName=self.queue, Item=item)

    def change(
        self, operation: str, job_id: str, condition: str, values: dict[str, Any], **more: Any
    ) -> dict[str, Any] | None:
        """``update_item`` or ``delete_item`` on a condition. None: the condition is not true."""
        try:
            with self._errors():
                return getattr(self._dynamodb, operation)(
                    TableName=self.queue,
                    Key=key(job_id),
                    ConditionExpression=condition,
                    ExpressionAttributeValues=values,
                    **more,
                )
        except errors.TableError as error:
            if error.code == errors.CONDITION:
                return None
            raise

    def pages(
        self, *, before: float | None = None, since: float | None = None, **more: Any
    ) -> Iterator[dict[str, Any]]:
        """The answers of Query: all items, or those due before or since a time, by their due
        time."""
        values: dict[str, Any] = {":scheduler": {"S": SCHEDULER}}
        condition = "scheduler = :scheduler"
        for sign, bound in (("<", before), (">=", since)):
            if bound is not None:  # at most one: DynamoDB allows one condition on a key
                condition += f" AND perform_at {sign} :at"
                values[":at"] = {"N": repr(bound)}
        asked: dict[str, Any] = {
            "TableName": self.queue,
            "IndexName": INDEX,
            "ConsistentRead": True,
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": values,
            **more,
        }
        wanted = "Count" if more.get("Select") == "COUNT" else "Items"
        while True:
            with self._errors():
                page = self._dynamodb.query(**asked)
            errors.member(page, wanted, self.shown)
            yield page
            if "LastEvaluatedKey" not in page:
                return
            asked["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def count(self, before: float | None = None) -> int:
        return sum(page["Count"] for page in self.pages(before=before, Select="COUNT"))
