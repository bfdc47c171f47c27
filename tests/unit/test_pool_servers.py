"""The pools in front of real servers: connections that are being made, and ones that break."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

import fairturn
from fairturn import OutcomeUnknown
from fairturn.execution.aio.runner import AsyncOwnRunner
from tests import servers
from tests.conformance import yours
from tests.conformance.door import unique

pytestmark = pytest.mark.server


@pytest.mark.parametrize("swallows", [False, True])
def test_who_is_cancelled_while_a_connection_to_postgres_is_made_is_cancelled(
    swallows: bool,
) -> None:
    """A driver may make an error of its own of that, or go on as if nothing had happened."""

    async def main() -> None:
        db = fairturn.connect_async(servers.postgres_url("pool"))
        assert isinstance(db._runner, AsyncOwnRunner)
        open_, begun = db._runner._pool._open, asyncio.Event()

        async def slowly() -> Any:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if not swallows:
                    raise fairturn.DatabaseUnavailable("cancelled while connecting") from None
            return await open_()

        db._runner._pool._open = slowly
        task = asyncio.create_task(db.queues())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await db.close()

    asyncio.run(main())


URLS = {"postgresql": servers.postgres_url, "mysql": servers.mysql_url}


def cut_all(kind: str, url: str) -> int:
    """End every other session of the database, as a server does that starts anew."""
    which = {
        "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'",  # no autovacuum
        "mysql": "SELECT id FROM information_schema.processlist "
        "WHERE db = database() AND id <> connection_id()",
    }[kind]
    with yours.plain(kind, url) as mine:
        rows = mine.execute(which)
        if kind == "mysql":
            for (id,) in rows:
                mine.execute(f"KILL {id}")
        mine.commit()
    return len(rows)


@pytest.mark.parametrize("kind", URLS)
def test_a_server_that_starts_anew_breaks_at_most_one_call(kind: str) -> None:
    url = URLS[kind]("pool_cut")
    with fairturn.connect(url, pool_size=6, listen=False) as db:
        db.migrate()
        queue = db.queue(unique("q"))
        queue.create()
        for call in (queue.stats, lambda: queue.send(1)):
            with contextlib.ExitStack() as held:
                for _ in range(6):
                    held.enter_context(db._runner.transaction())
            assert cut_all(kind, url) == 6
            with contextlib.suppress(OutcomeUnknown):  # a send is not repeated by itself
                call()
            for _ in range(6):
                call()


@pytest.mark.parametrize("kind", URLS)
def test_a_server_that_starts_anew_breaks_at_most_one_async_call(kind: str) -> None:
    url = URLS[kind]("pool_cut_async")

    async def main() -> None:
        async with fairturn.connect_async(url, pool_size=6, listen=False) as db:
            await db.migrate()
            queue = db.queue(unique("q"))
            await queue.create()
            for call in (queue.stats, lambda: queue.send(1)):
                async with contextlib.AsyncExitStack() as held:
                    for _ in range(6):
                        await held.enter_async_context(db._runner.transaction())
                assert cut_all(kind, url) == 6
                with contextlib.suppress(OutcomeUnknown):
                    await call()
                for _ in range(6):
                    await call()

    asyncio.run(main())
