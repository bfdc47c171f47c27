"""The history seen as messages: who sent what, who held what and for how long, how it ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.campaign.history import Op
from tests.campaign.world import QUEUES, Rules

CLOCKS = 0.02  # seconds by which two clocks of one machine may differ
# Faults (by the end of their names) after which a connection breaks, or nobody answers in time.
BREAKS = ("database", "sessions", "connections", "network", "packets", "disk")
FINISHES = {"ack", "complete", "kill"}
Lease = tuple[Any, int]  # the message's id, the delivery's number


@dataclass(slots=True)
class Verb:
    """What a consumer did with one lease."""

    verb: str
    lease: Lease
    queue: str
    op: Op
    outcome: str  # of this lease: one of a batch may be lost
    finishes: bool

    @property
    def maybe(self) -> bool:
        return self.outcome != "fail"


@dataclass(slots=True)
class Delivery:
    """One message of one answer."""

    queue: str
    channel: str
    id: Any
    number: int
    value: str
    key: str | None
    op: Op
    place: int  # in its answer
    got_at: float
    until: float  # the consumer trusts its lease until then
    verbs: list[Verb] = field(default_factory=list)

    @property
    def given_up(self) -> float:
        """When its consumer first asked for its end."""
        asked = [verb.op.asked_at for verb in self.verbs if verb.verb != "extend" and verb.maybe]
        return min(asked, default=float("inf"))

    @property
    def held(self) -> tuple[float, float]:
        """When it was surely leased: from the answer to the first call that could end it."""
        return self.got_at, min(self.given_up, self.until - CLOCKS)


class Story:
    """All messages of a history."""

    def __init__(self, ops: Iterable[Op], queues: dict[str, Rules] | None = None) -> None:
        self.ops = list(ops)
        self.queues = QUEUES if queues is None else queues
        self.sends = [op for op in self.ops if op.kind in ("send", "rollback")]
        self.receives = [op for op in self.ops if op.kind == "receive"]
        self.verbs = list(self._verbs())
        self.deliveries = list(self._deliveries())
        self._join()

    def notes(self, kind: str) -> list[dict[str, Any]]:
        return [op.about for op in self.ops if op.kind == kind]

    def rules(self, queue: str) -> Rules:
        return self.queues.get(queue, Rules())

    def _verbs(self) -> Iterable[Verb]:
        for op in self.ops:
            if op.kind == "task":
                lease = (op.about["id"], op.about["number"])
                yield Verb("ack", lease, op.about["queue"], op, op.outcome, True)
            if op.kind != "verb":
                continue
            lost = {tuple(lease[:2]) for lease in op.result.get("lost", [])}
            queue, verb = op.about["queue"], op.about["verb"]
            # A killed message with a dead-letter queue goes on there.
            dies = verb == "kill" and self.rules(queue).dead_letter is not None
            for pair in op.about["leases"]:
                lease = (pair[0], pair[1])
                outcome = "fail" if lease in lost else op.outcome
                yield Verb(verb, lease, queue, op, outcome, verb in FINISHES and not dies)

    def _deliveries(self) -> Iterable[Delivery]:
        for op in self.ops:
            if op.kind == "task":
                about = op.about
                # A worker's leases last as long as its permit, which the history does not know.
                yield Delivery(
                    *(about["queue"], "", about["id"], about["number"], about["value"], None),
                    *(op, 0, op.asked_at, op.asked_at),
                )
            if op.kind != "receive" or op.ended_at is None:
                continue
            until = op.asked_at + op.about["lease"]
            for place, one in enumerate(op.result.get("deliveries", [])):
                yield Delivery(
                    *(op.about["queue"], one.get("channel", ""), one["id"], one["number"]),
                    *(one["value"], one.get("key"), op, place, op.ended_at, until),
                )

    def _join(self) -> None:
        by_lease: dict[Lease, list[Verb]] = defaultdict(list)
        for verb in self.verbs:
            by_lease[verb.lease].append(verb)
        for delivery in self.deliveries:
            delivery.verbs = by_lease[delivery.id, delivery.number]
            for verb in delivery.verbs:
                if verb.verb == "extend" and verb.outcome == "ok":
                    lease = verb.op.about["lease"]
                    delivery.until = max(delivery.until, verb.op.asked_at + lease)

    @cached_property
    def breaks(self) -> list[tuple[float, float]]:
        """When connections broke, with a second for everybody to notice."""
        return [
            (op.asked_at, (op.ended_at or op.asked_at + 60) + 1)
            for op in self.ops
            if op.kind == "fault" and op.about["fault"].endswith(BREAKS)
        ]

    @cached_property
    def by_id(self) -> dict[Any, list[Delivery]]:
        """The deliveries of each message, by their numbers."""
        found: dict[Any, list[Delivery]] = defaultdict(list)
        for delivery in sorted(self.deliveries, key=lambda one: (one.number, one.got_at)):
            found[delivery.id].append(delivery)
        return found

    @cached_property
    def verbs_of(self) -> dict[Any, list[Verb]]:
        """All verbs on a message, by whichever lease."""
        found: dict[Any, list[Verb]] = defaultdict(list)
        for verb in self.verbs:
            found[verb.lease[0]].append(verb)
        return found

    @cached_property
    def ids(self) -> dict[str, set[Any]]:
        """The messages of each value."""
        found: dict[str, set[Any]] = defaultdict(set)
        for delivery in self.deliveries:
            found[delivery.value].add(delivery.id)
        return found

    @cached_property
    def finishes(self) -> dict[Any, list[Verb]]:
        """The calls that finished a message, or may have."""
        found: dict[Any, list[Verb]] = defaultdict(list)
        for verb in self.verbs:
            if verb.finishes and verb.maybe:
                found[verb.lease[0]].append(verb)
        return found

    @cached_property
    def finish_asked(self) -> dict[str, float]:
        """By value: when somebody first asked to finish it."""
        found: dict[str, float] = {}
        for value, ids in self.ids.items():
            asked = [verb.op.asked_at for id in ids for verb in self.finishes.get(id, [])]
            if asked:
                found[value] = min(asked)
        return found
