"""What the tests of move tasks share: starting, listing and finishing them."""

from __future__ import annotations

from typing import Any

from tests.conformance.door import Clock
from tests.server.sqs_bench import Bench, arn_of


async def start(bench: Bench, source: str, to: str | None = None, rate: int | None = None) -> str:
    given: dict[str, Any] = {} if to is None else {"DestinationArn": arn_of(to)}
    if rate is not None:
        given["MaxNumberOfMessagesPerSecond"] = rate
    answer = await bench("StartMessageMoveTask", SourceArn=arn_of(source), **given)
    return answer["TaskHandle"]


async def tasks(bench: Bench, source: str, most: int = 10) -> list[Any]:
    """As JSON clients read them."""
    answer = await bench.rendered("ListMessageMoveTasks", SourceArn=arn_of(source), MaxResults=most)
    return answer.get("Results", [])


async def status(bench: Bench, source: str) -> str:
    [latest] = await tasks(bench, source, 1)
    return latest["Status"]


async def finish(bench: Bench, source: str, clock: Clock) -> Any:
    """Do step after step until the latest task has ended; it."""
    while (await status(bench, source)) in ("RUNNING", "CANCELLING"):
        clock.tick(await bench.sqs.mover.run_due_step())
    return (await tasks(bench, source, 1))[0]


async def ready(bench: Bench, *urls: str) -> list[int]:
    return [(await bench.core(url).stats()).ready for url in urls]


async def bodies(bench: Bench, url: str) -> list[Any]:
    return [message.body for message in await bench.core(url).peek(1_000)]
