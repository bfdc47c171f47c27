"""What every test of the SQS actions needs: an Sqs on one backend, asked without any HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import fairturn
from fairturn.server.sqs.queue_cache import INTERNAL
from fairturn.server.sqs.request import Caller, Options, SqsRequest
from fairturn.server.sqs.service import Sqs
from fairturn.server.sqs.wire import protocols
from fairturn.sqs.errors import SqsError
from tests.conformance.door import Clock, unique
from tests.server.sqs_desk import queue_named

ACCOUNT = "123456789012"
REGION = "eu-west-1"
HOST = "http://queues.test:9324"


def always(action: str, queue: str | None) -> bool:
    return True


class Bench:
    """``sqs`` is not started: nothing happens in the background unless a test says so. Queues that
    were made through it are dropped in the end."""

    def __init__(self, backend: str, url: str) -> None:
        self.backend = backend
        self.url = url
        self.made: set[str] = {INTERNAL}
        self.opened: list[Sqs] = []
        self.sqs: Sqs

    async def open(self) -> None:
        self.sqs = self.another()

    def another(
        self,
        options: Options | None = None,
        clock: Clock | None = None,
        url: str | None = None,
    ) -> Sqs:
        """Another server process on the same database; with a clock, on the test's time."""
        db = fairturn.connect_async(url or self.url, clock=clock)
        sqs = Sqs(db, options or Options(account=ACCOUNT, region=REGION))
        self.opened.append(sqs)
        return sqs

    def on(self, clock: Clock | None = None, **options: Any) -> None:
        """From now on ask another server."""
        self.sqs = self.another(Options(account=ACCOUNT, region=REGION, **options), clock)

    async def close(self) -> None:
        for name in self.made:
            await self.opened[0].db.queue(name).drop()
        for sqs in self.opened:
            await sqs.close()
            await sqs.db.close()

    # --- asking ------------------------------------------------------------------------------
    async def __call__(self, action: str, /, **given: Any) -> Any:
        """What the action answers."""
        return await self.sqs.answer(self.ask(action, **given))

    def ask(
        self, action: str, /, allows: Callable[[str, str | None], bool] = always, **given: Any
    ) -> SqsRequest:
        if action == "CreateQueue":
            self.made.add(given["QueueName"])
        caller = Caller(None, ACCOUNT, REGION, "AIDATESTSENDER", allows)
        return SqsRequest(action, queue_named(given), given, HOST, caller)

    async def refusal(self, action: str, /, **given: Any) -> SqsError:
        """The error that the action ends with."""
        with pytest.raises(SqsError) as caught:
            await self(action, **given)
        return caught.value

    async def rendered(self, action: str, /, **given: Any) -> Any:
        """The answer as JSON clients read it: what is empty is left out."""
        request = protocols.Request("json", action, given)
        return json.loads(protocols.render(request, await self(action, **given), "-").body)

    # --- queues ------------------------------------------------------------------------------
    async def queue(
        self, attributes: dict[str, str] | None = None, name: str | None = None, **given: Any
    ) -> str:
        """A new queue's URL."""
        attributes = attributes or {}
        if name is None:
            name = unique("q") + (".fifo" if attributes.get("FifoQueue") == "true" else "")
        made = await self("CreateQueue", QueueName=name, Attributes=attributes, **given)
        return made["QueueUrl"]

    async def attributes(self, url: str, *names: str) -> dict[str, str]:
        answer = await self(
            "GetQueueAttributes", QueueUrl=url, AttributeNames=list(names) or ["All"]
        )
        return answer["Attributes"]

    async def set(self, url: str, **attributes: str) -> None:
        await self("SetQueueAttributes", QueueUrl=url, Attributes=attributes)

    def core(self, url: str) -> fairturn.AsyncQueue:
        """The same queue as the library has it."""
        return self.sqs.db.queue(name_of(url))

    async def dead_letters(self, **attributes: str) -> tuple[str, str]:
        """A queue and its dead-letter queue: messages die when they are received once."""
        dead = await self.queue(dict(attributes))
        return await self.queue({**attributes, "RedrivePolicy": policy_to(dead, 1)}), dead

    async def die(self, url: str, *bodies: Any, channel: str = "") -> None:
        """Messages that are sent to a queue and die there."""
        queue = self.core(url)
        for body in bodies:
            await queue.send(body, channel=channel)
            [message] = await queue.receive()
            await message.kill()


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def arn_of(url: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name_of(url)}"


def policy_to(url: str, receives: object = 3) -> str:
    """A RedrivePolicy."""
    return json.dumps({"deadLetterTargetArn": arn_of(url), "maxReceiveCount": receives})
