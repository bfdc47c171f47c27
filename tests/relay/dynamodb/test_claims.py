"""Sent and not deleted, or claimed and not sent: what our drain makes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from fairturn.relay.destination import DestinationError
from fairturn.relay.dynamodb import DynamoStore
from tests.relay.dynamodb.stage import CLAIM, THROTTLED, Stage, answer


def test_what_was_sent_and_not_deleted_is_not_sent_again_by_the_same_drain(stage: Stage) -> None:
    ids = stage.fill(10)
    dynamodb = stage.dynamodb_client()
    answer(dynamodb, "DeleteItem", THROTTLED, times=4)
    drain = stage.drain(dynamodb=dynamodb)
    assert drain.drain(stage.queue).sent == 10
    assert len(stage.table()) == 4
    stage.now += CLAIM
    assert drain.drain(stage.queue).sent == 0
    assert not stage.table()
    assert stage.arrived() == dict.fromkeys(ids, 1)


def test_what_cannot_be_deleted_is_told_and_never_sent_again(stage: Stage) -> None:
    ids = stage.fill(3)
    dynamodb = stage.dynamodb_client()
    answer(dynamodb, "DeleteItem", "AccessDeniedException", times=9)
    drain = stage.drain(dynamodb=dynamodb)
    for sent in (3, 0, 0):
        drained = drain.drain(stage.queue)
        assert (drained.sent, "AccessDenied" in (drained.trouble or "")) == (sent, True)
        stage.now += 300
    late = stage.put(5)
    drained = drain.drain(stage.queue)
    assert (drained.sent, drained.trouble) == (1, None)
    assert stage.arrived() == dict.fromkeys([*ids, late], 1)
    assert not stage.table()


def test_what_is_owed_is_deleted_though_sqs_is_gone(stage: Stage) -> None:
    stage.fill(1)
    dynamodb, sqs = stage.dynamodb_client(), stage.sqs_client()
    answer(dynamodb, "DeleteItem", THROTTLED)
    drain = stage.drain(dynamodb=dynamodb, sqs=sqs)
    assert drain.drain(stage.queue).sent == 1
    answer(sqs, "GetQueueUrl", "AccessDeniedException")
    with pytest.raises(DestinationError, match="AccessDenied"):
        drain.drain(stage.queue)
    assert not stage.table()


def test_a_lost_answer_to_a_claim_is_asked_for_again(stage: Stage) -> None:
    """botocore repeats what timed out: the claim is ours already then."""
    stage.fill(1)
    dynamodb = stage.dynamodb_client()
    drain = stage.drain(dynamodb=dynamodb)
    asked = iter([True])

    def twice(params: Any, context: Any, **_: Any) -> None:
        if next(asked, False):
            values = json.loads(params["body"])
            stage.dynamodb.update_item(**values)

    dynamodb.meta.events.register("before-call.dynamodb.UpdateItem", twice)
    assert drain.drain(stage.queue).sent == 1


def test_asleep_between_claim_and_send(stage: Stage) -> None:
    """A machine that was stopped for minutes must not send what another has claimed since."""
    stage.fill(3)

    def on_step(step: str, job_ids: Sequence[str]) -> None:
        if step == "claimed":
            stage.now += CLAIM
            assert (
                DynamoStore(stage.dynamodb, stage.sqs, clock=lambda: stage.now)
                .drain(stage.queue)
                .sent
                == 3
            )

    drained = stage.drain(on_step).drain(stage.queue)
    assert (drained.sent, drained.failed) == (0, 3)
    assert max(stage.arrived().values()) == 1


def test_what_could_be_cancelled_while_sqs_was_slow_is_not_sent(stage: Stage) -> None:
    """Ten large ones are several calls, and together these can outlast the claim."""
    ids = [stage.put(60 + n, padding="\n" * 180_000) for n in range(10)]
    other = DynamoStore(stage.dynamodb, stage.sqs, clock=lambda: stage.now)
    sqs = stage.sqs_client()
    cancelled: list[bool] = []

    def slow(**_: Any) -> None:
        stage.now += 28
        cancelled.append(other.cancel(stage.queue, ids[-1]))

    sqs.meta.events.register("before-send.sqs.SendMessageBatch", slow)
    drained = stage.drain(sqs=sqs).drain(stage.queue)
    assert 0 < drained.sent < 10
    assert not any(cancelled)
    assert other.cancel(stage.queue, ids[-1])  # what was not sent is free again
    assert stage.drain().drain(stage.queue).sent == 9 - drained.sent
    assert stage.arrived() == dict.fromkeys(ids[:-1], 1)
