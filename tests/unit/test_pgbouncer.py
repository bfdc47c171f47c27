"""Behind PgBouncer in transaction mode: what does not work says what to do."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

import fairturn
from tests import servers

pytestmark = pytest.mark.server


def send_in_turns(url: str, queue: fairturn.Queue, **options: Any) -> None:
    """60 transactions of three connections of yours."""
    with ExitStack() as stack:
        yours = [stack.enter_context(psycopg.connect(url, **options)) for _ in range(3)]
        for turn in range(60):
            with yours[turn % 3].transaction():
                queue.using(yours[turn % 3]).send(turn)


def test_a_connection_with_startup_options_says_what_to_pass() -> None:
    with (
        fairturn.connect(servers.pgbouncer_url("pooled")) as db,
        pytest.raises(fairturn.DatabaseUnavailable, match=r"prepare=False .*--pooler"),
    ):
        db.migrate()


def test_your_connection_with_prepared_statements_says_what_to_do() -> None:
    """psycopg prepares a statement at its fifth use, and the next transaction has another session,
    where another connection has prepared one under the same name."""
    url = servers.pgbouncer_url("pooled")
    with fairturn.connect(url, prepare=False) as db:
        db.migrate()
        db.queue("prepared").create()
        with pytest.raises(fairturn.DatabaseError, match="prepare_threshold=None"):
            send_in_turns(url, db.queue("prepared"))


def test_your_connection_without_them_works() -> None:
    url = servers.pgbouncer_url("pooled")
    with fairturn.connect(url, prepare=False) as db:
        db.migrate()
        db.queue("plain").create()
        send_in_turns(url, db.queue("plain"), prepare_threshold=None)
        assert db.queue("plain").stats().ready == 60
