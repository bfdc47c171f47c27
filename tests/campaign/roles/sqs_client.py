"""A client of ``fairturn serve``: sends, receives and deletes by the SQS protocol. The consumers
serve the same queue, by the other door."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fairturn.sqs import receipt_handles
from tests.campaign.roles.role import Stage
from tests.campaign.world import LEASE
from tests.faults.sqs_crew import Client, Refused

QUEUE = "sqs"
SECONDS = 10.0  # for an answer
AWAY = 0.2


class SqsClient:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._loop = asyncio.new_event_loop()
        self._client = Client(stage.spec.options["port"])

    def step(self) -> None:
        self._loop.run_until_complete(self._step())

    async def _step(self) -> None:
        dice = self._stage.dice
        values = [self._stage.value() for _ in range(dice.choice([1, 1, 3]))]
        await self._send(values)
        for message in await self._receive(dice.randint(1, 5)):
            await asyncio.sleep(dice.uniform(0, 0.01))
            await self._settle(message, dice.random())

    async def _ask(self, op: int, action: str, **given: Any) -> dict[str, Any] | None:
        """The answer; None if there is none, which the history then says."""
        try:
            return await asyncio.wait_for(self._client.ask(action, QUEUE, **given), SECONDS)
        except Refused as refused:
            # The server answers 500 also when the database did not answer it.
            outcome = "fail" if refused.args[0] < 500 else "info"
            self._stage.history.end(op, outcome, refused)
        except Exception as error:
            self._client.close()
            self._stage.history.end(op, "info", error)
        await asyncio.sleep(AWAY)
        return None

    async def _send(self, values: list[str]) -> None:
        op = self._stage.history.begin("send", queue=QUEUE, values=values, channel="")
        bodies = [json.dumps({"v": value}) for value in values]
        if len(bodies) == 1:
            answer = await self._ask(op, "SendMessage", MessageBody=bodies[0])
            sent = [answer] if answer else []
        else:
            entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)]
            answer = await self._ask(op, "SendMessageBatch", Entries=entries)
            sent = answer["Successful"] if answer else []
        if answer is None:
            return
        ids = [receipt_handles.id_of(one["MessageId"]) for one in sent]
        whole = len(ids) == len(values)
        self._stage.history.end(
            op, "ok" if whole else "info", ids=ids, outcomes=["sent"] * len(values)
        )

    async def _receive(self, n: int) -> list[dict[str, Any]]:
        op = self._stage.history.begin("receive", queue=QUEUE, n=n, lease=LEASE)
        given = {"MaxNumberOfMessages": n, "VisibilityTimeout": int(LEASE)}
        wait = self._stage.dice.choice([0, 1])
        answer = await self._ask(
            op, "ReceiveMessage", AttributeNames=["All"], WaitTimeSeconds=wait, **given
        )
        if answer is None:
            return []
        messages = answer.get("Messages", [])
        self._stage.history.end(op, "ok", deliveries=[seen(one) for one in messages])
        return messages

    async def _settle(self, message: dict[str, Any], chance: float) -> None:
        verb = "ack" if chance < 0.9 else "release"
        one = seen(message)
        lease = [one["id"], one["number"], one["token"]]
        op = self._stage.history.begin("verb", verb=verb, leases=[lease], queue=QUEUE)
        handle = {"ReceiptHandle": message["ReceiptHandle"]}
        if verb == "ack":
            answer = await self._ask(op, "DeleteMessage", **handle)
        else:
            answer = await self._ask(op, "ChangeMessageVisibility", VisibilityTimeout=0, **handle)
        if answer is not None:
            self._stage.history.end(op, "ok")

    def close(self) -> None:
        self._client.close()
        self._loop.close()


def seen(message: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": receipt_handles.id_of(message["MessageId"]),
        "number": int(message["Attributes"]["ApproximateReceiveCount"]),
        "token": message["ReceiptHandle"],
        "value": json.loads(message["Body"])["v"],
        "channel": "",
    }


ROLES = {"sqs": SqsClient}
