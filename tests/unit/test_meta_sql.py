"""The meta of a queue through the SQL doors: an object, or one as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

import fairturn
from tests import servers

Door = tuple[fairturn.Database, Callable[[str, Any], None]]


@pytest.fixture(params=["postgresql", "mysql"])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    """A Database, and what calls queue_create or queue_set for the queue "q" in plain SQL."""
    if request.param == "postgresql":
        url = servers.postgres_url("meta_sql")
        connection: Any = psycopg.connect(url, autocommit=True)
        text = "SELECT fairturn.{}('q', %s)"
    else:
        url = servers.mysql_url("meta_sql")
        at = urlsplit(url)
        connection = pymysql.connect(
            host=at.hostname,
            port=at.port or 0,
            user=at.username,
            database=at.path[1:],
            autocommit=True,
        )
        text = "CALL fairturn_{}('q', %s)"

    def call(name: str, meta: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(text.format(name), (json.dumps({"meta": meta}),))

    with fairturn.connect(url) as db:
        db.migrate()
        yield db, call
        db.queue("q").drop()
    connection.close()


def test_what_plain_sql_sets_the_library_reads(door: Door) -> None:
    db, call = door
    call("queue_create", {"team": "é 😀", "n": [1, {"a": None}]})
    assert db.queue("q").settings().meta == {"team": "é 😀", "n": [1, {"a": None}]}
    call("queue_set", '{"as": "text"}')
    assert db.queue("q").settings().meta == {"as": "text"}
    for nothing in ({}, None):
        call("queue_set", {"a": 1})
        call("queue_set", nothing)
        assert db.queue("q").settings().meta == {}


@pytest.mark.parametrize("wrong", [1, "text", [1], True, {"m": "x" * 65_536}])
def test_what_is_no_object_or_too_large_is_refused(door: Door, wrong: Any) -> None:
    db, call = door
    db.queue("q").create(meta={"a": 1})
    with pytest.raises(
        Exception, match=r"meta is a JSON object|invalid input syntax for type json"
    ):
        call("queue_set", wrong)
    assert db.queue("q").settings().meta == {"a": 1}
