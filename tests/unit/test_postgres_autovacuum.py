"""Autovacuum takes transaction ids while it writes what it has learnt of a table. Events do not
wait for it: it never writes any."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

import fairturn
from tests import servers

pytestmark = pytest.mark.server

EAGER = {
    "autovacuum_naptime": "1s",
    "autovacuum_analyze_threshold": "1",
    "autovacuum_analyze_scale_factor": "0",
}
COLUMNS = 1000  # so long it writes
WRITING = """
SELECT array_agg(backend_xid::text) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'autovacuum worker'
  AND backend_xid IS NOT NULL
"""


def test_events_do_not_wait_for_autovacuum() -> None:
    server = servers.Postgres(settings=EAGER, durable=False)
    with server:
        url = server.create_database("eager")
        columns = ", ".join(f"c{i} int DEFAULT {i}" for i in range(COLUMNS))
        with fairturn.connect(url) as db, psycopg.connect(url, autocommit=True) as other:
            db.migrate()
            queue = db.queue("told")
            queue.create(events=True)
            execute: Any = other.execute
            execute(f"CREATE TABLE wide (id int, {columns})")
            execute("INSERT INTO wide SELECT generate_series(1, 300)")
            end = time.monotonic() + 60
            while time.monotonic() < end:
                execute("UPDATE wide SET c1 = c1 + 1 WHERE id = 1")  # there is news again
                before = execute(WRITING).fetchone()[0]
                if before is None:
                    continue
                sent = queue.send("x")
                told = [event.id for event in db.events("told", after="", timeout=0)]
                if execute(WRITING).fetchone()[0] == before:  # all the while
                    assert sent in told
                    return
    raise AssertionError("autovacuum was never seen to write")
