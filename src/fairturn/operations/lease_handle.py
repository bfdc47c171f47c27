"""Lease handles: deliveries that are known only by id and token."""

from __future__ import annotations

from fairturn.backends.verbs import TOKEN_BITS
from fairturn.core import check
from fairturn.core.rows import AnyMessageRow, LeaseRow


def lease_row(id: int, token: int) -> LeaseRow:
    id = check.integer(id, "id", 0, 2**63 - 1)
    return LeaseRow(id, check.integer(token, "token", 1, 2**TOKEN_BITS - 1))


def extended(row: AnyMessageRow, until: int | None) -> AnyMessageRow:
    """Return the row with another end of its lease."""
    if isinstance(row, LeaseRow):
        return row._replace(until=until)
    return row._replace(lease_until=until)
