"""What is told about the permits of live workers. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class PermitStatus:
    """A live worker's registration at one instant, and how many leases hang on it."""

    id: int
    name: str
    created_at: datetime
    expires_at: datetime  # unless it is extended before
    leases: int
