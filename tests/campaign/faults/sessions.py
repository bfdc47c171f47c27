"""What an administrator of the database server can do to the sessions of others."""

from __future__ import annotations

import contextlib
import random
from typing import Any

from tests.campaign.site import Site


class Administrator:
    """A session of its own, directly on the server."""

    def __init__(self, site: Site, dice: random.Random) -> None:
        self._postgres = site.family == "postgresql"
        self._connection = site.session(dice)

    def _ask(self, statement: str) -> list[Any]:
        cursor = self._connection.cursor()
        cursor.execute(statement)
        return list(cursor.fetchall())

    def terminate(self, dice: random.Random) -> None:
        """One session of the campaign, if there is one."""
        found = self._ask(
            "SELECT pid FROM pg_stat_activity WHERE datname = 'campaign' "
            "AND pid <> pg_backend_pid() ORDER BY pid"
            if self._postgres
            else "SELECT id FROM information_schema.processlist WHERE db = 'campaign' "
            "AND id <> connection_id() ORDER BY id"
        )
        if not found:
            return
        number = int(dice.choice(found)[0])
        if self._postgres:
            self._ask(f"SELECT pg_terminate_backend({number})")
            return
        import pymysql

        with contextlib.suppress(pymysql.MySQLError):  # it may be gone already
            kind = dice.choice(["CONNECTION", "QUERY"])
            self._connection.cursor().execute(f"KILL {kind} {number}")

    def __enter__(self) -> Administrator:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


class Hog:
    """Takes all sessions that the server has left (of a cluster: the leader, or one node)."""

    def __init__(self, site: Site, dice: random.Random) -> None:
        self._site = site
        self._seed = dice.random()  # the same node again and again
        self._mine: list[Any] = []

    def more(self) -> None:
        """Until the server refuses."""
        with contextlib.suppress(Exception):
            while True:
                self._mine.append(self._site.session(random.Random(self._seed)))

    def __enter__(self) -> Hog:
        self.more()
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._mine:
            with contextlib.suppress(Exception):
                session.close()
