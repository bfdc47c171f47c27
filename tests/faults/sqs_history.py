"""What clients of an SQS did and saw, written down in one order, and what must be true of it."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

CLOCKS = 0.01  # seconds by which two clocks of one machine may differ


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message of one answer. Messages are named by their bodies: "<group> <number>"."""

    body: str
    id: str
    count: int  # ApproximateReceiveCount
    handle: str

    @property
    def group(self) -> str:
        return self.body.split()[0]

    @property
    def number(self) -> int:
        return int(self.body.split()[1])


@dataclass(frozen=True, slots=True)
class Receipt:
    """One answer to a ReceiveMessage: the steps between which the server gave it."""

    asked: int
    answered: int
    asked_at: float
    answered_at: float
    deliveries: list[Delivery]


class History:
    def __init__(self) -> None:
        self._steps = itertools.count(1)
        self.receipts: list[Receipt] = []
        self.deleting: dict[tuple[str, int], int] = {}  # by delivery: when its delete was asked for
        self.deleted: dict[str, int] = {}  # when a delete was answered with success
        self.yielded: dict[tuple[str, int], float] = {}  # when visibility 0 was asked for
        self.refused = 0  # deletes that came too late

    # --- writing --------------------------------------------------------------------------------
    def asks(self) -> tuple[int, float]:
        return next(self._steps), time.monotonic()

    def gets(self, asked: tuple[int, float], answer: Mapping[str, Any]) -> list[Delivery]:
        now = time.monotonic()
        found = [
            Delivery(
                one["Body"],
                one["MessageId"],
                int(one["Attributes"]["ApproximateReceiveCount"]),
                one["ReceiptHandle"],
            )
            for one in answer.get("Messages", [])
        ]
        if found:
            self.receipts.append(Receipt(asked[0], next(self._steps), asked[1], now, found))
        return found

    def deletes(self, one: Delivery) -> None:
        self.deleting.setdefault((one.body, one.count), next(self._steps))

    def has_deleted(self, one: Delivery) -> None:
        self.deleted.setdefault(one.body, next(self._steps))

    def has_not_deleted(self, one: Delivery) -> None:
        """It was refused: the delivery is over."""
        del self.deleting[one.body, one.count]
        self.refused += 1

    def yields(self, one: Delivery) -> None:
        self.yielded.setdefault((one.body, one.count), time.monotonic())

    # --- reading --------------------------------------------------------------------------------
    def deliveries(self) -> Iterable[Delivery]:
        return itertools.chain.from_iterable(one.deliveries for one in self.receipts)

    def bodies(self) -> set[str]:
        return {one.body for one in self.deliveries()}

    def check_ids(self) -> None:
        """A message is one message, however often it was sent and received."""
        ids: dict[str, set[str]] = defaultdict(set)
        for one in self.deliveries():
            ids[one.body].add(one.id)
        doubled = {body: found for body, found in ids.items() if len(found) > 1}
        assert not doubled, f"enqueued twice: {doubled}"

    def check_deleted(self) -> None:
        """What was deleted is never seen by who asks after that."""
        for receipt in self.receipts:
            for one in receipt.deliveries:
                deleted = self.deleted.get(one.body)
                assert deleted is None or deleted > receipt.asked, f"{one.body} came back"

    def check_visibility(self, seconds: float) -> None:
        """Nobody gets what somebody else holds: a delivery and the next are ``seconds`` apart,
        unless the first was given up."""
        known: dict[str, list[tuple[int, Receipt]]] = defaultdict(list)
        for receipt in self.receipts:
            for one in receipt.deliveries:
                known[one.body].append((one.count, receipt))
        for body, found in known.items():
            found.sort(key=lambda pair: pair[0])
            for (count, first), (_, second) in itertools.pairwise(found):
                assert first is not second, f"{body} twice in one answer"
                if (body, count) not in self.yielded:
                    apart = second.answered_at - first.asked_at
                    assert apart > seconds - CLOCKS, f"{body} again after {apart:.3f} s"

    def check_order(self) -> None:
        """Whoever gets a message of a group also gets, before it in the same answer, all that was
        sent before it; except what is deleted, by the last one who had it."""
        last: dict[tuple[str, int], Delivery] = {}
        for one in self.deliveries():
            known = last.get((one.group, one.number))
            if known is None or known.count < one.count:
                last[one.group, one.number] = one
        free: dict[str, int] = defaultdict(int)  # all before this number are deleted
        for receipt in self.receipts:  # in the order of their answers

            def is_gone(group: str, number: int, when: int = receipt.answered) -> bool:
                one = last.get((group, number))
                return one is not None and self.deleting.get((one.body, one.count), when) < when

            before: dict[str, list[int]] = defaultdict(list)
            for one in receipt.deliveries:
                while is_gone(one.group, free[one.group]):
                    free[one.group] += 1
                for number in range(free[one.group], one.number):
                    assert number in before[one.group] or is_gone(one.group, number), (
                        f"{one.body} was given while {one.group} {number} was not deleted"
                    )
                before[one.group].append(one.number)
            for group, numbers in before.items():
                assert numbers == sorted(set(numbers)), f"{group}: {numbers} in one answer"
