"""Lease handles: deliveries that are known only by id and delivery number."""

from __future__ import annotations

from fairturn.core import check, limits
from fairturn.core.rows import AnyMessageRow, LeaseRow


def lease_row(id: int, delivery: int) -> LeaseRow:
    id = check.integer(id, "id", 0, 2**63 - 1)
    return LeaseRow(id, check.integer(delivery, "delivery", 1, limits.COUNT_MAX))


def extended(row: AnyMessageRow, until: int | None) -> AnyMessageRow:
    """Return the row with another end of its lease."""
    if isinstance(row, LeaseRow):
        return row._replace(until=until)
    return row._replace(lease_until=until)
