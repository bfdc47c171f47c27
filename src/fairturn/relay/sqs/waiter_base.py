"""What both Waiters share, without I/O."""

from __future__ import annotations

import time
from typing import Any

from fairturn.relay.sqs import waiter_orders as orders


class BaseWaiter:
    """It forwards the methods that it does not have to the client."""

    def __init__(self, client: Any, prefix: str, patience: float) -> None:
        self._client = client
        self._prefix = prefix
        self._patience = patience
        self._connection: Any = None
        self._there: set[str] = set()  # queues that are known to exist and to be committed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._client, name)

    @property
    def _always(self) -> bool:
        """Is every message stored, even with a short delay? It is in your transaction."""
        return self._connection is not None

    def _settings(self, url: str) -> dict[str, Any]:
        meta = getattr(self._client, "meta", None)
        return orders.queue_settings(url, getattr(meta, "region_name", None))

    def _deadline(self) -> float:
        return 0.0 if self._always else time.monotonic() + self._patience


def now() -> int:
    return time.time_ns() // 1_000
