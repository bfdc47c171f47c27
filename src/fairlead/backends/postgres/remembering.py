"""What a queue remembers for a while, on PostgreSQL."""

from __future__ import annotations

from fairlead.backends.base import Op


class Remembering:
    statements: dict[str, str]

    def remember(
        self, queue: str, name: str, value: bytes, keep_us: int, now: int | None
    ) -> Op[None]:
        yield self.statements["remember"], (queue, name, value, keep_us, now)

    def recall(self, queue: str, name: str, now: int | None) -> Op[bytes | None]:
        rows = yield self.statements["recall"], (queue, name, now)
        return rows[0][0]
