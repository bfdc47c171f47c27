"""Asking the wire in short: a request written with strings, and the refusal a call ends with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairturn.server.sqs.wire import protocols
from fairturn.sqs.errors import SqsError


def refusal(call: Callable[..., Any], *args: Any, **kwargs: Any) -> SqsError:
    with pytest.raises(SqsError) as caught:
        call(*args, **kwargs)
    return caught.value


def parse(
    method: str, path: str, query: str, headers: list[tuple[str, str]], body: bytes
) -> protocols.Request:
    return protocols.parse(method, path.encode(), query.encode(), encoded(headers), body)


def encoded(headers: list[tuple[str, str]]) -> protocols.Headers:
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return protocols.joined(pairs)
