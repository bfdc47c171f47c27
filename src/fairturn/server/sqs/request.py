"""What HTTP and the SQS service share: a request, its caller, the server's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a server, the same for all of its requests."""

    extended: bool = (
        False  # features beyond SQS; a queue's tag fairturn:extended=true does the same
    )
    account: str = "000000000000"  # of requests without a verified signature
    region: str = "us-east-1"
    recreate_pause: float = 0  # seconds for which a deleted queue's name cannot be used again


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request: the owner of an access key, or anybody if no keys are configured."""

    key: str | None  # the access key's id
    account: str
    region: str
    sender: str  # SenderId
    # (action, queue): AccessKey.allows, or always True. Checked before a queue is looked up.
    allows: Callable[[str, str | None], bool] = field(repr=False)


@dataclass(frozen=True, slots=True)
class SqsRequest:
    """One parsed request; its signature is verified if keys are configured."""

    action: str
    queue: str  # the name of its queue; "" if the action has none
    input: dict[str, Any] = field(repr=False)  # from wire.parse; it has message bodies
    base_url: str  # "http://host:port", as the client reaches us; queue URLs begin with it
    caller: Caller
    trace: str | None = None  # X-Amzn-Trace-Id: becomes the message's AWSTraceHeader

    def url_of(self, queue: str) -> str:
        return f"{self.base_url}/{self.caller.account}/{queue}"

    def arn_of(self, queue: str) -> str:
        return f"arn:aws:sqs:{self.caller.region}:{self.caller.account}:{queue}"


class Service(Protocol):
    """The SQS service, or a test's replacement of it."""

    async def start(self) -> None: ...
    async def answer(self, request: SqsRequest) -> Mapping[str, Any] | None: ...
    async def close(self) -> None: ...
