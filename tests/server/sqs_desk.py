"""A desk to ask the SQS door at, without HTTP: JSON in, JSON out, on every database.

    @everywhere()
    async def test_a_message_is_received(desk: Desk) -> None:
        url = await desk.queue()
        await desk.send(url, "hello")
        [message] = await desk.receive(url)

`@everywhere(clock=True)` gives the database a clock that the test moves: `desk.clock.move(30)`.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn.server.sqs.request import Caller, Options, SqsRequest
from fairturn.server.sqs.service import Sqs
from fairturn.server.sqs.wire import json_protocol
from fairturn.server.sqs.wire.action_table import ACTIONS
from fairturn.sqs import bodies, checks
from fairturn.sqs.errors import SqsError
from tests import servers

BACKENDS = ["sqlite", "postgresql", "mysql"]
START = 1_760_000_000  # where a clock that tests move begins, in seconds
_ready: set[str] = set()  # databases that are migrated


class Clock:
    def __init__(self) -> None:
        self.us = START * 1_000_000

    def __call__(self) -> int:
        return self.us

    def move(self, seconds: float) -> None:
        self.us += round(seconds * 1_000_000)


class Desk:
    def __init__(self, url: str, db: fairturn.AsyncDatabase, sqs: Sqs, clock: Clock | None) -> None:
        self.url = url
        self.db = db
        self.sqs = sqs
        self._clock = clock
        self._made: list[str] = []

    @property
    def clock(self) -> Clock:
        assert self._clock is not None, "ask for it: @everywhere(clock=True)"
        return self._clock

    async def ask(
        self,
        action: str,
        /,
        *,
        sender: str = bodies.ANONYMOUS,
        trace: str | None = None,
        **given: Any,
    ) -> Any:
        """What a client of the JSON protocol gets."""
        table = ACTIONS[action]
        members = json_protocol.parse(table, json.dumps(given, default=_binary).encode())
        caller = Caller(None, "000000000000", "us-east-1", sender, lambda action, queue: True)
        queue = queue_named(members)
        request = SqsRequest(action, queue, members, "http://localhost:9324", caller, trace)
        result = await self.sqs.answer(request)
        return json.loads(json_protocol.render(table, result or {}))

    async def refused(self, action: str, /, **given: Any) -> SqsError:
        with pytest.raises(SqsError) as caught:
            await self.ask(action, **given)
        return caught.value

    async def queue(
        self, *, fifo: bool = False, tags: dict[str, str] | None = None, **attributes: Any
    ) -> str:
        """A new queue; its URL."""
        name = f"q{uuid.uuid4().hex[:12]}" + (".fifo" if fifo else "")
        if fifo:
            attributes["FifoQueue"] = "true"
        texts = {key: str(value) for key, value in attributes.items()}
        made = await self.ask("CreateQueue", QueueName=name, Attributes=texts, tags=tags or {})
        self._made.append(name)
        return made["QueueUrl"]

    def core(self, url: str) -> fairturn.AsyncQueue:
        """The same queue by the library."""
        return self.db.queue(name_of(url))

    async def send(self, url: str, body: str = "hello", **given: Any) -> Any:
        return await self.ask("SendMessage", QueueUrl=url, MessageBody=body, **given)

    async def send_to(self, url: str, group: str, *texts: str, **given: Any) -> list[Any]:
        """Into one group of a FIFO queue, one after the other."""
        sent: list[Any] = []
        for text in texts:
            id = given.get("MessageDeduplicationId", uuid.uuid4().hex)
            ids = {"MessageGroupId": group, "MessageDeduplicationId": id}
            sent.append(await self.send(url, text, **(given | ids)))
        return sent

    async def receive(self, url: str, n: int = 10, **given: Any) -> list[Any]:
        given = {"QueueUrl": url, "MaxNumberOfMessages": n, **given}
        return (await self.ask("ReceiveMessage", **given)).get("Messages", [])

    async def bodies(self, url: str, n: int = 10, **given: Any) -> list[str]:
        return [message["Body"] for message in await self.receive(url, n, **given)]

    async def delete(self, url: str, message: Any) -> None:
        await self.ask("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    async def change(self, url: str, message: Any, seconds: int) -> None:
        handle = message["ReceiptHandle"]
        await self.ask(
            "ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=seconds
        )

    async def counts(self, url: str) -> tuple[int, int, int]:
        """Visible, not visible, delayed."""
        answer = await self.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
        found = answer["Attributes"]
        name = "ApproximateNumberOfMessages"
        return int(found[name]), int(found[f"{name}NotVisible"]), int(found[f"{name}Delayed"])

    async def polling(self, url: str, count: int) -> None:
        """Wait until so many polls stand in line."""
        while len(self.sqs.traffic.polls) < count:
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self.sqs.close()
        for name in self._made:
            await self.db.queue(name).drop()
        await self.db.close()


def queue_named(members: Mapping[str, Any]) -> str:
    """The queue that a request names, as the HTTP door reads it."""
    url: str | None = members.get("QueueUrl")
    return members.get("QueueName", "") if url is None else checks.queue_of(url)


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def arn_of(url: str) -> str:
    return f"arn:aws:sqs:us-east-1:000000000000:{name_of(url)}"


def _binary(value: Any) -> str:
    assert isinstance(value, bytes)
    return b64encode(value).decode()


def everywhere(
    *, clock: bool = False, extended: bool = False, backends: list[str] = BACKENDS
) -> Callable[[Callable[[Desk], Coroutine[Any, Any, None]]], Callable[..., None]]:
    def decorate(test: Callable[[Desk], Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @pytest.mark.parametrize("backend", backends)
        def run(backend: str, tmp_path: Path) -> None:
            asyncio.run(_run(test, url_of(backend, tmp_path), clock, extended))

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate


def url_of(backend: str, tmp_path: Path) -> str:
    if backend == "sqlite":
        url = f"sqlite:///{tmp_path}/sqs.db"
    else:
        url = (servers.postgres_url if backend == "postgresql" else servers.mysql_url)("sqs")
    if url not in _ready:
        with fairturn.connect(url) as db:
            db.migrate()
        _ready.add(url)
    return url


async def _run(
    test: Callable[[Desk], Awaitable[None]], url: str, clocked: bool, extended: bool
) -> None:
    clock = Clock() if clocked else None
    db = fairturn.connect_async(url, clock=clock)
    desk = Desk(url, db, Sqs(db, Options(extended=extended)), clock)
    try:
        await test(desk)
    finally:
        await desk.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:  # what was told to end may still be ending
        await asyncio.wait(left, timeout=30)
    left = {task for task in left if not task.done()}
    assert not left, f"tasks were left behind: {left}"
