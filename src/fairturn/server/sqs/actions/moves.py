"""StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask."""

from __future__ import annotations

import binascii
import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairturn.server.sqs import redrive
from fairturn.server.sqs.move_tasks import Report, Task
from fairturn.server.sqs.queue_cache import QueueInfo
from fairturn.server.sqs.request import SqsRequest
from fairturn.sqs import checks, errors, limits

if TYPE_CHECKING:
    from fairturn.server.sqs.service import Sqs


async def start_message_move_task(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    source_arn: str = request.input["SourceArn"]
    rate: int | None = request.input.get("MaxNumberOfMessagesPerSecond")
    if rate is not None:
        checks.number("MaxNumberOfMessagesPerSecond", rate)
    source = await _queue(sqs, request, request.action, "SourceArn", source_arn)
    sources = await sqs.queue_cache.sources(source.name)
    if not sources:
        raise errors.INVALID_PARAMETER_VALUE(
            "Source queue must be configured as a Dead Letter Queue."
        )
    destination_arn: str | None = request.input.get("DestinationArn")
    if destination_arn is None:
        destination = None
        for name in sources:  # the task sends to each of them in the caller's name
            _check_allowed(request, "SendMessage", name, name)
    else:
        destination = await _destination(sqs, request, source, destination_arn)
    task = Task(
        id=str(uuid.uuid4()),
        source=source.name,
        source_arn=source_arn,
        destination=destination,
        destination_arn=destination_arn,
        rate=rate,
        started=int(await sqs.queue_cache.now() * 1_000),
        total=(await sqs.queue_cache.queue(source.name).stats()).ready,
    )
    if not await sqs.moves.begin(task):
        raise errors.INVALID_PARAMETER_VALUE(
            "There is already a task running. Only one active task is allowed for a source queue "
            "arn at a given time."
        )
    sqs.mover.wake()
    return {"TaskHandle": _handle(task)}


async def _destination(sqs: Sqs, request: SqsRequest, source: QueueInfo, arn: str) -> str:
    if redrive.queue_of_arn(arn) == source.name:
        raise errors.INVALID_PARAMETER_VALUE(
            "Source queue arn and destination queue arn cannot be the same."
        )
    destination = await _queue(sqs, request, "SendMessage", "DestinationArn", arn)
    if destination.fifo != source.fifo:
        raise errors.INVALID_PARAMETER_VALUE(
            "The source queue and destination queue must be of the same queue type."
        )
    return destination.name


async def list_message_move_tasks(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    most: int = request.input.get("MaxResults", 1)
    checks.number("MaxResults", most, limits.MOVE_RESULTS)
    source = await _queue(sqs, request, request.action, "SourceArn", request.input["SourceArn"])
    return {"Results": [_shown(one) for one in (await _reports(sqs, source))[:most]]}


async def cancel_message_move_task(sqs: Sqs, request: SqsRequest) -> Mapping[str, Any]:
    id, arn = _read(request.input["TaskHandle"])
    source = await _queue(sqs, request, request.action, "SourceArn", arn)
    for one in await _reports(sqs, source):
        if one.task.id == id:
            break
    else:
        raise errors.RESOURCE_NOT_FOUND("Task does not exist.")
    if one.status != "RUNNING":
        raise errors.UNSUPPORTED_OPERATION(
            f"Only a task that is RUNNING can be cancelled. This one is {one.status}."
        )
    await sqs.moves.stop(one.task)
    sqs.mover.wake()
    return {"ApproximateNumberOfMessagesMoved": one.moved}


async def _reports(sqs: Sqs, source: QueueInfo) -> list[Report]:
    # Tasks of a deleted queue do not belong to a new queue of its name.
    return await sqs.moves.reports(source.name, source.settings.created_at.timestamp())


def _shown(report: Report) -> dict[str, Any]:
    task = report.task
    return {
        "TaskHandle": _handle(task) if report.status == "RUNNING" else None,
        "Status": report.status,
        "SourceArn": task.source_arn,
        "DestinationArn": task.destination_arn,
        "MaxNumberOfMessagesPerSecond": task.rate,
        "ApproximateNumberOfMessagesMoved": report.moved,
        "ApproximateNumberOfMessagesToMove": task.total,
        "FailureReason": report.reason,
        "StartedTimestamp": task.started,
    }


# --- handles ----------------------------------------------------------------------------------


def _handle(task: Task) -> str:
    text = json.dumps({"taskId": task.id, "sourceArn": task.source_arn}, separators=(",", ":"))
    return b64encode(text.encode()).decode()


def _read(handle: str) -> tuple[str, str]:
    """Return a task's id and its source's ARN."""
    try:
        found = json.loads(b64decode(handle, validate=True))
    except (binascii.Error, ValueError, RecursionError):
        found = None
    match found:
        case {"taskId": str(id), "sourceArn": str(arn)}:
            return id, arn
        case _:
            raise errors.INVALID_PARAMETER_VALUE("Value for parameter TaskHandle is invalid.")


# --- ARNs -------------------------------------------------------------------------------------


async def _queue(sqs: Sqs, request: SqsRequest, action: str, parameter: str, arn: str) -> QueueInfo:
    """Return the queue of an ARN, if the key may do `action` with it."""
    name = redrive.queue_of_arn(arn)
    if name is None:
        raise errors.INVALID_PARAMETER_VALUE(
            f"You must use this format to specify the {parameter}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        )
    _check_allowed(request, action, name, arn)
    try:
        return await sqs.queue_cache.fresh(name)
    except errors.SqsError as error:
        if error.kind is errors.QUEUE_DOES_NOT_EXIST:
            raise errors.RESOURCE_NOT_FOUND(
                f"The resource that you specified for the {parameter} parameter doesn't exist."
            ) from error
        raise


def _check_allowed(request: SqsRequest, action: str, name: str, shown: str) -> None:
    """Checked before the lookup: other callers must not learn whether the queue exists."""
    if not request.caller.allows(action, name):
        raise errors.denied(shown)
