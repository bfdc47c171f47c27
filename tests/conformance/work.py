"""How much a database does for the calls on one connection: steps or rows, never seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STEPS = 100  # of SQLite's machine: it calls back every so many
# Rows that the session has read and written: in its transaction; since it began.
ROWS = {
    "postgresql": """SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)
            + n_tup_ins + n_tup_upd + n_tup_del)
        FROM pg_stat_xact_all_tables""",
    "mysql": """SELECT sum(variable_value) FROM information_schema.SESSION_STATUS
        WHERE variable_name LIKE 'Handler_read%' OR variable_name IN
            ('Handler_write', 'Handler_update', 'Handler_delete')""",
}


class Done:
    work = 0


@contextmanager
def counted(backend: str, mine: Any) -> Iterator[Done]:
    """The work of what happens meanwhile in the transaction on this connection of the user's."""
    done = Done()
    if backend == "sqlite":

        def step() -> int:
            done.work += STEPS
            return 0

        mine.connection.set_progress_handler(step, STEPS)
        yield done
        mine.connection.set_progress_handler(None, 0)
        return
    before = int(mine.execute(ROWS[backend])[0][0])
    yield done
    done.work = int(mine.execute(ROWS[backend])[0][0]) - before
