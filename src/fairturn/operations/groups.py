"""Groups: messages that belong together, with an end and an abort message (semantics §12)."""

from __future__ import annotations

from typing import Any, Literal

from fairturn.backends.base import Opening
from fairturn.backends.steps import BEGIN, Op
from fairturn.core import check, limits
from fairturn.core.errors import DuplicateKey, InvalidArgument
from fairturn.core.rows import GroupRow, SendRow
from fairturn.core.sends import SEND_OPTIONS, Send, Sent
from fairturn.core.values import GROUP_STATES, GroupStatus, moment, optional_moment
from fairturn.operations import sends
from fairturn.operations.call import Call, Core

OnDead = Literal["ignore", "abort"]
_ON_DEAD = {"ignore": "i", "abort": "a"}
_NOT_ALLOWED = {name: option for name, option in SEND_OPTIONS.items() if not option.end_message}


def opening(name: str, queue: str | None, end: Any, abort: Any, on_dead: str) -> Opening:
    if on_dead not in _ON_DEAD:
        raise InvalidArgument(f'on_dead must be "ignore" or "abort", not {on_dead!r}')
    if queue is None and (end is not None or abort is not None):
        raise InvalidArgument("end= and abort= are sent to the group's queue: give queue=, too")
    return Opening(
        check.name(name, "group"),
        "" if queue is None else check.name(queue, "queue"),
        _ON_DEAD[on_dead],
        _message(end, "end"),
        _message(abort, "abort"),
    )


def _message(value: Any, what: str) -> SendRow | None:
    if value is None:
        return None
    send = value if isinstance(value, Send) else Send(value)
    if any(getattr(send, name) != option.default for name, option in _NOT_ALLOWED.items()):
        *most, last = _NOT_ALLOWED
        raise InvalidArgument(f"{what}= takes no {', '.join(most)} or {last}")
    if send.on_conflict != "error":
        raise InvalidArgument(f'the on_conflict of {what}= is always "error"')
    return sends.encode(send)


def _open(core: Core, opening: Opening) -> Op[None]:
    if not opening.queue:
        raise InvalidArgument(
            f'the group needs a queue for its members: db.group({opening.name!r}, queue="…"), or '
            f"queue.send(…, group={opening.name!r})"
        )
    try:
        yield from core.backend.group_open(opening, core.now())
    except DuplicateKey as error:
        error.add_note("It is the key of the group's end or abort message: give that another key.")
        raise


def send_many(core: Core, opening: Opening, rows: list[SendRow]) -> Call[list[Sent]]:
    """Send members; the first send creates the group."""
    core.grouped = True
    for row in rows:
        if row.group not in (None, opening.name):
            raise InvalidArgument(f"this sends to group {opening.name!r}, not to {row.group!r}")
    rows = [row.of_group(opening.name) for row in rows]

    def start() -> Op[list[Sent]]:
        if not rows:
            return []
        yield BEGIN
        yield from _open(core, opening)
        return (yield from sends.send_all(core, opening.queue, rows))

    return sends.call(core, "send", rows, start)


def start(core: Core, opening: Opening) -> Call[bool]:
    def start() -> Op[bool]:
        yield BEGIN
        started = yield from core.backend.group_start(opening.name, core.now())
        if not started and opening.queue:
            # The group was started before, or it is closed. A closed group must not be created
            # again here.
            if (yield from core.backend.group_status(opening.name, core.now())) is not None:
                return False
            yield from _open(core, opening)
            started = yield from core.backend.group_start(opening.name, core.now())
        if opening.queue:
            core.look_again(opening.queue)
        return started

    return Call("start", start, after=core.settle(True))


def cancel(core: Core, name: str) -> Call[bool]:
    return Call("cancel", lambda: core.backend.group_cancel(name, core.now()))


def status(core: Core, name: str) -> Call[GroupStatus | None]:
    def start() -> Op[GroupStatus | None]:
        row = yield from core.backend.group_status(name, core.now())
        return None if row is None else value(row)

    return Call("status", start, repeatable=True)


def groups(core: Core, limit: int) -> Call[list[GroupStatus]]:
    check.integer(limit, "limit", 1, limits.COUNT_MAX)

    def start() -> Op[list[GroupStatus]]:
        rows = yield from core.backend.groups(limit, core.now())
        return [value(row) for row in rows]

    return Call("groups", start, repeatable=True)


def settle(core: Core) -> Call[int]:
    call = core.settle(True)
    assert call is not None
    return call


def value(row: GroupRow) -> GroupStatus:
    return GroupStatus(
        name=row.name,
        queue=row.queue,
        state=GROUP_STATES[row.state],
        created_at=moment(row.created_at),
        started_at=optional_moment(row.started_at),
        closed_at=optional_moment(row.closed_at),
        sent=row.sent,
        done=row.done,
        dead=row.dead,
        held=row.held,
        waiting=row.waiting,
        leased=row.leased,
    )


def unfinished(status: GroupStatus) -> str:
    """Return the text of WaitTimeout."""
    if status.state == "open":
        return f"group {status.name!r} has not been started: group.start() lets its members run"
    return (
        f"group {status.name!r} is not finished: {status.leased} of its members are leased, "
        f"{status.waiting} waiting"
    )
