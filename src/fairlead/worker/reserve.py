"""Capacity kept for urgent work: limits on all that runs, by priority."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.errors import InvalidArgument


class Reserve:
    """``{0: 5, 10: 8}``: with fewer than 5 running, anything may start; with 5 to 7 only messages
    of priority 10 and above; with 8 nothing. So three slots are always left for the urgent."""

    def __init__(self, limits: Mapping[int, int]) -> None:
        self.limits = dict(sorted(limits.items()))  # the least urgent first
        self.verify()

    def verify(self) -> None:
        """A more urgent priority must not have a smaller limit than a less urgent one."""
        before: tuple[int, int] | None = None
        for priority, limit in self.limits.items():
            if limit < 0:
                raise InvalidArgument(f"reserve: the limit of priority {priority} is negative")
            if before is not None and limit < before[1]:
                raise InvalidArgument(
                    f"reserve: priority {priority} may use {limit} slots and the less urgent "
                    f"{before[0]} {before[1]}: give the more urgent at least as many"
                )
            before = (priority, limit)
        if not self.most:
            raise InvalidArgument("reserve: no message could ever start; allow at least one slot")

    @property
    def most(self) -> int:
        return max(self.limits.values(), default=0)

    def check(self, running: int) -> tuple[int, int | None]:
        """(how many more may start, of which priority at least; None: of any)."""
        first = True
        for priority, limit in self.limits.items():
            if running < limit:
                return limit - running, None if first else priority
            first = False
        return 0, None
