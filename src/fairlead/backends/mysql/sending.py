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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.backends import base
from fairlead.backends.base import BEGIN, Op, SendRow
from fairlead.backends.catalogue import Catalogue
from fairlead.backends.mysql.literals import literal
from fairlead.backends.mysql.remembering import Names, give, take
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
    events: int
    now: int
    step: int  # between two consecutive ids
    packet: int
    policies: int
    # The groups of the items by name: (id, started).
    groups: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def row(self, item: SendRow, with_key: bool, created: int | None = None) -> str:
        """One row of VALUES. All of it literals: no driver has to look at thousands of values.

        ``created`` is when the message that it replaces was; only those of a call with groups, and
        those, end with a group.
        """
        (channel, body, is_json, rank, due, delay, key, _) = item[:8]
        (version, type_, headers, lease_us, max_attempts, expires, max_wait, group) = item[8:16]
        due = self.now + delay if due is None else due
        if max_wait is not None:
            due = min(due, (self.now if created is None else created) + max_wait)
        state, tail = "r" if due <= self.now else "s", ")"
        if group is not None:
            id, started = self.groups[group]
            state, tail = state if started else "h", f",{id})"
        elif self.groups or created is not None:
            tail = ",NULL)"
        expires = self.expires_us if expires is None else expires
        return (
            f"{self.lane},'{state}',{version},X'{channel.encode().hex()}',{rank},"
            f"{due},{due if state == 's' else 0},{1 if is_json else 0},{self.now},"
            f"{_number(None if expires is None else self.now + expires)},{_number(lease_us)},"
            f"{_number(max_attempts)},{_name(key if with_key else None)},{_name(type_)},"
            f"{literal(headers)},X'{body.hex()}'{tail}"
        )


@dataclass(slots=True)
class Plan:
    """What follows for each item from who holds its key."""

    outcomes: list[tuple[int, str]]
    new: list[int] = field(default_factory=list[int])  # positions of the items to insert
    replaced: dict[int, int] = field(default_factory=dict[int, int])  # position -> id
    # Of those by id: when it was created (None: it is done, and re-armed) and its group.
    before: dict[int, tuple[int | None, int | None]] = field(
        default_factory=dict[int, "tuple[int | None, int | None]"]
    )
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
    groups = sorted({item[15] for item in items if item[15] is not None}, key=str.encode)
    names = Names.of(items)
    if names.firsts:
        yield from take(prefix, names, items, sender.lane, sender.now)
    if groups:
        # Their rows before any message; those that are not there are made once they are needed.
        yield from _join(prefix, sender, queue, groups, create=False)
    known = dict(sender.groups)
    if last:
        yield sql.savepoint, ()
    for _ in range(TRIES):
        plan = _plan(items, last, (yield from _holders(sql, sender, list(last))), names)
        if any(outcome == base.CONFLICT for _, outcome in plan.outcomes):
            yield from give(prefix, names, sender.lane, None)
            return plan.outcomes
        full = yield from _full(prefix, sender, items, plan)
        if full:
            yield from give(prefix, names, sender.lane, None)
            return [
                (0, base.FULL if i in full else outcome)
                for i, (_, outcome) in enumerate(plan.outcomes)
            ]
        if not (yield from _lock(sql, plan, items)):
            continue
        if groups:
            wanted = {items[i][15] for i in (*plan.new, *plan.replaced)} - {None, *sender.groups}
            yield from _join(prefix, sender, queue, sorted(wanted, key=str.encode), create=True)
        for start in range(0, len(plan.dead), ROWS):
            yield f"{sql.free_keys} {_ids(plan.dead[start : start + ROWS])}", ()
        if not (yield from _insert(sql, sender, items, plan)):
            yield sql.take_back, ()
            sender.groups = dict(known)  # those that were made since are gone
            continue
        yield from _leave(prefix, sender, items, plan)
        yield from _replace(sql, sender, items, plan)
        if plan.new:
            minute = sender.now - sender.now % MINUTE
            yield sql.count_sent, (sender.queue_id, minute, len(plan.new))
        if groups or sender.events:
            yield from _tell(prefix, sender, items, plan)
        yield from give(prefix, names, sender.lane, plan.outcomes)
        return [
            (names.id(last.get(item[6], i), item[16], plan.outcomes), plan.outcomes[i][1])
            for i, item in enumerate(items)
        ]
    yield from give(prefix, names, sender.lane, None)
    raise DatabaseBusy("other senders of the same keys came first again and again; try again")


def _plan(
    items: Sequence[SendRow],
    last: dict[str, int],
    holders: dict[str, tuple[int, str]],
    names: Names,
) -> Plan:
    """docs/semantics.md, 3.2 and 19.1."""
    plan = Plan([])
    for i, item in enumerate(items):
        key, on_conflict = item[6], item[7]
        id, state = holders.get(key, (0, "x")) if key is not None else (0, "x")
        if key is not None and last[key] != i:
            plan.outcomes.append((0, base.COLLAPSED))
        elif names.duplicate(i, item[16]):
            plan.outcomes.append((0, base.DUPLICATE))
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
        found = {row[0]: row[1:] for row in rows}
        for id in some:
            key, state, created, group = found.get(id, (b"", "x", 0, None))
            state = _text(state)
            if _text(key or b"") != expected[id] or state in ("l", "x"):
                return False
            plan.before[id] = (None, None) if state == "d" else (created, group)
    return True


def _join(prefix: str, sender: Sender, queue: str, names: Sequence[str], create: bool) -> Op[None]:
    """Lock open groups in share mode, in one order, and note them."""
    wanted = json.dumps([name.encode().hex() for name in names])
    arguments = (wanted, queue.encode(), int(create), sender.now)
    [(found,)] = yield f"CALL {prefix}groups_join(%s, %s, %s, %s)", arguments
    for name, id, started in json.loads(found):
        sender.groups[bytes.fromhex(name).decode()] = (id, started)


def _leave(prefix: str, sender: Sender, items: Sequence[SendRow], plan: Plan) -> Op[None]:
    """Replaced messages leave the group they had, unless the new send belongs to it too."""
    left: list[int] = []
    for i, id in plan.replaced.items():
        group = items[i][15]
        old, new = plan.before[id][1], None if group is None else sender.groups[group][0]
        if old is not None and old != new:
            left.append(id)
    for start in range(0, len(left), ROWS):
        some = ",".join(map(str, left[start : start + ROWS]))
        yield f"CALL {prefix}members_left(%s)", (some,)


def _tell(prefix: str, sender: Sender, items: Sequence[SendRow], plan: Plan) -> Op[None]:
    """The members of groups, how many were sent to each, and the events."""
    sent = sorted((*plan.new, *plan.replaced))
    members = [plan.outcomes[i][0] for i in sent if items[i][15] is not None]
    counts = Counter(sender.groups[items[i][15]][0] for i in sent if items[i][15] is not None)
    marks = json.dumps(list(counts.items()))
    for start in range(0, len(members), ROWS):
        some = json.dumps(members[start : start + ROWS])
        yield f"CALL {prefix}members_joined(%s, %s)", (some, "[]" if start else marks)
    if sender.events:
        for start in range(0, len(sent), ROWS):
            some = ",".join(str(plan.outcomes[i][0]) for i in sent[start : start + ROWS])
            yield f"CALL {prefix}created(%s, %s, %s)", (sender.queue_id, some, sender.now)


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
        if sender.groups:
            head = sql.insert_keyed_grouped if one else sql.insert_grouped
        else:
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
    def row(i: int, id: int) -> str:
        created = plan.before[id][0]
        return f"({id},{sender.row(items[i], True, sender.now if created is None else created)}"

    rows = ((i, row(i, id)) for i, id in plan.replaced.items())
    for chunk in _chunks(rows, _most(sender)):
        yield f"{sql.replace} {','.join(row for _, row in chunk)} {sql.replacing}", ()
