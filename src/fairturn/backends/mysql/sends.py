"""Sending many messages: the keys are read first, then multi-row INSERTs follow.

Bodies are any bytes, and a multi-row INSERT of literals is the fastest way to send them (measured
against JSON and base64). Its rows get consecutive ids, in order, that no other session can get. So
there is only one race: another sender inserts a key between our SELECT and our INSERT. Then our row
is not inserted, its id shows that, and the call goes back to its savepoint and starts again.

The ids have the order of the items. But all senders must insert keys in the same order, or two of
them deadlock. So if there are several keys, they are written after the rows, sorted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairturn.backends import base
from fairturn.backends.catalogue import Catalogue
from fairturn.backends.keys import SendPlan
from fairturn.backends.keys import plan as plan_of
from fairturn.backends.mysql.literals import literal
from fairturn.backends.mysql.procedures import text
from fairturn.backends.mysql.remembered import Names, give, take
from fairturn.backends.steps import BEGIN, Op
from fairturn.core.errors import BodyTooLarge, DatabaseBusy, QueueNotFound
from fairturn.core.rows import SendRow

ROWS = 1000  # in one INSERT
TRIES = 20
MINUTE = 60_000_000

Outcomes = list[tuple[int, str]]


@dataclass(slots=True)
class Sender:
    """The queue, and the time of the call."""

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
    before: dict[int, Before] = field(default_factory=dict[int, "Before"])  # by id

    def row(self, item: SendRow, with_key: bool, created: int | None = None) -> str:
        """One row of VALUES, as literals: so no driver has to encode thousands of values.

        ``created`` is when the message that it replaces was; only those of a call with groups, and
        those, end with a group.
        """
        due = self.now + item.delay_us if item.due_us is None else item.due_us
        if item.max_wait_us is not None:
            due = min(due, (self.now if created is None else created) + item.max_wait_us)
        state, tail = "r" if due <= self.now else "s", ")"
        if item.group is not None:
            id, started = self.groups[item.group]
            state, tail = state if started else "h", f",{id})"
        elif self.groups or created is not None:
            tail = ",NULL)"
        expires = self.expires_us if item.expires_us is None else item.expires_us
        return (
            f"{self.lane},'{state}',{item.version},X'{item.channel.encode().hex()}',{item.rank},"
            f"{due},{due if state == 's' else 0},{1 if item.json else 0},{self.now},"
            f"{literal(None if expires is None else self.now + expires)},{literal(item.lease_us)},"
            f"{literal(item.max_attempts)},{_name(item.key if with_key else None)},"
            f"{_name(item.type)},{literal(item.headers)},X'{item.body.hex()}'{tail}"
        )


class Holder(NamedTuple):
    """The message that has a key."""

    id: int
    state: str


class Before(NamedTuple):
    """A message before it is replaced."""

    created_at: int | None  # None: it is done, and re-armed
    group_id: int | None


Plan = SendPlan[Holder]


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
    [row] = rows
    sender = Sender(*row)
    for item in items:
        if len(item.body) > sender.max_body:
            raise BodyTooLarge(len(item.body), sender.max_body)
    last = {item.key: i for i, item in enumerate(items) if item.key is not None}
    groups = sorted({item.group for item in items if item.group is not None}, key=str.encode)
    names = Names.of(items)
    if names.firsts:
        yield from take(prefix, names, items, sender.lane, sender.now)
    if groups:
        # Lock groups before messages. Missing groups are created when they are needed.
        yield from _join(prefix, sender, queue, groups, create=False)
    known = dict(sender.groups)
    if last:
        yield sql.savepoint, ()
    for _ in range(TRIES):
        holders = yield from _holders(sql, sender, list(last))
        plan = plan_of(items, holders, names.duplicates(items))
        if plan.conflicts:
            yield from give(prefix, names, sender.lane, None)
            return plan.outcomes
        full = yield from _full(prefix, sender, items, plan)
        if full:
            yield from give(prefix, names, sender.lane, None)
            return [
                (0, base.FULL if i in full else outcome)
                for i, (_, outcome) in enumerate(plan.outcomes)
            ]
        if not (yield from _lock(sql, sender, items, plan)):
            continue
        if groups:
            sent = (items[i].group for i in (*plan.new, *plan.replaced))
            wanted = {group for group in sent if group is not None} - {*sender.groups}
            yield from _join(prefix, sender, queue, sorted(wanted, key=str.encode), create=True)
        for start in range(0, len(plan.dead), ROWS):
            yield f"{sql.free_keys} {_ids(plan.dead[start : start + ROWS])}", ()
        if not (yield from _insert(sql, sender, items, plan)):
            yield sql.take_back, ()
            sender.groups = dict(known)  # those created since then are rolled back
            continue
        yield from _leave(prefix, sender, items, plan)
        yield from _replace(sql, sender, items, plan)
        if plan.new:
            minute = sender.now - sender.now % MINUTE
            yield sql.count_sent, (sender.queue_id, minute, len(plan.new))
        if groups or sender.events:
            yield from _tell(prefix, sender, items, plan)
        yield from give(prefix, names, sender.lane, plan.outcomes)
        outcomes: Outcomes = []
        for i, (item, (_, outcome)) in enumerate(zip(items, plan.outcomes, strict=True)):
            final = i if item.key is None else last[item.key]
            outcomes.append((names.id(final, item.once, plan.outcomes), outcome))
        return outcomes
    yield from give(prefix, names, sender.lane, None)
    raise DatabaseBusy("other senders have sent the same keys first, many times; try again")


def _holders(sql: Catalogue, sender: Sender, keys: list[str]) -> Op[dict[str, Holder]]:
    holders: dict[str, Holder] = {}
    for start in range(0, len(keys), ROWS):
        some = ",".join(map(_name, keys[start : start + ROWS]))
        rows = yield f"{sql.holders} ({some}) {sql.holders_lane} {sender.lane}", ()
        for id, key, state in rows:
            holders[text(key)] = Holder(id, text(state))
    return holders


def _full(prefix: str, sender: Sender, items: Sequence[SendRow], plan: Plan) -> Op[set[int]]:
    """The positions of the new items whose channel has no room for all its new items."""
    if sender.max_size is None and not sender.policies:
        return set()
    new: dict[bytes, int] = {}
    for i in plan.new:
        channel = items[i].channel.encode()
        new[channel] = new.get(channel, 0) + 1
    names = json.dumps([channel.hex() for channel in new])
    rows = yield f"CALL {prefix}sizes(%s, %s, %s)", (sender.queue_id, sender.lane, names)
    full = {bytes(channel) for channel, most, size in rows if size + new[bytes(channel)] > most}
    return {i for i in plan.new if items[i].channel.encode() in full}


def _lock(sql: Catalogue, sender: Sender, items: Sequence[SendRow], plan: Plan) -> Op[bool]:
    """Lock the messages to replace; False if one of them has changed since it was read."""
    expected = {holder.id: items[i].key for i, holder in plan.replaced.items()}
    ids = sorted(expected)
    for start in range(0, len(ids), ROWS):
        some = ids[start : start + ROWS]
        rows = yield f"{sql.lock_holders} {_ids(some)} {sql.for_update}", ()
        found = {id: rest for id, *rest in rows}
        for id in some:
            key, state, created_at, group_id = found.get(id, (b"", "x", 0, None))
            state = text(state)
            if text(key or b"") != expected[id] or state in ("l", "x"):
                return False
            before = Before(None, None) if state == "d" else Before(created_at, group_id)
            sender.before[id] = before
    return True


def _join(prefix: str, sender: Sender, queue: str, names: Sequence[str], create: bool) -> Op[None]:
    """Lock open groups in share mode, in one order, and add them to the sender's."""
    wanted = json.dumps([name.encode().hex() for name in names])
    arguments = (wanted, queue.encode(), int(create), sender.now)
    [(found,)] = yield f"CALL {prefix}groups_join(%s, %s, %s, %s)", arguments
    for name, id, started in json.loads(found):
        sender.groups[bytes.fromhex(name).decode()] = (id, started)


def _leave(prefix: str, sender: Sender, items: Sequence[SendRow], plan: Plan) -> Op[None]:
    """Replaced messages leave the group they had, unless the new send belongs to it too."""
    left: list[int] = []
    for i, holder in plan.replaced.items():
        group = items[i].group
        old = sender.before[holder.id].group_id
        new, _ = (None, None) if group is None else sender.groups[group]
        if old is not None and old != new:
            left.append(holder.id)
    for start in range(0, len(left), ROWS):
        some = ",".join(map(str, left[start : start + ROWS]))
        yield f"CALL {prefix}members_left(%s)", (some,)


def _tell(prefix: str, sender: Sender, items: Sequence[SendRow], plan: Plan) -> Op[None]:
    """Record the members of groups, how many were sent to each, and the events."""
    sent = [(items[i].group, *plan.outcomes[i]) for i in sorted((*plan.new, *plan.replaced))]
    members = [id for group, id, _ in sent if group is not None]
    names = Counter(group for group, _, _ in sent if group is not None)
    counts = [(id, names[name]) for name, (id, _) in sender.groups.items() if name in names]
    marks = json.dumps(counts)
    for start in range(0, len(members), ROWS):
        some = json.dumps(members[start : start + ROWS])
        yield f"CALL {prefix}members_joined(%s, %s)", (some, "[]" if start else marks)
    if sender.events:
        for start in range(0, len(sent), ROWS):
            some = ",".join(str(id) for _, id, _ in sent[start : start + ROWS])
            yield f"CALL {prefix}created(%s, %s, %s)", (sender.queue_id, some, sender.now)


def _chunks(rows: Iterator[tuple[int, str]], most: int) -> Iterator[list[tuple[int, str]]]:
    """Split the rows into INSERTs of at most ROWS rows and so many characters."""
    chunk: list[tuple[int, str]] = []
    size = 0
    for i, row in rows:
        if chunk and (len(chunk) == ROWS or size + len(row) > most):
            yield chunk
            chunk, size = [], 0
        chunk.append((i, row))
        size += len(row)
    if chunk:
        yield chunk


def _most(sender: Sender) -> int:
    return max(min(sender.packet // 2, 4_000_000), 1000)


def _insert(sql: Catalogue, sender: Sender, items: Sequence[SendRow], plan: Plan) -> Op[bool]:
    """Insert the new messages and set their ids; False if another sender took one of the keys."""
    keys = ((i, items[i].key) for i in plan.new)
    keyed = {key: i for i, key in keys if key is not None}
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
    ids = [id for id, _ in plan.outcomes]
    if len(keyed) > 1:
        claims = sorted((key.encode(), ids[i]) for key, i in keyed.items())
        for start in range(0, len(claims), ROWS):
            some = [[id, key.hex()] for key, id in claims[start : start + ROWS]]
            yield sql.claim_keys, (json.dumps(some),)
    holders = yield from _holders(sql, sender, list(keyed))
    # If a row was not inserted, the holder of its key has another id than ours.
    return {key: holder.id for key, holder in holders.items()} == {
        key: ids[i] for key, i in keyed.items()
    }


def _replace(sql: Catalogue, sender: Sender, items: Sequence[SendRow], plan: Plan) -> Op[None]:
    def row(i: int, id: int) -> str:
        created_at = sender.before[id].created_at
        created_at = sender.now if created_at is None else created_at
        return f"({id},{sender.row(items[i], True, created_at)}"

    rows = ((i, row(i, holder.id)) for i, holder in plan.replaced.items())
    for chunk in _chunks(rows, _most(sender)):
        yield f"{sql.replace} {','.join(row for _, row in chunk)} {sql.replacing}", ()
