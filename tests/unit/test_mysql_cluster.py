"""What a cluster writes, and a single server does not. (tests/clusters has the real cluster; here a
session says that it is in one.)"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import fairturn
from tests import servers

pytestmark = pytest.mark.server


@pytest.fixture
def db() -> Iterator[fairturn.Database]:
    with fairturn.connect(servers.mysql_url("cluster"), pool_size=1) as db:
        db.migrate()
        for name in db.queues():
            db.queue(name).drop()
        connection: Any = db.target.open().connection
        with closing(connection), connection.cursor() as cursor:
            cursor.execute("DELETE FROM fairturn_event")
        yield db


class Work:
    """Uses limits, groups and events in one session, which is in a cluster or not."""

    def __init__(self, db: fairturn.Database, cluster: int) -> None:
        self.connection: Any = db.target.open().connection
        self.sql(f"SET @fairturn_cluster = {cluster}")
        queue = db.queue(f"q{cluster}")
        queue.create(events=True, lease=60, policy=fairturn.Policy(max_concurrency=2))
        queue.set_limit(max_concurrency=2)
        mine = queue.using(self.connection)
        group = db.group(f"g{cluster}", queue.name, end={"end": 1}).using(self.connection)
        group.send_many([1, 2, 3])
        group.start()
        received = mine.receive(5)
        assert [message.body for message in received] == [1, 2]  # the limit
        mine.ack(received)
        self.kinds = [
            row[2] for row in self.sql("CALL fairturn_events('', %s, '{}')", (queue.name,))
        ]

    def sql(self, text: str, params: tuple[Any, ...] = ()) -> list[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(text, params)
            rows = list(cursor.fetchall())
            while cursor.nextset():
                pass
        return rows

    def written(self, name: str) -> list[bool]:
        """Were the gate, the row of the limit, and the group's row written?"""
        own = f"(SELECT id FROM fairturn_queue WHERE name = '{name}')"
        tables = ("SELECT tat FROM fairturn_gate WHERE queue_id = " + own,)
        tables += ("SELECT tat FROM fairturn_limit WHERE queue_id = " + own,)
        tables += (f"SELECT joins FROM fairturn_group WHERE name = 'g{name[1:]}'",)
        return [any(value for (value,) in self.sql(text)) for text in tables]


def test_a_single_server_does_not_write_what_it_locks(db: fairturn.Database) -> None:
    alone = Work(db, 0)
    with closing(alone.connection):
        assert alone.written("q0") == [False, False, False]


def test_a_cluster_writes_it_and_does_the_same(db: fairturn.Database) -> None:
    alone, node = Work(db, 0), Work(db, 1)
    with closing(alone.connection), closing(node.connection):
        assert node.written("q1") == [True, True, True]
        assert node.kinds == alone.kinds
        assert node.kinds.count("created") == 3
        assert node.sql("SELECT COUNT(*) FROM fairturn_event_new") == [(0,)]  # all have places


def test_a_plain_server_is_no_cluster(db: fairturn.Database) -> None:
    connection: Any = db.target.open().connection
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("CALL fairturn_settle(1, NULL)")
        while cursor.nextset():
            pass
        cursor.execute("SELECT @fairturn_cluster")
        assert cursor.fetchone() == (0,)
