"""StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask."""

from __future__ import annotations

import binascii
import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairlead.server import refusals
from fairlead.server.sqs import checks, errors, limits, redrive
from fairlead.server.sqs.asking import Ask
from fairlead.server.sqs.book import Known
from fairlead.server.sqs.moves import Report, Task

if TYPE_CHECKING:
    from fairlead.server.sqs.service import Sqs


async def start_message_move_task(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    source_arn: str = ask.input["SourceArn"]
    rate: int | None = ask.input.get("MaxNumberOfMessagesPerSecond")
    if rate is not None:
        checks.move_rate(rate)
    source = await _queue(sqs, ask, ask.action, "SourceArn", source_arn)
    sources = await sqs.book.sources(source.name)
    if not sources:
        raise errors.INVALID_PARAMETER_VALUE(
            "Source queue must be configured as a Dead Letter Queue."
        )
    destination_arn: str | None = ask.input.get("DestinationArn")
    if destination_arn is None:
        destination = None
        for name in sources:  # it sends to them for whoever asks
            _check_allowed(ask, "SendMessage", name, name)
    else:
        destination = await _destination(sqs, ask, source, destination_arn)
    task = Task(
        id=str(uuid.uuid4()),
        source=source.name,
        source_arn=source_arn,
        destination=destination,
        destination_arn=destination_arn,
        rate=rate,
        started=int(await sqs.book.now() * 1_000),
        total=(await sqs.book.queue(source.name).stats()).ready,
    )
    if not await sqs.moves.begin(task):
        raise errors.INVALID_PARAMETER_VALUE(
            "There is already a task running. Only one active task is allowed for a source queue "
            "arn at a given time."
        )
    sqs.mover.poke()
    return {"TaskHandle": _handle(task)}


async def _destination(sqs: Sqs, ask: Ask, source: Known, arn: str) -> str:
    if redrive.queue_of_arn(arn) == source.name:
        raise errors.INVALID_PARAMETER_VALUE(
            "Source queue arn and destination queue arn cannot be the same."
        )
    destination = await _queue(sqs, ask, "SendMessage", "DestinationArn", arn)
    if destination.fifo != source.fifo:
        raise errors.INVALID_PARAMETER_VALUE(
            "The source queue and destination queue must be of the same queue type."
        )
    return destination.name


async def list_message_move_tasks(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    most: int = ask.input.get("MaxResults", 1)
    checks.max_results(most, limits.MOVE_RESULTS)
    source = await _queue(sqs, ask, ask.action, "SourceArn", ask.input["SourceArn"])
    return {"Results": [_shown(one) for one in (await _reports(sqs, source))[:most]]}


async def cancel_message_move_task(sqs: Sqs, ask: Ask) -> Mapping[str, Any]:
    id, arn = _read(ask.input["TaskHandle"])
    source = await _queue(sqs, ask, ask.action, "SourceArn", arn)
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
    sqs.mover.poke()
    return {"ApproximateNumberOfMessagesMoved": one.moved}


async def _reports(sqs: Sqs, source: Known) -> list[Report]:
    # Tasks of a deleted queue do not belong to a new one of its name.
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
    """The id and the source's ARN of a task."""
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


async def _queue(sqs: Sqs, ask: Ask, action: str, parameter: str, arn: str) -> Known:
    """The queue that an ARN means, if the key may do `action` with it."""
    name = redrive.queue_of_arn(arn)
    if name is None:
        raise errors.INVALID_PARAMETER_VALUE(
            f"You must use this format to specify the {parameter}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        )
    _check_allowed(ask, action, name, arn)
    try:
        return await sqs.book.fresh(name)
    except errors.SqsError as error:
        if error.kind is errors.QUEUE_DOES_NOT_EXIST:
            raise errors.RESOURCE_NOT_FOUND(
                f"The resource that you specified for the {parameter} parameter doesn't exist."
            ) from error
        raise


def _check_allowed(ask: Ask, action: str, name: str, shown: str) -> None:
    """Before it is looked up: whether there is such a queue is not told to everyone."""
    if not ask.allows(action, name):
        refusal = refusals.denied(shown)
        namespace, _, kind = refusal.type.rpartition("#")
        raise errors.SqsError(
            errors.Kind(kind, refusal.code, refusal.status, namespace=f"{namespace}#"),
            refusal.message,
        )
