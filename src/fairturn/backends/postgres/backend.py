"""The operations on PostgreSQL: one function call each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairturn.backends.catalogue import parse
from fairturn.backends.postgres import faults
from fairturn.backends.postgres.fragments import FRAGMENTS
from fairturn.backends.postgres.groups import Groups
from fairturn.backends.postgres.insight import Insight
from fairturn.backends.postgres.literals import queue_dict
from fairturn.backends.postgres.receive import Receiving
from fairturn.backends.postgres.schedules import Schedules
from fairturn.backends.postgres.schema import Schema
from fairturn.backends.postgres.sends import COLUMNS, Sending
from fairturn.backends.postgres.verbs import Verbs
from fairturn.backends.steps import Op
from fairturn.core.kinds import Value
from fairturn.core.rows import ChannelRow, PermitRow
from fairturn.core.settings import PolicyRow

HERE = Path(__file__).parent


class PostgresBackend(Sending, Receiving, Verbs, Insight, Groups, Schedules, Schema):
    dialect = "postgresql"

    def __init__(self, schema: str = "fairturn") -> None:
        self.schema = schema
        self._special: set[str] = set()
        statements = parse((HERE / "statements.sql").read_text("utf-8"), "${}", FRAGMENTS)
        self.statements = {name: self.named(text) for name, text in statements.items()}
        self._copy = self.named(f"COPY fairturn.message ({COLUMNS}) FROM STDIN (FORMAT binary)")

    def translate(self, code: str, message: str) -> Exception | str | None:
        return faults.translate(code, message)

    # --- queues ------------------------------------------------------------------------------
    def queue_create(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[bool]:
        params = (name, json.dumps(dict(columns)), now)
        [(created,)] = yield self.statements["queue_create"], params
        return created

    def queue_set(self, name: str, columns: Mapping[str, Value], now: int | None) -> Op[None]:
        yield self.statements["queue_set"], (name, json.dumps(dict(columns)), now)

    def queues(self, name: str | None) -> Op[list[dict[str, Any]]]:
        rows = yield self.statements["queues"], (name,)
        return [queue_dict(*row) for row in rows]

    def queue_purge(self, name: str, reset: bool, now: int | None) -> Op[None]:
        yield self.statements["queue_purge"], (name, int(reset), now)

    def queue_drop(self, name: str, now: int | None) -> Op[bool]:
        [(dropped,)] = yield self.statements["queue_drop"], (name, now)
        return dropped

    # --- policies ----------------------------------------------------------------------------
    def policy_set(self, queue: str, channel: str, policy: PolicyRow, now: int | None) -> Op[None]:
        yield self.statements["policy_set"], (queue, channel, *policy)

    def policy_clear(self, queue: str, channel: str, now: int | None) -> Op[bool]:
        [(cleared,)] = yield self.statements["policy_clear"], (queue, channel)
        return cleared

    def channels(self, queue: str, limit: int, now: int | None) -> Op[list[ChannelRow]]:
        rows = yield self.statements["channels"], (queue, limit)
        if not rows:
            yield from self._found(queue)
        return [ChannelRow.of(row) for row in rows]

    # --- permits -----------------------------------------------------------------------------
    def permit_create(self, id: int, name: str, ttl_us: int, now: int | None) -> Op[None]:
        yield self.statements["permit_create"], (name, ttl_us, now, id)

    def permit_extend(self, permit: int, ttl_us: int, now: int | None) -> Op[bool]:
        [(extended,)] = yield self.statements["permit_extend"], (permit, ttl_us, now)
        return extended

    def permit_close(self, permit: int, now: int | None) -> Op[None]:
        yield self.statements["permit_close"], (permit,)

    def permits(self, now: int | None) -> Op[list[PermitRow]]:
        rows = yield self.statements["permits"], (now,)
        return [PermitRow._make(row) for row in rows]

    # --- what a queue remembers --------------------------------------------------------------
    def remember(
        self, queue: str, name: str, value: bytes, keep_us: int, now: int | None
    ) -> Op[None]:
        yield self.statements["remember"], (queue, name, value, keep_us, now)

    def recall(self, queue: str, name: str, now: int | None) -> Op[bytes | None]:
        [(value,)] = yield self.statements["recall"], (queue, name, now)
        return value

    # --- maintenance -------------------------------------------------------------------------
    def sleep(self, queue: str, who: int, us: int) -> Op[None]:
        """The listener ``who`` waits for this queue ("": for any) for so long; 0: no longer."""
        yield self.statements["sleep"], (queue, who, us)

    def maintain(self, limit: int, now: int | None) -> Op[tuple[int, int, int, int, bool]]:
        [(activated, recovered, killed, purged, more)] = yield (
            self.statements["maintain"],
            (limit, now),
        )
        return activated, recovered, killed, purged, bool(more)

    def clock(self) -> Op[int]:
        [(time,)] = yield self.statements["clock"], ()
        return time
