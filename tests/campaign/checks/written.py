"""Histories written by hand, for the tests of the checker."""

from __future__ import annotations

from typing import Any

from tests.campaign.checks.checker import check
from tests.campaign.history import Op, Outcome
from tests.campaign.world import LEASE


def found(book: Book) -> list[str]:
    """The names of the checks that are broken."""
    return [violation.check for violation in check(book.ops).violations]


class Book:
    """Calls in the order in which they are written down, a second apart unless told otherwise."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._now = 0.0

    def add(
        self,
        kind: str,
        outcome: Outcome = "ok",
        *,
        at: float | None = None,
        took: float = 0.1,
        result: dict[str, Any] | None = None,
        error: str = "",
        process: str = "p",
        **about: Any,
    ) -> Op:
        self._now = self._now + 1 if at is None else at
        end = self._now + took
        op = Op(process, kind, self._now, about, outcome, end, result or {}, error)
        self.ops.append(op)
        return op

    def send(self, value: str, id: int, outcome: Outcome = "ok", **more: Any) -> Op:
        about = {"queue": "plain", "channel": "", "values": [value], **more}
        result = {"ids": [id], "outcomes": [about.pop("sent", "sent")]}
        return self.add("send", outcome, result=result, **about)

    def receive(self, *found: tuple[str, int, int], outcome: Outcome = "ok", **more: Any) -> Op:
        """(value, id, number) of each message."""
        rest = {"channel": more.pop("channel", ""), "key": more.pop("key", None)}
        rest["token"] = more.pop("token", "")
        deliveries = [
            {"value": value, "id": id, "number": number, **rest} for value, id, number in found
        ]
        about = {"queue": "plain", "lease": LEASE, "n": 10, **more}
        return self.add("receive", outcome, result={"deliveries": deliveries}, **about)

    def verb(self, verb: str, id: int, number: int, outcome: Outcome = "ok", **more: Any) -> Op:
        lease = [id, number, more.pop("token", "")]
        about = {"queue": "plain", "leases": [lease], "verb": verb, **more}
        return self.add("verb", outcome, **about)

    def life(self, value: str, id: int, **more: Any) -> None:
        """Sent, received, acked."""
        about = {name: more[name] for name in more if name != "key"}
        self.send(value, id, **more)
        self.receive((value, id, 1), **more)
        self.verb("ack", id, 1, **about)
