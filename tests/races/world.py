"""One queue under a race, what was done to it, and what must be true of it afterwards."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from fairturn.backends.base import Lease, Peek
from fairturn.backends.verbs import new_token
from fairturn.core.values import COUNTERS
from tests.races.session import Event, Session, item

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
HOUR = 3600 * SECOND
ENDS = ("acked", "released", "failed")
_numbers = itertools.count(1)


class World:
    """A queue of its own for every schedule; ``home`` prepares it and looks at it at the end."""

    def __init__(self, home: Session, a: Session, b: Session) -> None:
        self.home, self.a, self.b = home, a, b
        self.queue = f"q{next(_numbers)}"
        self.now = NOW
        self.log: list[Event] = []  # committed, in the order of the commits
        self.trace: list[str] = []  # "a0": a's first step began, "/a0": it ended
        self.outcome: tuple[Any, ...] = ()  # the rows as check() found them
        self.bodies: dict[Lease, bytes] = {}
        self.purged = False
        self.dropped = False  # by a step: then there is nothing left to look at
        self.may_fail: tuple[type[BaseException], ...] = ()
        for session in (home, a, b):
            session.reset()
            session.world = self
        home.call(lambda: home.backend.queue_create(self.queue, {}, NOW), lambda _: [])

    # --- before ------------------------------------------------------------------------------
    def settings(self, **columns: Any) -> None:
        self.home.do("queue_set", columns)()

    def send(self, number: int = 1, channel: str = "", **options: Any) -> list[int]:
        rows = self.home.send(*(item(channel, **options) for _ in range(number)))()
        return [id for id, _ in rows]

    def lease(self, number: int = 1, **options: Any) -> list[Lease]:
        leases = self.home.receive(number, **options)()
        assert len(leases) == number
        return leases

    def permit(self, ttl: int) -> int:
        home = self.home
        id = new_token()
        home.call(lambda: home.backend.permit_create(id, "w", ttl, NOW), lambda _: [])
        return id

    # --- after -------------------------------------------------------------------------------
    def rows(self) -> dict[int, dict[str, Any]]:
        """The queue's messages as they are."""
        home = self.home
        found = home.call(lambda: home.backend.peek(self.queue, Peek(1000), self.now), lambda _: [])
        return {row.id: row._asdict() for row in found}

    def totals(self) -> dict[str, int]:
        home = self.home
        [row] = home.call(lambda: home.backend.stats(self.queue, self.now), lambda _: [])
        return {name: getattr(row, name) for name in COUNTERS}

    def of(self, kind: str) -> list[Lease]:
        return [(id, token) for what, id, token in self.log if what == kind]

    def before(self, first: str, second: str) -> bool:
        """Did one thing (see ``trace``) happen before the other?"""
        return self.trace.index(first) < self.trace.index(second)

    def leased(self, channel: str = "") -> list[int]:
        return [
            id
            for id, row in self.rows().items()
            if row["state"] == "l" and row["channel"] == channel
        ]

    def check(self) -> None:
        """What no race may break."""
        if self.dropped:
            return
        for session in (self.a, self.b):
            for error in session.errors:
                assert isinstance(error, self.may_fail), f"{session.name} failed: {error!r}"
        rows, totals = self.rows(), self.totals()
        first = min(rows, default=0)
        self.outcome = tuple(
            (id - first, row["state"], row["channel"], row["key"], row["deliveries"])
            for id, row in sorted(rows.items())
        )
        sent = {id for id, _ in self.of("sent")}
        delivered = self.of("delivered")

        # A lease is given once, and a message has at most the lease its row names.
        assert len(set(delivered)) == len(delivered), f"a lease was given twice: {delivered}"
        per_message = Counter(id for id, _ in delivered)
        ended = {lease for kind in ENDS for lease in self.of(kind)}
        for kind in ENDS:
            assert len(set(self.of(kind))) == len(self.of(kind)), f"{kind} twice"
        assert sum(len(self.of(kind)) for kind in ENDS) == len(ended), "one lease ended twice"
        assert ended <= set(delivered), "a lease was used that nobody had"
        for id, row in rows.items():
            assert id in sent, f"{id} was never sent"
            assert row["deliveries"] == per_message[id], f"{id}: {row['deliveries']} deliveries"
            if row["state"] == "l":
                assert (id, row["token"]) in delivered
                assert (id, row["token"]) not in ended

        # Nothing is lost, and nothing is delivered again whose lease did not end.
        cancelled = {id for id, _ in self.of("cancelled")}
        gone = {id for id, _ in self.of("acked")} | cancelled
        if not self.purged:
            assert set(rows) == sent - gone, f"rows {set(rows)}, expected {sent - gone}"
            open_ = sum(row["state"] == "l" for row in rows.values())
            lapsed = len(delivered) - len(ended) - open_
            lapsed -= sum(id in cancelled for id, _ in set(delivered) - ended)
            assert totals["recovered"] + totals["killed"] == lapsed, (totals, self.log)

        # The totals are what happened.
        for counter in ("sent", "delivered", "acked", "released", "failed", "cancelled"):
            assert totals[counter] == len(self.of(counter)), (counter, totals, self.log)

    def drain(self) -> None:
        """Once all leases have ended and no limit is left, everything can still be had."""
        rows = self.rows()
        self.now = NOW + 24 * HOUR
        home = self.home
        for channel in {row["channel"] for row in rows.values()}:
            home.do("policy_clear", channel)()
        self.settings(
            max_concurrency=None,
            rate_count=None,
            rate_period_us=None,
            ordered=0,
            limit_concurrency=None,
            limit_rate_count=None,
            limit_rate_period_us=None,
        )
        had: list[int] = []
        while leases := home.receive(100)():
            had += [id for id, _ in leases]
            home.ack(leases)()
        waiting = {id for id, row in rows.items() if row["state"] in "rsl"}
        assert set(had) == waiting, f"{waiting - set(had)} cannot be received"
        assert len(had) == len(waiting), "received twice"
