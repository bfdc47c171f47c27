"""The three databases agree with the tables of settings, policies and send options.

Columns and their defaults, what the SQL doors accept, and what comes back. A line that was added in
core/settings.py or core/sends.py and forgotten in one database fails here, and the failure says
what to add.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

import fairturn
from fairturn import Policy
from fairturn.core.sends import SEND_OPTIONS
from fairturn.core.settings import (
    POLICY_FIELDS,
    QUEUE_DEFAULTS,
    QUEUE_SETTINGS,
    PolicyRow,
    policy_row,
)
from fairturn.operations.call import Call
from tests import servers
from tests.samples import sample

# The columns of a queue that are no settings.
OWN = {"id", "name", "lane", "created_at", "tat"}
# These may be NULL in the database although Python never writes that.
LOOSE = {("sqlite", "failure_retention_us"), ("mysql", "failure_retention_us")}
WHOLE = Policy(**{name: sample(line) for name, line in POLICY_FIELDS.items()})


@dataclass
class Engine:
    """A database, and a connection for plain SQL."""

    dialect: str
    db: fairturn.Database
    connection: Any
    prefix: str  # of its tables and functions

    def queue(self) -> fairturn.Queue:
        """The queue "q", new."""
        queue = self.db.queue("q")
        queue.drop()
        queue.create()
        return queue

    def rows(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        cursor.execute(text, params)
        found = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        self.names = [column[0] for column in cursor.description or ()]
        cursor.close()
        return found

    def row(self, table: str, where: str) -> dict[str, Any]:
        [row] = self.rows(f"SELECT * FROM {self.prefix}{table} WHERE {where}")
        return dict(zip(self.names, row, strict=True))

    def nullable(self, table: str) -> dict[str, bool]:
        """May a column be NULL?"""
        if self.dialect == "sqlite":
            rows = self.rows(f"PRAGMA table_info({self.prefix}{table})")
            return {row[1]: not row[3] for row in rows}
        schema, name = ("'fairturn'", table)
        if self.dialect == "mysql":
            schema, name = ("DATABASE()", self.prefix + table)
        rows = self.rows(
            "SELECT column_name, is_nullable FROM information_schema.columns "
            f"WHERE table_schema = {schema} AND table_name = %s",
            name,
        )
        return {name: answer == "YES" for name, answer in rows}

    def call(self, function: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Call a function or procedure of the SQL door."""
        verb = "CALL" if self.dialect == "mysql" else "SELECT"
        places = ", ".join(["%s"] * len(arguments))
        return self.rows(f"{verb} {self.prefix}{function}({places})", *arguments)


@contextmanager
def opened(dialect: str, directory: Path) -> Iterator[Engine]:
    connection: Any
    if dialect == "sqlite":
        url, prefix = f"sqlite:///{directory}/settings.db", "fairturn_"
    elif dialect == "postgresql":
        url, prefix = servers.postgres_url("settings_sql"), "fairturn."
    else:
        url, prefix = servers.mysql_url("settings_sql"), "fairturn_"
    with fairturn.connect(url) as db:
        db.migrate()
        if dialect == "sqlite":
            connection = sqlite3.connect(f"{directory}/settings.db")
        elif dialect == "postgresql":
            connection = psycopg.connect(url, autocommit=True)
        else:
            at = urlsplit(url)
            name = at.path[1:]
            connection = pymysql.connect(
                host=at.hostname,
                port=at.port or 0,
                user=at.username,
                database=name,
                autocommit=True,
            )
        with closing(connection):
            yield Engine(dialect, db, connection, prefix)


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with opened(request.param, tmp_path) as engine:
        yield engine


@pytest.fixture(params=["postgresql", "mysql"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """One of those that have functions or procedures for plain SQL."""
    with opened(request.param, tmp_path) as engine:
        yield engine


@pytest.fixture
def mysql(tmp_path: Path) -> Iterator[Engine]:
    with opened("mysql", tmp_path) as engine:
        yield engine


# --- tables ---------------------------------------------------------------------------------------
def apart(engine: Engine) -> set[str]:
    """Where the meta has a table of its own, it is no column of the queue."""
    return set() if engine.dialect == "mysql" else {"meta"}


def test_a_queue_has_a_column_for_every_setting(engine: Engine) -> None:
    columns = set(engine.nullable("queue")) - OWN
    wanted = QUEUE_DEFAULTS.keys() - apart(engine)
    assert columns == wanted, f"the table of queues of {engine.dialect}: add a migration"


def test_a_policy_has_a_column_for_every_field(engine: Engine) -> None:
    columns = set(engine.nullable("policy")) - {"queue_id", "channel"}
    assert columns == set(PolicyRow._fields), f"the table of policies of {engine.dialect}"


def test_columns_are_null_where_the_setting_may_be_none(engine: Engine) -> None:
    lines = [*QUEUE_SETTINGS.values(), *POLICY_FIELDS.values()]
    found = {**engine.nullable("policy"), **engine.nullable("queue")}
    policy = dict(zip(QUEUE_SETTINGS["policy"].columns, policy_row(Policy()), strict=True))
    for line in lines:
        stored = dict(zip(line.columns, line.encode(line.default), strict=True))
        for column, value in {**stored, **{c: policy[c] for c in policy if c in stored}}.items():
            if column in found and (engine.dialect, column) not in LOOSE:
                assert found[column] is (value is None), f"{engine.dialect}: {column}"


def test_a_new_queue_has_the_defaults_of_the_table(engine: Engine) -> None:
    engine.queue()
    row = engine.row("queue", "name = 'q'")
    wanted = {key: value for key, value in QUEUE_DEFAULTS.items() if key not in apart(engine)}
    assert {key: row[key] for key in wanted} == wanted


def test_plain_sql_makes_a_queue_with_the_defaults_of_the_table(door: Engine) -> None:
    door.db.queue("plain").drop()
    door.call("queue_create", "plain", "{}")
    settings = door.db.queue("plain").settings()
    assert settings == fairturn.Settings("plain", created_at=settings.created_at)
    door.db.queue("plain").drop()


def test_plain_sql_sets_a_policy_with_the_defaults_of_the_table(door: Engine) -> None:
    queue = door.queue()
    door.call("policy_set", "q", "c", *(["{}"] if door.dialect == "mysql" else []))
    [channel] = queue.channels()
    assert channel.policy == Policy()


# --- what is written is read ----------------------------------------------------------------------
@pytest.mark.parametrize("name", QUEUE_SETTINGS)
def test_a_setting_comes_back(engine: Engine, name: str) -> None:
    line, queue = QUEUE_SETTINGS[name], engine.queue()
    value = sample(line)
    where = f"{name} is lost in queue_create or queue_set of {engine.dialect}"
    if line.by == "create":
        queue.drop()
        queue.create(**{name: value})
        assert getattr(queue.settings(), name) == value, where
        queue.set(**{name: line.default})
        assert getattr(queue.settings(), name) == line.default, where
        queue.set(**{name: value})
    elif line.by == "set_limit":
        queue.set_limit(**{name: value})
    else:
        queue.pause()
    settings = queue.settings()
    assert getattr(settings, name) == value, where
    others = {other: getattr(settings, other) for other in QUEUE_SETTINGS if other != name}
    assert others == {other: QUEUE_SETTINGS[other].default for other in others}


@pytest.mark.parametrize("name", POLICY_FIELDS)
def test_a_policy_comes_back(engine: Engine, name: str) -> None:
    """From set_policy, from a batch, and in explain's facts."""
    policy = Policy(**{name: sample(POLICY_FIELDS[name])})
    queue = engine.queue()
    queue.channel("one").set_policy(**{name: sample(POLICY_FIELDS[name])})
    with engine.db.batch() as batch:
        batch.queue("q").channel("two").set_policy(**{name: sample(POLICY_FIELDS[name])})
    assert {own.channel: own.policy for own in queue.channels()} == {"one": policy, "two": policy}
    queue.set(policy=WHOLE)
    for channel, wanted in (("one", policy), ("none", WHOLE)):
        sent = queue.send(1, channel=channel)
        facts = engine.db._runner.run(_facts(engine.db._core.backend, sent))
        assert facts.policy == policy_row(wanted), f"the statement or procedure facts, {channel}"


def _facts(backend: Any, id: int) -> Call[Any]:
    return Call("facts", lambda: backend.facts("q", id, None, None))


# --- what the SQL doors accept --------------------------------------------------------------------
@pytest.mark.parametrize("name", QUEUE_SETTINGS)
def test_plain_sql_sets_every_column(door: Engine, name: str) -> None:
    line, queue = QUEUE_SETTINGS[name], door.queue()
    encoded = dict(zip(line.columns, line.encode(sample(line)), strict=True))
    for column, value in encoded.items():
        door.call("queue_set", "q", json.dumps({column: value}))
    assert getattr(queue.settings(), name) == sample(line), f"queue_set of {door.dialect}"


@pytest.mark.parametrize("name", sorted({*OWN, "lease_seconds", "wait", "policy", "backoff"}))
def test_plain_sql_refuses_what_is_no_setting(door: Engine, name: str) -> None:
    door.queue()
    with pytest.raises((psycopg.Error, pymysql.Error), match=f"{name}"):
        door.call("queue_set", "q", json.dumps({name: 1}))


@pytest.mark.server
def test_mysql_takes_durations_in_seconds(mysql: Engine) -> None:
    """Under the names without _us."""
    mysql.queue()
    for column in QUEUE_DEFAULTS:
        if column.endswith("_us"):
            mysql.call("queue_set", "q", json.dumps({column.removesuffix("_us"): 1.5}))
            row = mysql.row("queue", "name = 'q'")
            assert row[column] == 1_500_000, "the procedures fairturn_columns_ and _durations_"


def test_plain_sql_sets_every_field_of_a_policy(door: Engine) -> None:
    row, queue = policy_row(WHOLE)._asdict(), door.queue()
    if door.dialect == "mysql":
        door.call("policy_set", "q", "c", json.dumps(row))
        with pytest.raises(pymysql.Error, match="wait"):
            door.call("policy_set", "q", "c", json.dumps({"wait": 1}))
    else:
        flags = {name for name, line in POLICY_FIELDS.items() if line.default is False}
        values = {key: bool(value) if key in flags else value for key, value in row.items()}
        named = ", ".join(f"p_{name} => %s" for name in values)
        door.rows(f"SELECT fairturn.policy_set('q', 'c', {named})", *values.values())
        assert list(parameters(door, "policy_set")) == ["queue", "channel", *row]
    [channel] = queue.channels()
    assert channel.policy == WHOLE


def parameters(door: Engine, function: str) -> dict[str, Any]:
    """The parameters of a function of PostgreSQL with their defaults."""
    [(text,)] = door.rows(
        "SELECT pg_get_function_arguments(p.oid) FROM pg_proc p "
        "JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = 'fairturn' AND p.proname = %s",
        function,
    )
    found: dict[str, Any] = {}
    for name, default in re.findall(r"p_(\w+) [a-z ]+?(?: DEFAULT ([^,]+))?(?:,|$)", text):
        found[name] = door.rows(f"SELECT {default}")[0][0] if default else ...
    return found


# A delay with a max_wait is a debounce; a text is JSON unless json says otherwise.
SEND_NAMES = {*SEND_OPTIONS, "json", "now"} - {"debounce"}


def test_plain_sql_sends_with_every_option(door: Engine) -> None:
    door.queue()
    if door.dialect == "mysql":
        door.call("send", "q", "{}", json.dumps(dict.fromkeys(SEND_NAMES)))
        for wrong in ("debounce", "no_such_option"):
            with pytest.raises(pymysql.Error, match=wrong):
                door.call("send", "q", "{}", json.dumps({wrong: None}))
        return
    for function in ("send", "send_bytes"):
        found = parameters(door, function)
        assert found.keys() == {"queue", "body", *SEND_NAMES}, f"the function {function}"
        for name, line in SEND_OPTIONS.items():
            if name != "debounce":
                default = found[name]
                seconds = getattr(default, "total_seconds", lambda default=default: default)()
                assert seconds == line.default, f"{function}: the default of {name}"
