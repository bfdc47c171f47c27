"""send, send_many."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from fairlead import limits
from fairlead.backends import base
from fairlead.backends.base import Op, SendRow
from fairlead.errors import ChannelFull, DuplicateKey, InvalidArgument
from fairlead.operations import check
from fairlead.operations.call import Call, Core
from fairlead.values import Duration, Moment, OnConflict, Send, Sent

_ONCE_FOR = limits.ONCE_FOR // limits.SECOND
_CONFLICT = {"error": "e", "ignore": "i", "replace": "r"}
_OUTCOME = {
    base.SENT: "sent",
    base.DUPLICATE: "duplicate",
    base.REPLACED: "replaced",
    base.REFUSED: "refused",
    base.COLLAPSED: "collapsed",
}


def encode(
    body: Any,
    channel: str,
    priority: int,
    delay: Duration | None,
    at: Moment | None,
    key: str | None,
    on_conflict: OnConflict,
    version: int,
    type: str | None,
    headers: Mapping[str, Any] | None,
    lease: Duration | None,
    max_attempts: int | None,
    expires: Duration | None,
    group: str | None,
    debounce: Duration | None,
    max_wait: Duration | None,
    once: str | None = None,
    once_for: Duration = _ONCE_FOR,
) -> SendRow:
    """Check one send and make it what a backend takes."""
    if channel or channel != "":
        check.name(channel, "channel", empty=True)
    if priority.__class__ is not int or priority:
        priority = check.integer(priority, "priority", -limits.PRIORITY_MAX, limits.PRIORITY_MAX)
    if on_conflict not in _CONFLICT:
        raise InvalidArgument(
            f'on_conflict must be "error", "ignore" or "replace", not {on_conflict!r}'
        )
    raw, is_json = check.payload(body, "the body")
    if debounce is not None or max_wait is not None:
        if debounce is None or key is None or on_conflict != "replace":
            raise InvalidArgument(
                'debounce= and max_wait= go with key= and on_conflict="replace": each send under '
                "that key pushes the message on by `debounce` seconds"
            )
        if delay is not None or at is not None:
            raise InvalidArgument("debounce= is itself a delay: leave out delay= and at=")
        delay = debounce
    if once is not None:
        once_us = _once(once, once_for, key)
    elif once_for != _ONCE_FOR:
        raise InvalidArgument("once_for= is how long once= is remembered: give once=, too")
    else:
        once_us = None
    due_us, delay_us = (None, 0) if at is None and delay is None else check.due(delay, at)
    return (
        channel,
        raw,
        is_json,
        -priority,
        due_us,
        delay_us,
        None if key is None else check.name(key, "key"),
        _CONFLICT[on_conflict],
        0 if version == 0 else check.integer(version, "version", 0, limits.VERSION_MAX),
        None if type is None else check.name(type, "type"),
        None if headers is None else check.headers(headers),
        None if lease is None else check.microseconds(lease, "lease"),
        check.optional_integer(max_attempts, "max_attempts", 0, limits.COUNT_MAX),
        None if expires is None else check.microseconds(expires, "expires"),
        None if max_wait is None else check.microseconds(max_wait, "max_wait"),
        None if group is None else check.name(group, "group"),
        once,
        once_us,
    )


def _once(once: Any, once_for: Duration, key: str | None) -> int:
    """Check the name of a send; how long it is remembered."""
    check.name(once, "once")
    if key is not None:
        raise InvalidArgument(
            "once= and key= exclude each other: a key is taken while its message exists, a name "
            "for `once_for` seconds whatever becomes of it"
        )
    us = check.microseconds(once_for, "once_for")
    if us == 0:
        raise InvalidArgument("once_for must be more than 0 seconds, or every send would be sent")
    return us


def encode_send(item: Send) -> SendRow:
    """Check one Send."""
    return encode(
        item.body,
        item.channel,
        item.priority,
        item.delay,
        item.at,
        item.key,
        item.on_conflict,
        item.version,
        item.type,
        item.headers,
        item.lease,
        item.max_attempts,
        item.expires,
        item.group,
        item.debounce,
        item.max_wait,
        item.once,
        item.once_for,
    )


# What a Send has besides its body and channel when nothing else was asked for.
_ordinary = attrgetter(*(field.name for field in fields(Send)[2:]))
_ORDINARY = _ordinary(Send(None))


def _encode_item(item: Any, channels: set[str]) -> SendRow:
    if not isinstance(item, Send):  # a body alone
        raw, is_json = check.payload(item, "the body")
        return ("", raw, is_json, *_PLAIN)
    if (
        item.channel in channels
        and _ordinary(item) == _ORDINARY
        and type(item.priority) is type(item.version) is int  # 0.0 == 0, but it is refused
    ):
        # The bulk of a bulk: a body into a channel whose name has been checked.
        raw, is_json = check.payload(item.body, "the body")
        return (item.channel, raw, is_json, *_PLAIN)
    channels.add(check.name(item.channel, "channel", empty=True))
    return encode_send(item)


_PLAIN = encode_send(Send(None))[3:]


def repeatable(rows: list[SendRow]) -> bool:
    """May these sends be repeated without harm?"""
    # A keyed send with ignore or replace has the same effect twice; one with a name that is still
    # remembered has none.
    return all((row[6] is not None and row[7] != "e") or row[16] is not None for row in rows)


def until(rows: list[SendRow]) -> float:
    """Up to when: for half the time for which the first of their names is remembered."""
    shortest = min((row[17] for row in rows if row[17] is not None), default=None)
    return math.inf if shortest is None else time.monotonic() + shortest / limits.SECOND / 2


def _send(core: Core, queue: str, rows: list[SendRow]) -> Op[list[tuple[int, str]]]:
    if rows[0][15] is not None:
        core.grouped = True
    outcomes = yield from core.backend.send(queue, rows, core.now())
    if rows[0][4] is not None or rows[-1][4] is not None:  # an absolute time may be in the past
        core.look_again(queue)
    check_outcomes(queue, rows, outcomes)
    return outcomes


def check_outcomes(
    queue: str, rows: Sequence[SendRow], outcomes: Sequence[tuple[int, str]]
) -> None:
    """Raise what a send could not do."""
    kinds = {outcome for _, outcome in outcomes}
    if base.CONFLICT in kinds:
        keys = [r[6] for (_, o), r in zip(outcomes, rows, strict=True) if o == base.CONFLICT]
        raise DuplicateKey(queue, keys)
    if base.FULL in kinds:
        full = next(i for i, (_, outcome) in enumerate(outcomes) if outcome == base.FULL)
        raise ChannelFull(queue, rows[full][0], outcomes[full][0] or None)


def sent(id: int, outcome: str) -> Sent:
    return Sent.of(id, _OUTCOME[outcome])


def send(core: Core, queue: str, row: SendRow) -> Call[Sent]:
    rows = [row]

    def start() -> Op[Sent]:
        [(id, outcome)] = yield from _send(core, queue, rows)
        return sent(id, outcome)

    if row[16] is None:
        return Call("send", start, repeatable(rows), after=after(core, rows))
    return Call("send", start, True, until=until(rows))


def send_many(core: Core, queue: str, items: Iterable[Any]) -> Call[list[Sent]]:
    rows = encode_many(items)

    def start() -> Op[list[Sent]]:
        return (yield from send_all(core, queue, rows)) if rows else []

    limit = until(rows) if (again := repeatable(rows)) else math.inf
    return Call("send_many", start, again, after=after(core, rows), until=limit)


def after(core: Core, rows: list[SendRow]) -> Call[Any] | None:
    """A message that is replaced may have been the last member of its group."""
    return core.settle(False) if core.grouped and any(row[7] == "r" for row in rows) else None


def send_all(core: Core, queue: str, rows: list[SendRow]) -> Op[list[Sent]]:
    outcomes = yield from _send(core, queue, rows)
    if all(outcome == base.SENT for _, outcome in outcomes):
        return [Sent(id) for id, _ in outcomes]
    return [sent(id, outcome) for id, outcome in outcomes]


def encode_many(items: Iterable[Any]) -> list[SendRow]:
    """Check many Sends or bodies."""
    given: Any = items
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidArgument("send_many takes a list of bodies or Sends, and nothing else")
    channels: set[str] = set()
    return [_encode_item(item, channels) for item in items]
