"""Sending many messages: multi-row INSERTs, with the rules for keys decided beforehand.

Bodies are any bytes, and a multi-row INSERT of literals carries them fastest (measured against JSON
and base64). Its rows get consecutive ids, in order, that no other session can get. So the only race
is a key that somebody else sends between our look and our INSERT: then that row is not made, which
shows in its id, and everything since the savepoint is taken back and decided again.

Ids follow the items, but keys must be claimed in one order by all senders, or two that meet in the
middle deadlock: several keys are written after the rows, sorted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.backends import base
from fairlead.backends.base import BEGIN, Op, SendRow
from fairlead.backends.catalogue import Catalogue
from fairlead.backends.mysql.literals import literal
from fairlead.errors import BodyTooLarge, DatabaseBusy, QueueNotFound

ROWS = 1000  # of one INSERT
TRIES = 20
MINUTE = 60_000_000

Outcomes = list[tuple[int, str]]


@dataclass(slots=True)
class Sender:
    """The queue as the batch sees it, and the time of the call."""

    queue_id: int
    lane: int
    max_body: int
    expires_us: int | None
    max_size: int | None
    now: int
    step: int  # between two consecutive ids
    packet: int
    policies: int

    def row(self, item: SendRow, with_key: bool) -> str:
        """One row of VALUES. All of it literals: no driver has to look at thousands of values."""
        (channel, body, is_json, rank, due, delay, key, _) = item[:8]
        (version, type_, headers, lease_us, max_attempts, expires) = item[8:]
        due = self.now + delay if due is None else due
        ready = due <= self.now
        expires = self.expires_us if expires is None else expires
        return (
            f"{self.lane},'{'r' if ready else 's'}',{version},X'{channel.encode().hex()}',{rank},"
            f"{due},{0 if ready else due},{1 if is_json else 0},{self.now},"
            f"{_number(None if expires is None else self.now + expires)},{_number(lease_us)},"
            f"{_number(max_attempts)},{_name(key if with_key else None)},{_name(type_)},"
            f"{literal(headers)},X'{body.hex()}')"
        )


@dataclass(slots=True)
class Plan:
    """What follows for each item from who holds its key."""

    outcomes: list[tuple[int, str]]
    new: list[int] = field(default_factory=list[int])  # positions of the items to insert
    replaced: dict[int, int] = field(default_factory=dict[int, int])  # position -> id
    dead: list[int] = field(default_factory=list[int])  # ids that lose their key


def _number(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def _name(value: str | None) -> str:
    return "NULL" if value is None else f"X'{value.encode().hex()}'"


def _ids(ids: Sequence[int]) -> str:
    return f"({','.join(map(str, ids))})"


def send_many(
    sql: Catalogue, prefix: str, queue: str, items: Sequence[SendRow], now: int | None
) -> Op[Outcomes]:
    yield BEGIN
    rows = yield f"CALL {prefix}sender(%s, %s)", (queue.encode(), now)
    if not rows:
        raise QueueNotFound(queue)
    sender = Sender(*rows[0])
    for item in items:
        if len(item[1]) > sender.max_body:
            raise BodyTooLarge(len(item[1]), sender.max_body)
    last = {item[6]: i for i, item in enumerate(items) if item[6] is not None}
    if last:
        yield sql.savepoint, ()
    for _ in range(TRIES):
        plan = _plan(items, last, (yield from _holders(sql, sender, list(last))))
        if any(outcome == base.CONFLICT for _, outcome in plan.outcomes):
            return plan.outcomes
        full = yield from _full(prefix, sender, items, plan)
        if full:
            return [
                (0, base.FULL if i in full else outcome)
                for i, (_, outcome) in enumerate(plan.outcomes)
            ]
        if not (yield from _lock(sql, plan, items)):
            continue
        for start in range(0, len(plan.dead), ROWS):
            yield f"{sql.free_keys} {_ids(plan.dead[start : start + ROWS])}", ()
        if not (yield from _insert(sql, sender, items, plan)):
            yield sql.take_back, ()
            continue
        yield from _replace(sql, sender, items, plan)
        if plan.new:
            minute = sender.now - sender.now % MINUTE
            yield sql.count_sent, (sender.queue_id, minute, len(plan.new))
        return [
            (plan.outcomes[last.get(item[6], i)][0], plan.outcomes[i][1])
            for i, item in enumerate(items)
        ]
    raise DatabaseBusy("other senders of the same keys came first again and again; try again")


def _plan(
    items: Sequence[SendRow], last: dict[str, int], holders: dict[str, tuple[int, str]]
) -> Plan:
    """docs/semantics.md, 3.2."""
    plan = Plan([])
    for i, item in enumerate(items):
        key, on_conflict = item[6], item[7]
        id, state = holders.get(key, (0, "x")) if key is not None else (0, "x")
        if key is not None and last[key] != i:
            plan.outcomes.append((0, base.COLLAPSED))
        elif state == "x":
            plan.outcomes.append((0, base.SENT))
            plan.new.append(i)
            if id:
                plan.dead.append(id)
        elif on_conflict == "e":
            plan.outcomes.append((id, base.CONFLICT))
        elif on_conflict == "i":
            plan.outcomes.append((id, base.DUPLICATE))
        elif state == "l":
            plan.outcomes.append((id, base.REFUSED))
        else:
            plan.outcomes.append((id, base.REPLACED))
            plan.replaced[i] = id
    return plan


def _holders(sql: Catalogue, sender: Sender, keys: list[str]) -> Op[dict[str, tuple[int, str]]]:
    holders: dict[str, tuple[int, str]] = {}
    for start in range(0, len(keys), ROWS):
        some = ",".join(map(_name, keys[start : start + ROWS]))
        text = f"{sql.holders} ({some}) {sql.holders_lane} {sender.lane}"
        for id, key, state in (yield text, ()):
            holders[_text(key)] = (id, _text(state))
    return holders


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes | bytearray) else value


def _full(prefix: str, sender: Sender, items: Sequence[SendRow], plan: Plan) -> Op[set[int]]:
    """The positions of new items whose channel has no room for all of this call's."""
    if sender.max_size is None and not sender.policies:
        return set()
    new: dict[bytes, int] = {}
    for i in plan.new:
        channel = items[i][0].encode()
        new[channel] = new.get(channel, 0) + 1
    names = json.dumps([channel.hex() for channel in new])
    rows = yield f"CALL {prefix}sizes(%s, %s, %s)", (sender.queue_id, sender.lane, names)
    full = {bytes(channel) for channel, most, size in rows if size + new[bytes(channel)] > most}
    return {i for i in plan.new if items[i][0].encode() in full}


def _lock(sql: Catalogue, plan: Plan, items: Sequence[SendRow]) -> Op[bool]:
    """Lock what is to be replaced; False if something of it has changed since the look."""
    expected = {id: items[i][6] for i, id in plan.replaced.items()}
    ids = sorted(expected)
    for start in range(0, len(ids), ROWS):
        some = ids[start : start + ROWS]
        rows = yield f"{sql.lock_holders} {_ids(some)} {sql.for_update}", ()
        found = {id: (_text(key or b""), _text(state)) for id, key, state in rows}
        for id in some:
            key, state = found.get(id, ("", "x"))
            if key != expected[id] or state in ("l", "x"):
                return False
    return True


def _chunks(rows: Iterator[tuple[int, str]], most: int) -> Iterator[list[tuple[int, str]]]:
    """Rows in INSERTs of at most so many rows and characters."""
    chunk: list[tuple[int, str]] = []
    size = 0
    for row in rows:
        if chunk and (len(chunk) == ROWS or size + len(row[1]) > most):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += len(row[1])
    if chunk:
        yield chunk


def _most(sender: Sender) -> int:
    return max(min(sender.packet // 2, 4_000_000), 1000)


def _insert(sql: Catalogue, sender: Sender, items: Sequence[SendRow], plan: Plan) -> Op[bool]:
    """Insert the new ones and note their ids; False if somebody else had one of the keys first."""
    keyed: dict[str, int] = {items[i][6]: i for i in plan.new if items[i][6] is not None}
    one = len(keyed) == 1
    rows = ((i, "(" + sender.row(items[i], one)) for i in plan.new)
    for chunk in _chunks(rows, _most(sender)):
        if one:
            yield sql.no_id, ()
        head = sql.insert_keyed if one else sql.insert
        yield f"{head} {','.join(row for _, row in chunk)}", ()
        [(first,)] = yield sql.first_id, ()
        for n, (i, _) in enumerate(chunk):
            plan.outcomes[i] = (first + n * sender.step, base.SENT)
    if len(keyed) > 1:
        claims = sorted((key.encode(), plan.outcomes[i][0]) for key, i in keyed.items())
        for start in range(0, len(claims), ROWS):
            some = [[id, key.hex()] for key, id in claims[start : start + ROWS]]
            yield sql.claim_keys, (json.dumps(some),)
    holders = yield from _holders(sql, sender, list(keyed))
    # A row that was not made shifts the ids, and the holder's is none of our own: no match.
    return all(holders.get(key, (0,))[0] == plan.outcomes[i][0] for key, i in keyed.items())


def _replace(sql: Catalogue, sender: Sender, items: Sequence[SendRow], plan: Plan) -> Op[None]:
    rows = ((i, f"({id},{sender.row(items[i], True)}") for i, id in plan.replaced.items())
    for chunk in _chunks(rows, _most(sender)):
        yield f"{sql.replace} {','.join(row for _, row in chunk)} {sql.replacing}", ()
