"""The machine that lives through histories (steps.py) on the model and a database side by side.

After every step both are dumped and compared; Hypothesis shrinks what differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fairturn.backends.base import SENT, Batch, Opening, Peek, Receive, Reschedule
from fairturn.backends.sqlite import verbs as sqlite_verbs
from fairturn.backends.verbs import (
    ACK,
    RELEASE,
    Complete,
    Defer,
    Extend,
    Fail,
    Kill,
    Lease,
    Progress,
    Verb,
)
from fairturn.core.rows import SendRow
from fairturn.drivers.base import Driver
from fairturn.drivers.run import run
from tests.model.backends import Opened, Target
from tests.model.pair import NOBODY, Pair
from tests.model.steps import DAY, GROUPS, KEYS, KINDS, NAMES, SECOND, WILD, Dice, step

START = 1_700_000_000_000_000
seeds = st.integers(0, 2**32 - 1)
wildness = st.integers(0, WILD)


@st.composite
def steps(draw: st.DrawFn) -> tuple[Any, ...]:
    return step(draw(st.integers(0, len(KINDS) - 1)), draw(wildness), draw(seeds))


@st.composite
def column_sets(draw: st.DrawFn) -> dict[str, Any]:
    return Dice(wildness=draw(wildness), seed=draw(seeds)).columns()


def tied(instants: list[int], limit: int) -> bool:
    """Whether a limit cuts through those of one instant: they have no order."""
    ordered = sorted(instants)
    return ordered[limit - 1 : limit] == ordered[limit : limit + 1] != []


class Machine(RuleBasedStateMachine):
    open: Callable[[], Opened]
    close: Callable[[Driver], None]
    # For reports, over all examples.
    examples = 0
    compared = 0
    first_difference: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(*type(self).open())
        self.now = START
        self.ids: list[int] = []
        self.leases: list[tuple[str, int, int]] = []
        # Both sides get the same tokens. With gaps: some tokens were never drawn.
        self.tokens = count(100, 10)
        self.permits: list[int] = []
        self.kept: tuple[list[int], list[tuple[str, int, int]], list[int]] | None = None
        self.broken = False
        # Histories are short: batches of two tokens already compare pairs, as large ones do.
        self.pairs_from, sqlite_verbs.PAIRS_FROM = sqlite_verbs.PAIRS_FROM, 2
        type(self).examples += 1

    @initialize(first=column_sets(), second=column_sets())
    def create(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        self.call("queue_create", "a", first, self.now)
        self.call("queue_create", "b", second, self.now)

    @rule(step=steps())
    def step(self, step: tuple[Any, ...]) -> None:
        getattr(self, step[0])(*step[1:])

    @invariant()
    def same(self) -> None:
        type(self).compared += 1
        self.settle()  # a transaction on MySQL may have left it to the next call
        self.guard(lambda: self.pair.dump(GROUPS, self.now))

    def teardown(self) -> None:
        try:
            if not self.broken:
                self.look_closely()
        finally:
            if self.pair.saved:
                self.pair.rollback()
            type(self).close(self.pair.driver)
            sqlite_verbs.PAIRS_FROM = self.pairs_from

    def settle(self) -> None:
        """As the library does after a call, but on MySQL in your transaction (§12.10)."""
        if not (self.pair.saved and self.pair.backend.dialect == "mysql"):
            self.guard(lambda: self.pair.call("settle", 1000, self.now))

    # --- helpers -----------------------------------------------------------------------------
    def call(self, name: str, *args: Any) -> Any:
        result = self.guard(lambda: self.pair.call(name, *args))
        self.settle()
        return result

    def guard(self, step: Callable[[], Any]) -> Any:
        try:
            result = step()
        except BaseException:
            self.broken = True
            self.found()
            raise
        if self.kept and not self.pair.saved:  # an error ended the transaction
            self.forget()
        return result

    @classmethod
    def found(cls) -> None:
        if cls.first_difference is None:
            cls.first_difference = cls.examples

    def forget(self) -> None:
        """What a rolled back transaction gave out does not exist."""
        assert self.kept
        self.ids, self.leases, self.permits = self.kept
        self.kept = None

    def permit(self, k: int) -> int:
        return self.permits[-1 - k] if k < len(self.permits) else NOBODY

    def message(self, queue: str, fate: str, k: int) -> tuple[str, int]:
        """A message that exists, and its queue; or any that ever was."""
        if fate == "live":
            alive = {id: queue for queue, id, _ in self.alive(None)}
            among = [id for id in self.ids if id in alive]
            if among:
                id = among[-1 - k % len(among)]
                return alive[id], id
        return queue, self.ids[-1 - k] if k < len(self.ids) else NOBODY

    def pick(self, fate: str, ks: list[int]) -> tuple[str, list[Lease]]:
        """Some leases, and the queue of the first: a verb is for one queue's."""
        among = self.leases
        if fate == "member":
            among = [lease for lease in self.live() if self.is_member(lease)]
            if not among:
                self.receive_all("a", 0, 10)
                among = [lease for lease in self.live() if self.is_member(lease)]
        if fate == "live" or (fate == "member" and not among):
            if not self.live():  # nothing to do would be a step wasted
                self.receive_all("a", 0, 3)
            among = self.live() or self.leases
        if not among:
            return "a", [Lease(NOBODY, 1)]
        chosen = [among[-1 - k % len(among)] for k in ks]
        [(queue, _, _), *_] = chosen
        # A backend gets each message once.
        return queue, [*{id: Lease(id, token) for q, id, token in chosen if q == queue}.values()]

    def is_member(self, lease: tuple[str, int, int]) -> bool:
        """Of an open group."""
        queue, id, _ = lease
        group = self.pair.model._state.queues[queue].messages[id].group
        return group is not None and group.is_open

    def live(self) -> list[tuple[str, int, int]]:
        leased = set(self.alive("l"))
        return [lease for lease in self.leases if lease in leased]

    def alive(self, state: str | None, now: int = 0) -> list[tuple[str, int, int]]:
        """Queue, id and token of the messages in this state; at 0 also those past expiry."""
        model, driver = self.pair.model, self.pair.driver
        return [
            (queue["name"], row.id, row.token)
            for queue in run(model.queues(None), driver, True)
            for row in run(model.peek(queue["name"], Peek(1000, state), now), driver, True)
        ]

    # --- queues and policies -----------------------------------------------------------------
    def queue_create(self, name: str, columns: dict[str, Any]) -> None:
        self.call("queue_create", name, columns, self.now)

    def queue_set(self, name: str, columns: dict[str, Any]) -> None:
        self.call("queue_set", name, columns, self.now)

    def queue_end(self, name: str, kind: str) -> None:
        if kind == "drop":
            self.call("queue_drop", name, self.now)
        else:
            self.call("queue_purge", name, kind == "reset", self.now)

    def policy_set(self, queue: str, channel: str, policy: tuple[Any, ...]) -> None:
        self.call("policy_set", queue, channel, policy, self.now)

    def policy_clear(self, queue: str, channel: str) -> None:
        self.call("policy_clear", queue, channel, self.now)

    # --- sending and receiving ---------------------------------------------------------------
    def send(self, queue: str, items: list[SendRow]) -> None:
        self.open_groups(queue, items)
        sent = self.call("send", queue, [self.due(item) for item in items], self.now)
        if not isinstance(sent, Exception):
            self.ids += sorted({id for id, outcome in sent if outcome == SENT and id})

    send_alike = send_wide = send_members = send_often = send_once = send

    def remember(self, queue: str, name: str, value: bytes, keep: int) -> None:
        self.call("remember", queue, name, value, keep, self.now)

    def batch(
        self,
        sets: list[tuple[Any, ...]],
        clears: list[tuple[str, str]],
        sends: list[tuple[str, list[SendRow]]],
    ) -> None:
        for queue, items in sends:
            self.open_groups(queue, items)
        rows = [(queue, [self.due(item) for item in items]) for queue, items in sends]
        sent = self.call("batch", Batch(sets, clears, rows), self.now)
        if not isinstance(sent, Exception):
            found = {id for items in sent for id, outcome in items if outcome == SENT and id}
            self.ids += sorted(found)

    def due(self, item: SendRow) -> SendRow:
        return item if item.due_us is None else item._replace(due_us=self.now + item.due_us)

    # --- groups ------------------------------------------------------------------------------
    def open_groups(self, queue: str, items: list[SendRow]) -> None:
        """Whether a send makes a group that its only member does not join (a duplicate, or one
        that collapses) is not settled: open it before."""
        model = self.pair.model
        named = [item.group for item in items if item.key or item.once]
        names = {group for group in named if group is not None}
        for name in sorted(names):
            if queue in model._state.queues and not model._group(name):
                self.group_open(name, queue, "i", None, None)

    def group_open(self, name: str, queue: str, on_dead: str, *works: Any) -> None:
        # Whether an open group is found before its queue is missed is not settled.
        queues = [
            found["name"] for found in run(self.pair.model.queues(None), self.pair.driver, True)
        ]
        if queue not in queues and self.pair.model._group(name):
            return
        end, abort = (work and self.due(work) for work in works)
        self.ids += self.guard(
            lambda: self.pair.group_open(Opening(name, queue, on_dead, end, abort), self.now)
        )

    def group_life(
        self, opened: tuple[Any, ...], members: list[tuple[str, list[SendRow]]], start: bool
    ) -> None:
        name, *_ = opened
        self.group_open(*opened)
        for queue, items in members:
            self.send(queue, [item.of_group(name) for item in items])
        if start:
            self.group_start(name)

    def group_start(self, name: str) -> None:
        self.call("group_start", name, self.now)

    def group_cancel(self, name: str) -> None:
        self.call("group_cancel", name, self.now)

    def receive(
        self,
        queue: str,
        consumer: int,
        n: int,
        lease: int | None,
        version: int | None,
        types: list[str] | None,
        priority: int | None,
        max_bytes: int | None,
        permit: int | None,
        acks: list[int],
    ) -> None:
        # Acks of whatever queue: those of another one must come back as lost.
        carried = self.pick("any", acks)[1] if acks else []
        if permit is not None:
            if not self.permits:
                self.permit_create(5 * SECOND)
            permit = self.permit(permit)
        args = Receive(n, lease, version, types, priority, max_bytes, permit, carried)
        self._receive(queue, consumer, args)

    def receive_all(self, queue: str, consumer: int, n: int) -> None:
        self._receive(queue, consumer, Receive(n))

    def _receive(self, queue: str, consumer: int, args: Receive) -> None:
        args = replace(args, token=next(self.tokens))
        received = self.guard(lambda: self.pair.receive(queue, consumer, args, self.now))
        self.settle()
        if not isinstance(received, Exception):
            self.leases += [(queue, row.id, row.token) for row in received.rows]

    # --- the verbs ---------------------------------------------------------------------------
    def verb(self, verb: Verb, fate: str, ks: list[int], strict: bool) -> None:
        queue, leases = self.pick(fate, ks)
        # In your transaction a batch reports its lost leases: raising would leave half of it done.
        strict = strict and (self.pair.saved is None or len(leases) == 1)
        if isinstance(verb, Extend):  # which of two mentions of a lease is the last does not matter
            leases = list(dict.fromkeys(leases))
        self.call("apply_verb", queue, verb, leases, strict, self.now)

    def ack(self, *leases: Any) -> None:
        self.verb(ACK, *leases)

    def complete(
        self, fate: str, ks: list[int], strict: bool, result: tuple[bytes | None, int]
    ) -> None:
        self.verb(Complete(*result), fate, ks, strict)

    def defer(
        self, fate: str, ks: list[int], strict: bool, at: int | None, delay: int, memo: Any
    ) -> None:
        due = None if at is None else self.now + at
        verb = Defer(due, delay, 1) if memo == "keep" else Defer(due, delay, 0, *memo)
        self.verb(verb, fate, ks, strict)

    def fail(
        self, fate: str, ks: list[int], strict: bool, error: str, delay: int | None, more: bool
    ) -> None:
        details, reference = (b"{}", "ref") if more else (None, None)
        self.verb(Fail(error, delay, details, reference), fate, ks, strict)

    def kill(self, fate: str, ks: list[int], strict: bool, error: str) -> None:
        self.verb(Kill(error), fate, ks, strict)

    def extend(
        self, fate: str, ks: list[int], strict: bool, lease: int | None, exact: bool
    ) -> None:
        self.verb(Extend(lease, int(exact)), fate, ks, strict)

    def release(self, *leases: Any) -> None:
        self.verb(RELEASE, *leases)

    def progress(
        self, fate: str, ks: list[int], strict: bool, progress: int | None, note: str | None
    ) -> None:
        self.verb(Progress(progress, note), fate, ks, strict)

    def wrong_lease(self, queue: str, k: int, by: int) -> None:
        """A lease of another queue, or a token that never was. After a failover or a restore such a
        lease has the id, and even the delivery number, of a message that exists."""
        if self.leases:
            _, id, token = self.leases[-1 - k % len(self.leases)]
            self.call("apply_verb", queue, ACK, [Lease(id, token + by)], False, self.now)

    # --- waiting and finished messages -------------------------------------------------------
    def sweep_first(self) -> None:
        """Maintain. docs/semantics.md does not say whether a message past its expiry that was
        not swept yet can still be cancelled, rescheduled or redriven, nor whether rescheduling only
        the priority of a due message that was not promoted yet promotes it."""
        expired = len(self.alive(None)) != len(self.alive(None, self.now))
        model, driver = self.pair.model, self.pair.driver
        if expired or any(
            row.due_at <= self.now
            for queue in run(model.queues(None), driver, True)
            for row in run(model.peek(queue["name"], Peek(1000, "s"), 0), driver, True)
        ):
            self.call("maintain", 1000, self.now)

    def cancel(self, queue: str, which: tuple[str, int], key: str | None, force: bool) -> None:
        self.sweep_first()
        id = None
        if key is None:
            queue, id = self.message(queue, *which)
        self.call("cancel", queue, id, key, force, self.now)

    def reschedule(
        self,
        queue: str,
        which: tuple[str, int],
        key: str | None,
        at: int | None,
        delay: int | None,
        rank: int | None,
    ) -> None:
        self.sweep_first()
        due = None if at is None else self.now + at
        id = None
        if key is None:
            queue, id = self.message(queue, *which)
        self.call("reschedule", queue, id, key, Reschedule(due, delay, rank), self.now)

    def redrive(self, queue: str, to: str | None, limit: int, delay: int) -> None:
        self.sweep_first()
        # Nor does it say whose expiry a message has that is redriven into another queue.
        model, driver = self.pair.model, self.pair.driver
        found = run(model.queues(queue), driver, True) and run(model.queues(to), driver, True)
        if to is not None and found:
            dead = run(model.peek(queue, Peek(1000, "x"), 0), driver, True)
            if found[0]["expires_us"] is not None or any(
                row.expires_at is not None for row in dead
            ):
                to = None
        to = None if to == queue else to
        self.call("redrive", queue, to, limit, delay, self.now)

    def promote(self, queue: str, within: int, limit: int) -> None:
        lane = self.pair.model._state.queues.get(queue)
        waiting = lane.select("s") if lane else []
        new = [m for m in waiting if m.first_at is None and not m.past_expiry(self.now)]
        if tied([m.due_at for m in new], limit):
            limit = 1000
        self.call("promote", queue, within, limit, self.now)

    def move(self, queue: str, to: str | None, limit: int) -> None:
        home = None if to == queue else to
        self.ids += self.guard(lambda: self.pair.move(queue, home, limit, self.now))

    def discard(self, queue: str, state: str, limit: int) -> None:
        self.call("discard", queue, state, limit, self.now)

    # --- permits -----------------------------------------------------------------------------
    def permit_create(self, ttl: int) -> None:
        self.permits.append(next(self.tokens))
        self.call("permit_create", self.permit(0), "w", ttl, self.now)

    def permit_extend(self, k: int, ttl: int) -> None:
        self.call("permit_extend", self.permit(k), ttl, self.now)

    def permit_close(self, k: int) -> None:
        self.call("permit_close", self.permit(k), self.now)

    def permit_life(self, ttl: int, queue: str, n: int, lease: int | None) -> None:
        self.permit_create(ttl)
        self._receive(queue, 0, Receive(n, permit=self.permit(0)))
        self.extend("live", [0], False, lease, True)

    # --- time, faults, care ------------------------------------------------------------------
    def tick(self, by: int) -> None:
        self.now += by

    def tick_to_next(self, k: int, early: int) -> None:
        """Exactly onto the next instant at which something is due, or one microsecond before."""
        instants = sorted({at for at in self.instants() if at > self.now})
        if instants:
            self.now = max(self.now, instants[min(k, len(instants) - 1)] - early)

    def instants(self) -> list[int]:
        model, driver = self.pair.model, self.pair.driver
        permits = run(model.permits(self.now), driver, True)
        found: list[int | None] = [permit.expires_at for permit in permits]
        for queue in run(model.queues(None), driver, True):
            kept = {"d": queue["retention_us"] or DAY, "x": queue["dead_retention_us"] or 0}
            for row in run(model.peek(queue["name"], Peek(1000), 0), driver, True):
                found += [row.due_at, row.lease_until, row.expires_at]
                if row.finished_at is not None:
                    found.append(row.finished_at + kept[row.state])
        for lane in model._state.queues.values():
            found += [one.expires_at for one in lane.remembered.values()]
        return [at for at in found if at is not None]

    def maintain(self, limit: int) -> None:
        if not self.clear_cut(limit) or self.pair.saved:
            limit = 1000
        self.call("maintain", limit, self.now)

    def clear_cut(self, limit: int) -> bool:
        """Whether a limit takes the same rows everywhere: those of one instant have no order."""
        model, driver = self.pair.model, self.pair.driver
        for lane in model._state.purged:  # nor have the rows of a lane
            if len(lane) > limit and any(message.group for message in lane):
                return False
        # What a queue has forgotten may have been swept by the way (§19.6).
        if model._state.forgotten or any(q.remembered for q in model._state.queues.values()):
            return False
        if tied([g.closed_at for g in model._state.groups if g.closed_at is not None], limit):
            return False
        for queue in run(model.queues(None), driver, True):
            rows = run(model.peek(queue["name"], Peek(1000), 0), driver, True)
            logged = run(model.failures(queue["name"], None, None, 1000), driver, True)
            expiring = sorted(
                (row.expires_at, row.id) for row in rows if row.expires_at is not None
            )
            gone = {id for at, id in expiring[:limit] if at <= self.now}  # before the rest is swept
            kept = [row for row in rows if row.id not in gone]
            leases = [row.lease_until for row in kept if row.state == "l"]
            dying = [self.now for lease in leases if lease <= self.now][:limit]  # some of them
            for instants in (
                [at for at, _ in expiring],
                leases,
                [row.due_at for row in kept if row.state == "s"],
                [row.finished_at for row in kept if row.state == "d"],
                [row.finished_at for row in kept if row.state == "x"] + dying,
                [failure.at for failure in logged],
            ):
                if tied(instants, limit):
                    return False
        return True

    def crash(self) -> None:
        """A worker dies: nobody answers for its leases any more."""
        self.leases.clear()
        self.permits.clear()

    def transaction(self, how: str) -> None:
        """Your transaction: the first of two opens it, and the steps up to the next run in it."""
        if self.pair.saved is None:
            self.pair.begin()
            self.kept = (list(self.ids), list(self.leases), list(self.permits))
        elif how == "commit":
            self.pair.commit()
            self.kept = None
        else:
            self.pair.rollback()
            self.forget()

    def look_closely(self) -> None:
        self.guard(lambda: self.pair.dump_more(set(KEYS), NAMES, self.now))


def machine(target: Target) -> type[Machine]:
    """The machine for one database."""
    body = {"open": staticmethod(target.open), "close": staticmethod(target.close)}
    return type(f"Machine_{target.name}", (Machine,), body)
