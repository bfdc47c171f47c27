"""Receive on PostgreSQL: one call, and shorter ones for consumers whose last receive was full."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from fairturn.backends.base import ConsumerState, Receive, Received
from fairturn.backends.postgres.literals import lease_arrays, numbers, texts
from fairturn.backends.postgres.scan_hints import Hint, Hints
from fairturn.backends.steps import Op, Rows
from fairturn.core.rows import MessageRow, message_row

_columns = itemgetter(slice(len(MessageRow._fields)))
_decode = json.JSONDecoder().raw_decode  # json.loads takes twice as long for so short a text


class ReceiveTrailer(NamedTuple):
    """The last row of a receive; schema/tables explains its fields."""

    channel: str
    credit: int
    retry_after_us: int | None
    now_us: int
    ids: list[int]
    entries_read: int
    swept: bool
    recovered: bool
    lost: list[int] | None
    versions: list[int] | None
    floors: dict[str, int] | None
    server: int | None
    ordered: list[str] | None


def _parts(answer: Rows) -> tuple[list[MessageRow], ReceiveTrailer]:
    """The messages, and the last row: it has the trailer in a column that is NULL elsewhere."""
    *_, trailer = answer.pop()
    fields, _ = _decode(trailer)
    return _messages(answer), ReceiveTrailer(**fields)


def _messages(answer: Rows) -> list[MessageRow]:
    return list(map(message_row, map(_columns, answer)))


def _numbers(text: str | None) -> list[int]:
    return [int(number) for number in text.split(",")] if text else []


def _order(row: MessageRow) -> tuple[int, int, int]:
    return -row.priority, row.due_at, row.id


class Receiving:
    statements: dict[str, str]

    def receive(
        self, queue: str, args: Receive, consumer: ConsumerState, now: int | None
    ) -> Op[Received]:
        if consumer.extra is None:
            consumer.extra = Hints()
        hints: Hints = consumer.extra
        forgotten = hints.forgotten
        # Tests that set the clock and receives with a filter always read from the start: what they
        # skip is still there.
        hinted = (
            now is None
            and not consumer.yours
            and args.version is None
            and args.types is None
            and args.min_priority is None
        )
        started = time.monotonic()
        look = not hinted or hints.look_due()
        lost: list[int] = []
        if hinted and not look and args.max_bytes is None:
            rows, lost, acked = yield from self._receive_short(
                queue, args, consumer, hints, started
            )
            if rows:
                return Received(rows, None, lost)
            if acked:
                args = replace(args, acks=())
        passed: list[Hint] = hints.near(consumer.channel, args.n, look) if hinted else []
        rows, trailer = yield from self._receive_rows(
            queue, args, consumer, hints, passed, look, now
        )
        lost += trailer.lost or ()
        if not rows and not all(hint.is_start for hint in passed) and hints.may_look():
            # Nothing behind the hints: read from the start before it returns nothing.
            args, passed, look = replace(args, acks=()), [], True
            rows, trailer = yield from self._receive_rows(
                queue, args, consumer, hints, passed, look, now
            )
        if hinted:
            hints.took(started, look, trailer.swept, trailer.now_us, trailer.entries_read, args.n)
            if trailer.recovered or (not rows and not passed):
                hints.forget()
                forgotten = hints.forgotten
            floors, ordered = trailer.floors, trailer.ordered or ()
            hints.given(rows, passed, forgotten, ordered=ordered)
            hints.counted(floors, trailer.server)
            hints.versions = trailer.versions
            hints.was_full = len(rows) == args.n
            hints.was_plain = trailer.floors is None
        return Received(rows, None if rows else trailer.retry_after_us, lost)

    def _receive_short(
        self, queue: str, args: Receive, consumer: ConsumerState, hints: Hints, started: float
    ) -> Op[tuple[list[MessageRow], list[int], bool]]:
        """Its messages, the acks it lost, and whether it has handled the acks. If it has no
        messages, the whole receive is needed."""
        version, forgotten = hints.short(), hints.forgotten
        if version is None:
            return [], [], False
        answer: Rows
        passed: Sequence[Hint] = ()
        floors: dict[str, int] | None = None
        server: int | None = None
        lone, acks = hints.lone(), lease_arrays(args.acks)
        if args.n == 1 and hints.was_plain and consumer.channel is not None and not hints.useful():
            place = (consumer.channel, version)
            params = (queue, args.lease_us, args.permit, *place, args.token, *acks)
            answer = yield self.statements["receive_next"], params
            if not answer:
                hints.gave_up()
                return [], [], False
            [(*columns, entries_read, ids)] = answer
            row = message_row(columns)
            rows, lost = [row], _numbers(ids)
            channel = row.channel
        elif lone is not None:
            channel, *position = lone
            place = (*position, hints.floors.get(channel, 0), hints.server)
            answer = yield (
                self.statements["receive_lone"],
                (
                    queue,
                    args.n,
                    args.lease_us,
                    args.permit,
                    channel,
                    version,
                    *place,
                    args.token,
                    *acks,
                ),
            )
            if len(answer) <= 1:
                hints.gave_up()
            if not answer:
                return [], [], False
            *_, entries_read, ids, text, server = answer.pop()
            rows, lost = _messages(answer), _numbers(ids)
            rows.sort(key=_order)
            passed, floors = [lone], text and json.loads(text)
        else:
            return [], [], False
        if rows:
            consumer.channel, consumer.credit = channel, 0
            hints.took(started, False, False, 0, entries_read, args.n)
        hints.given(rows, passed, forgotten)
        hints.counted(floors, server)
        return rows, lost, True

    def _receive_rows(
        self,
        queue: str,
        args: Receive,
        consumer: ConsumerState,
        hints: Hints,
        passed: Sequence[Hint],
        look: bool,
        now: int | None,
    ) -> Op[tuple[list[MessageRow], ReceiveTrailer]]:
        """The whole receive in one call."""
        floors = None if now is not None else hints.near_floors(consumer.channel, args.n)
        since = 0 if look else hints.swept_us
        answer: Rows = yield (
            self.statements["receive"],
            (
                queue,
                args.n,
                args.lease_us,
                args.version,
                None if args.types is None else list(args.types),
                args.min_priority,
                args.max_bytes,
                args.permit,
                *lease_arrays(args.acks),
                consumer.channel,
                consumer.credit,
                None if look or not hints.versions else numbers(hints.versions),
                texts([hint.channel for hint in passed]),
                numbers([hint.rank for hint in passed]),
                numbers([hint.due for hint in passed]),
                numbers([hint.id for hint in passed]),
                None if floors is None else json.dumps(floors),
                hints.server,
                int(look or hints.sweep_due()),
                since,
                since,
                int(not consumer.yours),
                args.token,
                now,
            ),
        )
        rows, trailer = _parts(answer)
        consumer.channel, consumer.credit = trailer.channel, trailer.credit
        found = {row.id: row for row in rows}
        return [found[id] for id in trailer.ids], trailer
