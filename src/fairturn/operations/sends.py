"""Sending: check and encode messages, send them, and say what happened to each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from fairturn.backends import base
from fairturn.backends.steps import Op
from fairturn.core import check, limits
from fairturn.core.errors import ChannelFull, DuplicateKey, InvalidArgument
from fairturn.core.rows import SendRow, send_row
from fairturn.core.sends import SEND_OPTIONS, Send, Sent
from fairturn.operations.call import Call, Core

T = TypeVar("T")
OUTCOMES = {
    base.SENT: "sent",
    base.DUPLICATE: "duplicate",
    base.REPLACED: "replaced",
    base.REFUSED: "refused",
    base.COLLAPSED: "collapsed",
}

# --- from a Send to a row -------------------------------------------------------------------------
# The function that checks and encodes an option, by its name.
_check = {name: option.check for name, option in SEND_OPTIONS.items()}
_ONCE_FOR = SEND_OPTIONS["once_for"].default
# The default values of all columns after channel, body and json.
_, _, _, *_defaults = SendRow("", b"", 0)
_PLAIN = tuple(_defaults)
_others = attrgetter(*(name for name in SEND_OPTIONS if name != "channel"))
_ORDINARY = _others(Send(None))


def encode(item: Send) -> SendRow:
    """Check a Send and return the row that a backend takes.

    Most sends have few options: each is compared with its default before a check is called. A loop
    over the table would be slower."""
    raw, is_json = check.payload(item.body, "the body")
    priority, delay, at, once_us = item.priority, item.delay, item.at, None
    rank = _check["priority"](priority) if priority or type(priority) is not int else 0
    if item.debounce is not None or item.max_wait is not None:
        delay = _debounce(item)
    if item.once is not None:
        once_us = _once_us(item)
    elif item.once_for != _ONCE_FOR:
        raise InvalidArgument("once_for= says how long once= is remembered: give once=, too")
    due_us, delay_us = (None, 0) if delay is None and at is None else check.due(delay, at)
    return send_row(
        (
            "" if item.channel == "" else _check["channel"](item.channel),
            raw,
            is_json,
            rank,
            due_us,
            delay_us,
            None if item.key is None else _check["key"](item.key),
            "e" if item.on_conflict == "error" else _check["on_conflict"](item.on_conflict),
            0 if item.version == 0 else _check["version"](item.version),
            None if item.type is None else _check["type"](item.type),
            None if item.headers is None else _check["headers"](item.headers),
            None if item.lease is None else _check["lease"](item.lease),
            None if item.max_attempts is None else _check["max_attempts"](item.max_attempts),
            None if item.expires is None else _check["expires"](item.expires),
            None if item.max_wait is None else _check["max_wait"](item.max_wait),
            None if item.group is None else _check["group"](item.group),
            None if item.once is None else _check["once"](item.once),
            once_us,
        )
    )


def _debounce(item: Send) -> Any:
    """Check the options of a debounced send and return its delay."""
    if item.debounce is None or item.key is None or item.on_conflict != "replace":
        raise InvalidArgument(
            'debounce= and max_wait= need key= and on_conflict="replace": each send under the key '
            "puts the message off by `debounce` seconds"
        )
    if item.delay is not None or item.at is not None:
        raise InvalidArgument("debounce= is itself a delay: leave out delay= and at=")
    return item.debounce


def _once_us(item: Send) -> int:
    """Check the options of a send with ``once`` and return how long its name is remembered."""
    if item.key is not None:
        raise InvalidArgument(
            "once= and key= exclude each other: a key is taken while its message exists, a name "
            "for `once_for` seconds, even if the message is finished earlier"
        )
    us = check.microseconds(item.once_for, "once_for")
    if us == 0:
        raise InvalidArgument("once_for must be more than 0 seconds: 0 would prevent no send")
    return us


def encode_many(items: Iterable[Any]) -> list[SendRow]:
    """Encode the items of send_many: Sends, or bodies alone."""
    given: Any = items
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidArgument(
            f"send_many takes a list of bodies or Send objects, not {given!r:.60}"
        )
    channels: set[str] = set()  # whose names have been checked
    rows: list[SendRow] = []
    for item in items:
        if not isinstance(item, Send):
            rows.append(send_row(("", *check.payload(item, "the body"), *_PLAIN)))
        elif (
            item.channel in channels
            and _others(item) == _ORDINARY
            and type(item.priority) is type(item.version) is int  # 0.0 == 0, but it is refused
        ):
            # Most items of a large batch are a body and a channel.
            start = item.channel, *check.payload(item.body, "the body")
            rows.append(send_row(start + _PLAIN))
        else:
            rows.append(encode(item))
            channels.add(item.channel)
    return rows


# --- sending --------------------------------------------------------------------------------------
def send(core: Core, queue: str, rows: list[SendRow], what: str = "send") -> Call[list[Sent]]:
    return call(core, what, rows, lambda: send_all(core, queue, rows))


def call(core: Core, what: str, rows: list[SendRow], start: Callable[[], Op[T]]) -> Call[T]:
    """A Call that sends these rows. It is repeatable if all of them are: a send with a key and
    ignore or replace has the same effect twice, and one with a name has no effect while its name is
    remembered. To be safe, the call is repeated only during the first half of that time."""
    until, closing = math.inf, after(core, rows) if core.grouped else None
    for row in rows:
        if row.once_us is not None:
            until = min(until, time.monotonic() + row.once_us / limits.SECOND / 2)
        elif row.key is None or row.on_conflict == "e":
            return Call(what, start, after=closing)
    return Call(what, start, repeatable=True, after=closing, until=until)


def after(core: Core, rows: list[SendRow]) -> Call[Any] | None:
    """A message that is replaced may have been the last member of its group."""
    if core.grouped and any(row.on_conflict == "r" for row in rows):
        return core.settle(False)
    return None


def send_all(core: Core, queue: str, rows: list[SendRow]) -> Op[list[Sent]]:
    if not rows:
        return []
    first, last = rows[0], rows[-1]
    if first.group is not None:
        core.grouped = True
    outcomes = yield from core.backend.send(queue, rows, core.now())
    if first.due_us is not None or last.due_us is not None:  # it may be in the past
        core.look_again(queue)
    return results(queue, rows, outcomes)


def results(queue: str, rows: Sequence[SendRow], outcomes: Sequence[tuple[int, str]]) -> list[Sent]:
    """Return the ids with their outcomes, or raise the error for which nothing was sent."""
    kinds = {outcome for _, outcome in outcomes}
    if kinds == {base.SENT}:
        return [Sent(id) for id, _ in outcomes]
    pairs = list(zip(outcomes, rows, strict=True))
    if base.CONFLICT in kinds:
        taken = [row.key or "" for (_, outcome), row in pairs if outcome == base.CONFLICT]
        raise DuplicateKey(queue, taken)
    for (id, outcome), row in pairs:
        if outcome == base.FULL:
            raise ChannelFull(queue, row.channel, id or None)
    return [Sent.of(id, OUTCOMES[outcome]) for id, outcome in outcomes]
