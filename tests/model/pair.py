"""Two databases side by side: the model and a real one, given the same calls at the same instants.

Ids may differ between the two (a rolled back send may use one up), so callers speak in the model's
ids and ``Pair`` translates both ways. Whatever a call returns or raises must be the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fairturn.backends.base import (
    CONFLICT,
    FULL,
    SENT,
    Backend,
    ConsumerState,
    Facts,
    Opening,
    Peek,
    Receive,
    Received,
)
from fairturn.backends.memory import MemoryBackend
from fairturn.backends.memory.receives import limit_left
from fairturn.backends.verbs import Applied, Lease
from fairturn.core.errors import ChannelFull, DuplicateKey, FairturnError
from fairturn.core.rows import OutcomeRow
from fairturn.core.settings import QUEUE_DEFAULTS
from fairturn.core.values import BODY_JSON, MEMO_JSON, RESULT_JSON
from fairturn.drivers.base import Driver
from fairturn.drivers.run import run

NOBODY = 10**9  # an id no message has


class Difference(AssertionError):
    """The database and the model disagree; ``what`` tells where it showed."""

    def __init__(self, what: str, text: str) -> None:
        super().__init__(f"{what}: {text}")
        self.what = what


class Ids:
    """Ids of messages: which of the real database's is which of the model's."""

    def __init__(self) -> None:
        self.real: dict[int, int] = {}
        self.model: dict[int, int] = {}

    def learn(self, model: int, real: int) -> None:
        if real in self.model:
            raise Difference("ids", f"id {real} was given out twice: stale leases on it live again")
        if self.model and real < max(self.model):
            raise Difference("ids", f"id {real} is below an earlier one: ids must ascend")
        self.real[model], self.model[real] = real, model

    def to_real(self, model: int | None) -> int | None:
        return None if model is None else self.real.get(model, model)

    def to_model(self, real: int | None) -> int | None:
        return real if real in (None, NOBODY) else self.model.get(real, -real)

    def copy(self) -> Ids:
        twin = Ids()
        twin.real, twin.model = dict(self.real), dict(self.model)
        return twin


class Pair:
    def __init__(self, backend: Backend, driver: Driver) -> None:
        # On a server groups close when they are settled (§12.10).
        self.model = MemoryBackend(closes_at_once=backend.dialect == "sqlite")
        self.backend = backend
        self.driver = driver
        self.cursors = ("", run(backend.events(None, None, None, 1), driver, True)[1])
        self.ids = Ids()
        self.consumers: dict[tuple[str, int], tuple[ConsumerState, ConsumerState]] = {}
        self.unswept = False
        self.purged = False
        self.saved: tuple[object, Ids] | None = None  # while your transaction is open

    # --- your transaction --------------------------------------------------------------------
    def begin(self) -> None:
        self.driver.begin(True)
        self.saved = (self.model.snapshot(), self.ids.copy())

    def commit(self) -> None:
        self.driver.commit()
        self.saved = None

    def rollback(self) -> None:
        self.driver.rollback()
        assert self.saved
        snapshot, self.ids = self.saved
        self.model.restore(snapshot)
        self.saved = None

    # --- one call on both --------------------------------------------------------------------
    def call(self, name: str, *args: Any) -> Any:
        """The result in the model's ids; or the error, if both raised the same."""
        self.purged = bool(self.model._state.purged)
        expected = self._run_model(name, args)
        found = self._run_real(name, self._to_real(name, args))
        return self._judge(name, args, expected, found)

    def receive(self, queue: str, consumer: int, args: Receive, now: int) -> Any:
        """A receive of one of several consumers, each with a state of its own."""
        new = (ConsumerState(), ConsumerState())
        mine, theirs = self.consumers.setdefault((queue, consumer), new)
        real_args = replace(args, acks=self._real_leases(args.acks))
        expected = self._run_model("receive", (queue, args, mine, now))
        found = self._run_real("receive", (queue, real_args, theirs, now))
        if isinstance(expected, Received) and isinstance(found, Received):
            # While the queue's own limit leaves nothing, the page does not say whether the rates of
            # its channels still count.
            limited = limit_left(self.model._state.queues[queue], now) <= 0 and not expected.rows
            if limited and (expected.retry_after_us is None) == (found.retry_after_us is None):
                found.retry_after_us = expected.retry_after_us
        result = self._judge("receive", (queue, args, now), expected, found)
        states = (mine.channel, mine.credit), (theirs.channel, theirs.credit)
        self._compare("consumer", (queue, args, now), *states)
        return result

    def group_open(self, opening: Opening, now: int) -> list[int]:
        """The ids of the works, which the call itself does not tell."""
        if self.call("group_open", opening, now) is not True:
            return []
        queue = opening.queue
        works = [i for i in self._held(self.model, queue) if i not in self.ids.real]
        found = [i for i in self._held(self.backend, queue) if i not in self.ids.model]
        self._compare("group_open", opening, len(works), len(found))
        for mine, real in zip(works, found, strict=True):
            self.ids.learn(mine, real)
        return works

    def move(self, queue: str, to: str | None, limit: int, now: int) -> list[int]:
        """The new ids, which the call itself does not tell."""
        if isinstance(self.call("move", queue, to, limit, now), Exception):
            return []
        new: list[int] = []
        for found in self._run_model("queues", (None,)):
            peek = (found["name"], Peek(1000), 0)
            mine = [r[0] for r in self._run_model("peek", peek) if r[0] not in self.ids.real]
            real = [r[0] for r in self._run_real("peek", peek) if r[0] not in self.ids.model]
            self._compare("move", (queue, to, limit, now), len(mine), len(real))
            for pair in zip(mine, real, strict=True):
                self.ids.learn(*pair)
            new += mine
        return new

    def _held(self, backend: Any, queue: str) -> list[int]:
        own = self.saved is None and backend is not self.model
        return [r[0] for r in run(backend.peek(queue, Peek(1000, "h"), 0), self.driver, own)]

    def _run_model(self, name: str, args: tuple[Any, ...]) -> Any:
        try:
            return run(_operation(self.model, name, args), self.driver, False)
        except FairturnError as error:
            return error

    def _run_real(self, name: str, args: tuple[Any, ...]) -> Any:
        try:
            return run(_operation(self.backend, name, args), self.driver, self.saved is None)
        except FairturnError as error:
            return error
        except Exception as error:
            code = self.driver.code(error)
            meant = None if code is None else self.backend.translate(code, str(error))
            if isinstance(meant, FairturnError):
                return meant
            raise

    def _judge(self, name: str, args: tuple[Any, ...], expected: Any, found: Any) -> Any:
        if isinstance(expected, Exception) or isinstance(found, Exception):
            self._compare(name, args, repr(type(expected)), repr(type(found)))
            if self.saved:  # an error of the database's may have ended the transaction
                self.rollback()
            return expected
        if name == "send":
            self._learn_sent(expected, found)
        elif name == "batch":
            for mine, real in zip(expected, found, strict=True):
                self._learn_sent(mine, real)
        elif name == "maintain":
            if args[0] < 10 and not expected[4]:
                # A database has more to sweep than the model (gates, permits): it may say "more".
                found = (*found[:4], False)
            if self.backend.dialect == "postgresql" and self.purged:
                # There a group that is cancelled takes its members in purged queues along.
                found = (*found[:3], expected[3], *found[4:])
        self._compare(name, args, self._plain(name, expected, None), self._plain(name, found, self))
        return expected

    # --- translating -------------------------------------------------------------------------
    def _to_real(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if name == "apply_verb":
            queue, verb, leases, *rest = args
            return (queue, verb, self._real_leases(leases), *rest)
        if name in ("cancel", "reschedule", "get", "facts", "failures"):
            queue, id, *rest = args
            return (queue, self.ids.to_real(id), *rest)
        if name == "outcomes":
            queue, ids, *rest = args
            return (queue, [self.ids.to_real(i) for i in ids], *rest)
        if name == "peek":
            queue, peek, now = args
            return (queue, peek._replace(after=self.ids.to_real(peek.after)), now)
        return args

    def _real_leases(self, leases: Sequence[Lease]) -> list[Lease]:
        return [lease._replace(id=self.ids.to_real(lease.id) or 0) for lease in leases]

    def _learn_sent(self, expected: list[tuple[int, str]], found: list[tuple[int, str]]) -> None:
        if len(expected) == len(found) and not any(o in (CONFLICT, FULL) for _, o in expected):
            for (mine, outcome), (real, real_outcome) in zip(expected, found, strict=True):
                if outcome == real_outcome == SENT:
                    self.ids.learn(mine, real)

    def _plain(self, name: str, value: Any, real: Pair | None) -> Any:
        """A result in a form that is equal exactly when the semantics say the same."""
        id = self.ids.to_model if real else lambda i: i
        if name == "send":
            conflicts = [i for i, (_, outcome) in enumerate(value) if outcome == CONFLICT]
            if not conflicts and any(outcome == FULL for _, outcome in value):
                return FULL  # it is enough to name one of several full channels
            return conflicts or [(id(i), outcome) for i, outcome in value]
        if name == "settle":
            return None  # maintenance may have been first
        if name == "batch":
            return [[(id(i), outcome) for i, outcome in items] for items in value]
        if name == "group_status" and value and value.closed_at is not None:
            # Whether a closed group counts members that were redriven is not settled; what it had
            # counted when it closed is in the headers of its work and in its event.
            return value._replace(sent=None, done=None, dead=None)
        if name == "outcomes":
            return sorted(_outcome(row, id) for row in value)
        if isinstance(value, Received):
            rows = [_row(row, id) for row in value.rows]
            return {
                "rows": rows,
                "retry_after_us": value.retry_after_us,
                "lost": sorted({id(i) for i in value.lost}),
            }
        if isinstance(value, Applied):
            return sorted({id(i) for i in value.lost}), value.lease_until
        if name == "get":
            return value and _row(value, id)
        if name == "peek":
            return [_row(row, id) for row in value]
        if name == "stats":
            return [row._replace(versions=json.loads(row.versions)) for row in value]
        if name == "failures":
            # Those of one instant have no order of their own.
            failures = [row._replace(message_id=id(row.message_id)) for row in value]
            return sorted(failures, key=lambda row: (-row.at, repr(row)))
        if name == "trace":
            return sorted(row._replace(message_id=id(row.message_id)) for row in value)
        if isinstance(value, Facts):
            return _facts(value, id, self.unswept)
        return value

    def _compare(self, what: str, args: object, expected: object, found: object) -> None:
        if expected != found:
            raise Difference(what, f"{args}\n  model:    {expected}\n  database: {found}")

    # --- everything there is -----------------------------------------------------------------
    def dump(self, groups: Sequence[str], now: int) -> None:
        """Compare all that a user can see at this instant."""
        for name in groups:
            self.call("group_status", name, now)
        self.call("groups", 100, now)
        if self.saved is None:  # an event is read when its transaction has committed
            self._new_events()
        self.call("queues", None)
        self.call("stats", None, now)
        self.call("permits", now)
        for queue in self._run_model("queues", (None,)):
            # At instant 0 nothing is past its expiry: peek hides what is.
            self.call("peek", queue["name"], Peek(1000), 0)
            self.call("channels", queue["name"], 100, now)

    def _new_events(self) -> None:
        """Those of one message have an order; which of several messages goes first is open."""
        mine, here = self._run_model("events", (self.cursors[0], None, None, 1000))
        theirs, there = self._run_real("events", (self.cursors[1], None, None, 1000))
        # On a server a reader stops below the oldest open transaction, an autovacuum's say: what is
        # missing must come when that has ended.
        deadline = time.monotonic() + (0 if self.backend.dialect == "sqlite" else 60)
        while len(theirs) < len(mine) and time.monotonic() < deadline:
            more, there = self._run_real("events", (there, None, None, 1000))
            theirs = [*theirs, *more]
        plain = _events(mine, lambda i: i), _events(theirs, self.ids.to_model)
        self._compare("events", self.cursors, *plain)
        self.cursors = (here, there)

    def dump_more(self, keys: set[str], names: Sequence[str], now: int) -> None:
        """The rest: histories, failures, traces, what is remembered, the facts of every message."""
        for key in sorted(keys):
            self.call("trace", key)
        for queue in self._run_model("queues", (None,)):
            name = queue["name"]
            self.call("stats", name, now)
            for remembered in names:
                self.call("recall", name, remembered, now)
            # Whether a minute older than the retention is still shown is up to maintenance.
            self.call("history", name, now // 60_000_000 * 60_000_000 - 3_600_000_000, now)
            self.call("failures", name, None, None, 100)
            rows = self._run_model("peek", (name, Peek(1000), 0))
            # Whether one past its expiry stands in line until it is swept is not settled.
            self.unswept = len(rows) > len(self._run_model("peek", (name, Peek(1000), now)))
            self.call("outcomes", name, sorted(self.ids.real), sorted(keys), now)
            for row in rows:
                self.call("facts", name, row.id, None, now)
                self.call("get", name, row.id, None, now)
                self.call("failures", name, row.id, None, 100)
            for key in sorted(keys):
                self.call("facts", name, None, key, now)
                self.call("get", name, None, key, now)
                self.call("failures", name, None, key, 100)
            for state in "rslhdx":
                self.call("peek", name, Peek(3, state), now)
            self.call("peek", name, Peek(3, None, "", 1), now)


def _operation(backend: Any, name: str, args: tuple[Any, ...]) -> Any:
    return _batch(backend, args) if name == "batch" else getattr(backend, name)(*args)


def _batch(backend: Any, args: tuple[Any, ...]) -> Any:
    """As the facade does it: what is refused raises, which undoes everything."""
    answers = yield from backend.batch(*args)
    outcomes = [outcome for items in answers for _, outcome in items]
    if CONFLICT in outcomes:
        raise DuplicateKey("", [])
    if FULL in outcomes:
        raise ChannelFull("", "")
    return answers


def _outcome(row: OutcomeRow, id: Callable[[Any], Any]) -> tuple[Any, ...]:
    bits = row.json & RESULT_JSON if row.result is not None else 0
    rest = row._replace(id=0, json=0)
    # Keys and results may be missing, and None has no order.
    return (id(row.id), row.state, bits, repr(rest))


def _events(rows: list[Any], id: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for _, at, kind, queue, message, key, channel, delay, data in rows:
        event = (
            at,
            kind,
            queue,
            key,
            channel,
            delay,
            data and json.dumps(json.loads(data, parse_int=float), sort_keys=True),
        )
        found.setdefault(id(message), []).append(event)
    found.get(None, []).sort()  # of groups
    return found


def _row(row: Any, id: Callable[[Any], Any]) -> Any:
    """A MessageRow or a PeekRow."""
    # A bit says nothing about a payload that is not there.
    bits = BODY_JSON | (MEMO_JSON if row.memo is not None else 0)
    if row.result is not None:
        bits |= RESULT_JSON
    return row._replace(
        id=id(row.id),
        headers=row.headers and json.loads(row.headers),
        # When the held work of a group would be due is nobody's business before it is sent.
        due_at=None if _is_work(row) else row.due_at,
        json=row.json & bits,
    )


def _is_work(row: Any) -> bool:
    return row.state == "h" and row.group is None


def _facts(facts: Facts, id: Callable[[Any], Any], unswept: bool) -> dict[str, Any]:
    def tat(value: int) -> int:
        return value if value > facts.now else 0  # one in the past is as good as none

    row = _row(facts.row, id)
    # Only then has it others ahead of it.
    waiting = row.state in "hsr" and not _is_work(row)
    return {
        "row": row,
        "now": facts.now,
        "queue": {name: facts.queue[name] for name in QUEUE_DEFAULTS if name != "meta"},
        "policy": tuple(facts.policy),
        "ahead": waiting and not unswept and facts.ahead,
        "leased": facts.leased,
        "leased_queue": facts.leased_queue,
        "next_lease_end": facts.next_lease_end,
        "tat": tat(facts.tat),
        "queue_tat": tat(facts.queue_tat),
        "blocking_id": waiting and id(facts.blocking_id),
    }
