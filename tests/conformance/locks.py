"""Wait until somebody waits for a lock: a condition, not a guess after some time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.conformance.yours import plain

PATIENCE = 60.0  # seconds until a test gives up; none waits that long when all is well
WAITING = {
    "postgresql": """SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'""",
    "mysql": """SELECT count(*) FROM information_schema.INNODB_TRX t
        JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id
        WHERE t.trx_state = 'LOCK WAIT' AND p.DB = DATABASE()""",
}


def until_waiting(
    backend: str, url: str, count: int = 1, ended: Callable[[], Any] = lambda: None
) -> None:
    """Go on when ``count`` sessions of this database wait for a lock. ``ended`` tells that a call
    has ended instead."""
    with plain(backend, url) as looker:
        deadline = time.monotonic() + PATIENCE
        while looker.execute(WAITING[backend])[0][0] < count:
            looker.commit()
            assert not ended(), f"it did not wait: {ended()}"
            assert time.monotonic() < deadline, "it neither waits nor ends"
            time.sleep(0.15)  # MySQL's answer stays the same for those who ask more often
        looker.commit()
