"""Permits (§6)."""

from __future__ import annotations

from fairlead.backends.base import Rows
from fairlead.backends.memory.core import Core, op
from fairlead.backends.memory.state import Permit


class Permits(Core):
    @op
    def permit_create(self, name: str, ttl_us: int, now: int | None) -> int:
        now = self._now(now)
        self._state.last_permit += 1
        permit = Permit(self._state.last_permit, name, now, now + ttl_us)
        self._state.permits[permit.id] = permit
        return permit.id

    @op
    def permit_extend(self, permit: int, ttl_us: int, now: int | None) -> bool:
        now = self._now(now)
        alive = self._alive(permit, now)
        if alive:
            alive.expires_at = now + ttl_us
        return alive is not None

    @op
    def permit_close(self, permit: int, now: int | None) -> None:
        self._state.permits.pop(permit, None)

    @op
    def permits(self, now: int | None) -> Rows:
        now = self._now(now)
        return [
            (permit.id, permit.name, permit.created_at, permit.expires_at, self._leases(permit.id))
            for permit in self._state.permits.values()
            if self._alive(permit.id, now)
        ]

    def _leases(self, permit: int) -> int:
        return sum(m.permit == permit for q in self._by_name() for m in q.select("l"))
