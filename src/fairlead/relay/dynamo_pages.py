"""A table's items by the time they are due, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlead.relay import dynamo_errors as errors
from fairlead.relay.dynamo_items import INDEX, SCHEDULER


def pages(
    dynamodb: Any,
    queue: str,
    *,
    before: float | None = None,
    since: float | None = None,
    **more: Any,
) -> Iterator[dict[str, Any]]:
    """The answers of Query, consistently, the first that is due first."""
    values: dict[str, Any] = {":scheduler": {"S": SCHEDULER}}
    condition = "scheduler = :scheduler"
    for sign, bound in (("<", before), (">=", since)):
        if bound is not None:  # one of them: DynamoDB takes no two conditions on one key
            condition += f" AND perform_at {sign} :at"
            values[":at"] = {"N": repr(bound)}
    asked: dict[str, Any] = {
        "TableName": queue,
        "IndexName": INDEX,
        "ConsistentRead": True,
        "KeyConditionExpression": condition,
        "ExpressionAttributeValues": values,
        **more,
    }
    wanted = "Count" if more.get("Select") == "COUNT" else "Items"
    while True:
        page = dynamodb.query(**asked)
        errors.member(page, wanted, f"DynamoDB table {queue!r}")
        yield page
        if "LastEvaluatedKey" not in page:
            return
        asked["ExclusiveStartKey"] = page["LastEvaluatedKey"]
