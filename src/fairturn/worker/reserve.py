"""Slots kept free for urgent messages: limits on the running handlers, by priority."""

from __future__ import annotations

from collections.abc import Mapping

from fairturn.core.errors import InvalidArgument


class Reserve:
    """``{0: 5, 10: 8}``: while fewer than 5 handlers run, any message may start; while 5 to 7 run,
    only messages of priority 10 and above; while 8 run, none. So three slots are kept for urgent
    messages."""

    def __init__(self, limits: Mapping[int, int]) -> None:
        self.limits = dict(sorted(limits.items()))  # the least urgent first
        self.verify()

    def verify(self) -> None:
        """Check that no priority has a smaller limit than a less urgent one."""
        before, least = 0, 0
        for priority, limit in self.limits.items():
            if limit < 0:
                raise InvalidArgument(f"reserve: the limit of priority {priority} is negative")
            if limit < least:
                raise InvalidArgument(
                    f"reserve: priority {priority} may use {limit} slots, but the less urgent "
                    f"priority {before} may use {least}: allow the more urgent priority at "
                    "least as many"
                )
            before, least = priority, limit
        if not self.max_running:
            raise InvalidArgument("reserve: no message could start: allow at least one slot")

    @property
    def max_running(self) -> int:
        return max(self.limits.values(), default=0)

    def check(self, running: int) -> tuple[int, int | None]:
        """Return (how many more may start, their minimum priority; None: any priority)."""
        first = True
        for priority, limit in self.limits.items():
            if running < limit:
                return limit - running, None if first else priority
            first = False
        return 0, None
