"""What the SQS door is asked, and how it is set up: values between HTTP and the actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Options:
    """How a server behaves; the same for all of its requests."""

    extended: bool = False  # beyond SQS; for one queue also by its tag fairlead:extended=true
    account: str = "000000000000"  # of requests that nobody signed
    region: str = "us-east-1"
    recreate_pause: float = 0  # seconds a deleted queue's name is refused; 0: not at all


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: read, its signature verified where keys are configured."""

    action: str
    input: dict[str, Any] = field(repr=False)  # from wire.parse; has bodies, so it is never shown
    base_url: str  # "http://host:port", as the caller calls us; queue URLs begin with it
    account: str
    region: str
    sender: str  # SenderId
    trace: str | None  # X-Amzn-Trace-Id
    # (action, queue): AccessKey.allows, or always True. Asked before a queue is looked up.
    allows: Callable[[str, str | None], bool] = field(repr=False)
