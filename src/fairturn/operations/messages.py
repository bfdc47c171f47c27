"""Messages that are not leased: cancel, reschedule, promote, redrive, move, discard (§7, §8)."""

from __future__ import annotations

from collections.abc import Callable

from fairturn.backends.base import Reschedule
from fairturn.backends.steps import Op
from fairturn.core import check, limits
from fairturn.core.errors import InvalidArgument, MessageLeased
from fairturn.core.values import Duration, Moment
from fairturn.operations.call import Call, Core


def which(id: int | None, key: str | None) -> tuple[str, int | None]:
    """Check that exactly one of id= and key= is given; return it as words, and the id as an int."""
    if (id is None) == (key is None):
        raise InvalidArgument("give id= or key=, exactly one of them")
    if key is not None:
        return f"the message with key {check.name(key, 'key')!r}", None
    id = check.integer(id, "id", 0, 2**63 - 1)
    return f"message {id}", id


def _changed(what: str, op: Callable[[], Op[str]]) -> Op[bool]:
    outcome = yield from op()
    if outcome == "l":
        raise MessageLeased(what)
    return outcome == "c"


def cancel(core: Core, queue: str, id: int | None, key: str | None, force: bool) -> Call[bool]:
    what, id = which(id, key)
    return Call(
        "cancel",
        lambda: _changed(what, lambda: core.backend.cancel(queue, id, key, force, core.now())),
        after=core.settle(False),
    )


def reschedule(
    core: Core,
    queue: str,
    id: int | None,
    key: str | None,
    at: Moment | None,
    delay: Duration | None,
    priority: int | None,
) -> Call[bool]:
    what, id = which(id, key)
    if at is None and delay is None and priority is None:
        raise InvalidArgument("give at=, delay= or priority=: there is nothing to change")
    due_us, delay_us = check.due(delay, at)
    most = limits.PRIORITY_MAX
    rank = None if priority is None else -check.integer(priority, "priority", -most, most)
    change = Reschedule(due_us, None if delay is None else delay_us, rank)

    def start() -> Op[bool]:
        return _changed(what, lambda: core.backend.reschedule(queue, id, key, change, core.now()))

    return Call("reschedule", start, repeatable=at is not None)


def promote(core: Core, queue: str, within: Duration, limit: int) -> Call[int]:
    within_us = check.microseconds(within, "within")
    check.integer(limit, "limit", 1, limits.COUNT_MAX)
    # Repeatable: a message that is ready is no longer scheduled.
    return Call(
        "promote",
        lambda: core.backend.promote(queue, within_us, limit, core.now()),
        repeatable=True,
    )


def redrive(
    core: Core, queue: str, limit: int | None, to: str | None, delay: Duration
) -> Call[int]:
    check.optional_name(to, "to")
    most = limits.COUNT_MAX if limit is None else check.integer(limit, "limit", 1, limits.COUNT_MAX)
    delay_us = check.microseconds(delay, "delay")
    return Call("redrive", lambda: core.backend.redrive(queue, to, most, delay_us, core.now()))


def move(core: Core, queue: str, to: str | None, limit: int) -> Call[int]:
    check.optional_name(to, "to")
    if to == queue:
        raise InvalidArgument(
            f"{queue!r} cannot be moved to itself: give another queue, or none, to move each "
            "message to the queue where it died"
        )
    check.integer(limit, "limit", 1, limits.COUNT_MAX)
    return Call(
        "move",
        lambda: core.backend.move(queue, to, limit, core.now()),
        after=core.settle(False),
    )


def discard(core: Core, queue: str, state: str, limit: int | None) -> Call[int]:
    code = {"done": "d", "dead": "x"}.get(state)
    if code is None:
        raise InvalidArgument('state must be "done" or "dead": only these are discarded')
    most = limits.COUNT_MAX if limit is None else check.integer(limit, "limit", 1, limits.COUNT_MAX)
    return Call("discard", lambda: core.backend.discard(queue, code, most, core.now()))
