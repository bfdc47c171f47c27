"""Groups: messages that belong together, with end and abort work (semantics §12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fairlead import limits
from fairlead.backends.base import BEGIN, Op, Row, SendRow
from fairlead.errors import DuplicateKey, InvalidArgument
from fairlead.operations import check, sending
from fairlead.operations.call import Call, Core
from fairlead.values import GROUP_STATES, GroupStatus, Send, Sent, moment

OnDead = Literal["ignore", "abort"]
_ON_DEAD = {"ignore": "i", "abort": "a"}


@dataclass(frozen=True, slots=True)
class Opening:
    """What a handle says about its group: used by whoever makes it first."""

    name: str
    queue: str | None
    on_dead: str
    end: SendRow | None
    abort: SendRow | None


def opening(name: str, queue: str | None, end: Any, abort: Any, on_dead: str) -> Opening:
    if on_dead not in _ON_DEAD:
        raise InvalidArgument(f'on_dead must be "ignore" or "abort", not {on_dead!r}')
    if queue is None and (end is not None or abort is not None):
        raise InvalidArgument("end= and abort= are sent to the group's queue: name it with queue=")
    return Opening(
        check.name(name, "group"),
        None if queue is None else check.name(queue, "queue"),
        _ON_DEAD[on_dead],
        _work(end, "end"),
        _work(abort, "abort"),
    )


def _work(value: Any, what: str) -> SendRow | None:
    if value is None:
        return None
    send = value if isinstance(value, Send) else Send(value)
    given = (send.expires, send.group, send.debounce, send.once)
    if any(option is not None for option in given):
        raise InvalidArgument(f"{what}= takes no expires, group, debounce or once")
    if send.on_conflict != "error":
        raise InvalidArgument(f'the on_conflict of {what}= is always "error"')
    return sending.encode_send(send)


def _open(core: Core, opening: Opening) -> Op[None]:
    if opening.queue is None:
        raise InvalidArgument(
            f'say which queue its members go to: db.group({opening.name!r}, queue="…"), or send to '
            f"the queue itself with group={opening.name!r}"
        )
    try:
        yield from core.backend.group_open(
            opening.name, opening.queue, opening.on_dead, opening.end, opening.abort, core.now()
        )
    except DuplicateKey as error:
        error.add_note("It is the key of the group's end or abort work: give that another key.")
        raise


def send_many(core: Core, opening: Opening, rows: list[SendRow]) -> Call[list[Sent]]:
    """Send members; the first send makes the group."""
    core.grouped = True
    queue = opening.queue or ""
    for row in rows:
        if row[15] not in (None, opening.name):
            raise InvalidArgument(f"this sends to group {opening.name!r}, not to {row[15]!r}")
    rows = [(*row[:15], opening.name, *row[16:]) for row in rows]

    def start() -> Op[list[Sent]]:
        if not rows:
            return []
        yield BEGIN
        yield from _open(core, opening)
        return (yield from sending.send_all(core, queue, rows))

    again = sending.repeatable(rows)
    after, limit = sending.after(core, rows), sending.until(rows)
    return Call("send", start, again, after=after, until=limit)


def start(core: Core, opening: Opening) -> Call[bool]:
    def start() -> Op[bool]:
        yield BEGIN
        started = yield from core.backend.group_start(opening.name, core.now())
        if not started and opening.queue is not None:
            # Runs already; or has closed, and started again it would end a second time.
            if (yield from core.backend.group_status(opening.name, core.now())) is not None:
                return False
            yield from _open(core, opening)
            started = yield from core.backend.group_start(opening.name, core.now())
        if opening.queue is not None:
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


def value(row: Row) -> GroupStatus:
    name, queue, state, created, started, closed, *counts = row
    return GroupStatus(
        name,
        queue,
        GROUP_STATES[state],
        moment(created),
        None if started is None else moment(started),
        None if closed is None else moment(closed),
        *counts,
    )


def unfinished(status: GroupStatus) -> str:
    """Why a wait for it took too long."""
    if status.state == "open":
        return f"group {status.name!r} has not been started: group.start() lets its members run"
    return (
        f"group {status.name!r} is not finished: {status.leased} of its members are leased, "
        f"{status.waiting} waiting"
    )
