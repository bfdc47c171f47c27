"""remember, recall: small values that a queue keeps for a while (semantics §19)."""

from __future__ import annotations

from typing import Any

from fairlead import limits
from fairlead.backends.base import Op
from fairlead.errors import InvalidBody
from fairlead.operations import check
from fairlead.operations.call import Call, Core
from fairlead.values import Duration, decode


def remember(core: Core, queue: str, name: str, value: Any, keep: Duration) -> Call[None]:
    check.name(name, "name")
    keep_us = check.microseconds(keep, "keep")
    raw, is_json = check.bounded_payload(value, "the value", limits.REMEMBERED_BYTES)
    if not is_json:
        raise InvalidBody("what a queue remembers is JSON, not bytes: base64 makes text of them")
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
