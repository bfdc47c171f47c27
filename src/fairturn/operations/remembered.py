"""remember, recall: small values that a queue stores for a while (semantics §19)."""

from __future__ import annotations

from typing import Any

from fairturn.backends.steps import Op
from fairturn.core import check, limits
from fairturn.core.errors import InvalidBody
from fairturn.core.values import Duration, decode
from fairturn.operations.call import Call, Core


def remember(core: Core, queue: str, name: str, value: Any, keep: Duration) -> Call[None]:
    check.name(name, "name")
    keep_us = check.microseconds(keep, "keep")
    raw, is_json = check.bounded_payload(value, "the value", limits.REMEMBERED_BYTES)
    if not is_json:
        raise InvalidBody("a queue remembers JSON, not bytes: encode them as base64 text")
    return Call(
        "remember",
        lambda: core.backend.remember(queue, name, raw, keep_us, core.now()),
        repeatable=True,
    )


def recall(core: Core, queue: str, name: str) -> Call[Any]:
    check.name(name, "name")

    def start() -> Op[Any]:
        raw = yield from core.backend.recall(queue, name, core.now())
        return None if raw is None else decode(raw, 1)

    return Call("recall", start, repeatable=True)
