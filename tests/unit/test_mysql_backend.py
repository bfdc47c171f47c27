"""MySQL's own: procedures from a bare client, strange sessions, the schema, counts and plans."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest

from fairturn.backends.base import ConsumerState, Receive
from fairturn.backends.mysql import MysqlBackend
from fairturn.backends.mysql.schema import statements
from fairturn.backends.verbs import ACK, Fail, Lease
from fairturn.core import errors
from fairturn.core.rows import SendRow
from fairturn.core.settings import Policy, PolicyRow, policy_row
from fairturn.drivers.mysql import asyncmy as asyncmy_driver
from fairturn.drivers.mysql.pymysql import PyMysqlDriver, connect
from fairturn.drivers.run import run
from fairturn.drivers.run_async import run_async
from tests import servers

DATABASE = "mysql_unit"
NOW = 1_800_000_000_000_000
SECOND = 1_000_000
backend = MysqlBackend()


def arguments(name: str = DATABASE) -> dict[str, Any]:
    parts = urlsplit(servers.mysql_url(name))
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password or "",
        "database": parts.path[1:],
    }


def item(body: bytes = b"x", channel: str = "", json: int = 0, **given: Any) -> SendRow:
    return SendRow(channel, body, json, **given)


class Client:
    """One connection and the operations on it; errors are Fairturn's where they are known."""

    def __init__(self, connection: Any, own: bool = True) -> None:
        self.driver = PyMysqlDriver(connection)
        self.own = own
        self.consumer = ConsumerState()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self.run(getattr(backend, name)(*args))

    def run(self, op: Any) -> Any:
        try:
            return run(op, self.driver, self.own)
        except Exception as error:
            meant = backend.translate(self.driver.code(error) or "", str(error))
            if isinstance(meant, Exception):
                raise meant from error
            raise

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.driver.execute(text, params)

    def put(self, queue: str, *items: SendRow, now: int | None = None) -> list[Any]:
        return self.run(backend.send(queue, items or [item()], now))

    def take(self, queue: str, n: int = 1, now: int | None = None, **args: Any) -> list[Any]:
        op = backend.receive(queue, Receive(n, **args), self.consumer, now)
        return self.run(op).rows


def leases(rows: list[Any]) -> list[Lease]:
    return [Lease(row.id, row.token) for row in rows]


def policy(**given: Any) -> PolicyRow:
    return policy_row(Policy())._replace(**given)


@pytest.fixture(scope="module")
def migrated() -> None:
    client = Client(connect(**arguments()))
    client.migrate()
    client.driver.close()


@pytest.fixture
def opened(migrated: None) -> Iterator[Callable[..., Client]]:
    """Ours by default; yours with connection arguments."""
    made: list[Client] = []

    def open(**yours: Any) -> Client:
        if yours:
            sql_mode = yours.pop("sql_mode", None)
            connection = pymysql.connect(**arguments(), **yours)
            client = Client(connection, own=False)
            client.sql("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            if sql_mode is not None:
                client.sql(f"SET SESSION sql_mode = '{sql_mode}'")
        else:
            client = Client(connect(**arguments(), timeout=60))
        made.append(client)
        return client

    yield open
    for client in made:
        client.driver.rollback()
        client.driver.close()


@pytest.fixture
def a(opened: Callable[..., Client]) -> Client:
    return opened()


@pytest.fixture
def b(opened: Callable[..., Client]) -> Client:
    return opened()


@pytest.fixture
def queue(a: Client) -> Iterator[str]:
    assert a.queue_create("q", {}, None)
    yield "q"
    a.driver.rollback()
    a.queue_drop("q", None)


# --- the SQL door -----------------------------------------------------------------------------


def shell(database: str, text: str) -> str:
    given = arguments()
    program = shutil.which("mariadb") or shutil.which("mysql")
    assert program, "the client belongs to mariadb-server"
    command = [program, "--no-defaults", "-N", "-B", f"-h{given['host']}", f"-P{given['port']}"]
    command += [f"-u{given['user']}", "--default-character-set=utf8mb4", database]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.server
def test_the_door_alone_from_the_migrations_to_the_ack(migrated: None) -> None:
    """With another prefix, in the client's default isolation and transaction mode."""
    database = arguments("mysql_door")["database"]
    other = MysqlBackend("jobs_")
    for _, text in other.migrations():
        assert "fairturn_" not in text
        shell(database, text)
    shell(database, """CALL jobs_queue_create('é', '{"lease": 7, "max_attempts": 1}');""")
    sent = shell(
        database,
        """CALL jobs_send('é', '{"to": "ann"}', '{"channel": "t7", "priority": 3}');
           CALL jobs_send('é', 'plain', '{"channel": "t8", "key": "k", "delay": 60}');
           CALL jobs_send('é', 'plain', '{"key": "k", "on_conflict": "ignore"}');
           CALL jobs_send_many('é', '[{"body": 1}, {"body": "x", "channel": "t8"}]');""",
    )
    assert sent.split() == ["1", "2", "2", "3", "4"]
    rows = [
        line.split("\t") for line in shell(database, "CALL jobs_receive('é', 2, '{}');").split("\n")
    ]
    assert [(row[0], row[1], row[2]) for row in rows[:-1]] == [
        ("3", "", "1"),
        ("1", "t7", '{"to": "ann"}'),
    ]
    token = rows[0][12]
    rows = shell(database, "CALL jobs_receive('é', 2, NULL);").split("\t")
    assert rows[:3] == ["4", "t8", '"x"']  # the round went on
    assert shell(database, f"CALL jobs_ack('é', '[[3, {token}], [9, 1]]', '{{}}');") == "[9]\n"
    shell(database, f"CALL jobs_fail('é', '[[1, {token}]]', 'boom', NULL, '{{}}');")
    assert shell(database, "CALL jobs_redrive('é', NULL, 10, '{}');") == "1\n"
    stats = shell(database, "CALL jobs_stats('é', NULL);").split("\t")
    assert stats[:7] == ["é", "1", "1", "1", "0", "0", "0"]
    assert shell(database, "CALL jobs_maintain(100, '{}');") == "0\t0\t0\t0\t0\n"


@pytest.mark.server
def test_the_door_refuses_what_is_wrong(a: Client, queue: str) -> None:
    wrong = {
        "CALL fairturn_send('nobody', '1', '{}')": errors.QueueNotFound,
        "CALL fairturn_send('q', '1', '{\"key\": \"\"}')": errors.InvalidName,
        "CALL fairturn_send('q', '1', '{\"on_conflict\": \"x\"}')": errors.InvalidArgument,
        "CALL fairturn_send('q', '1', '{\"delay\": -1}')": errors.InvalidArgument,
        "CALL fairturn_send('q', '1', '{\"dealy\": 1}')": errors.InvalidArgument,
        "CALL fairturn_send('q', '1', '{\"group\": \"\"}')": errors.InvalidName,
        "CALL fairturn_send('q', '1', '[]')": errors.InvalidArgument,
        "CALL fairturn_ack('q', '[]', '{\"strcit\": 1}')": errors.InvalidArgument,
        "CALL fairturn_queue_set('q', '{\"leese\": 1}')": errors.InvalidArgument,
        "CALL fairturn_policy_set('q', '', '{\"wait\": 1}')": errors.InvalidArgument,
        "CALL fairturn_receive('q', 1, '{\"typse\": []}')": errors.InvalidArgument,
        "CALL fairturn_receive('q', 0, '{}')": errors.InvalidArgument,
        "CALL fairturn_receive('q', 1, '{\"permit\": 5}')": errors.PermitLost,
        "CALL fairturn_queue_create('', '{}')": errors.InvalidName,
        "CALL fairturn_discard('q', 'r', 1, '{}')": errors.InvalidArgument,
    }
    for text, error in wrong.items():
        with pytest.raises(pymysql.MySQLError) as raised:
            a.sql(text)
        meant = backend.translate(a.driver.code(raised.value) or "", str(raised.value))
        assert type(meant) is error, text
    a.sql("CALL fairturn_send('q', '1', '{\"key\": \"k\"}')")
    with pytest.raises(pymysql.MySQLError, match="k"):
        a.sql("CALL fairturn_send('q', '1', '{\"key\": \"k\"}')")


# --- sessions ---------------------------------------------------------------------------------


@pytest.mark.server
def test_your_session_may_be_as_strange_as_it_likes(
    opened: Callable[..., Client], queue: str
) -> None:
    strange = opened(
        charset="latin1",
        cursorclass=pymysql.cursors.SSDictCursor,
        autocommit=False,
        sql_mode="ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,ANSI",
    )
    strange.sql("SET SESSION group_concat_max_len = 8")
    body = bytes(range(256)) * 3
    name = "ключ'\\\"é"
    strange.put(queue, item(body, name, key=name, type=name, headers=b'{"\xc3\xa9": 1}'))
    strange.put(queue, *(item(body, f"{name}{i}", key=f"{name}{i}") for i in range(50)))
    rows = strange.take(queue, 100, types=[name])
    assert [(row.channel, row.body, row.key, row.type) for row in rows] == [
        (name, body, name, name)
    ]
    assert len(strange.take(queue, 100)) == 50
    strange.apply_verb(queue, Fail(f"{name}\n", 0, None, name), leases(rows), True, None)
    [failure] = strange.failures(queue, None, name, 5)
    assert (failure.key, failure.error, failure.reference) == (name, f"{name}\n", name)
    strange.driver.commit()


@pytest.mark.server
def test_a_body_beyond_the_packet_is_refused_and_the_connection_lives(
    a: Client, queue: str
) -> None:
    [(packet,)] = a.sql("SELECT @@max_allowed_packet")
    with pytest.raises(errors.BodyTooLarge, match="max_allowed_packet"):
        a.put(queue, item(b"x" * (packet // 2)))
    a.queue_set(queue, {"max_body": 10}, None)
    with pytest.raises(errors.BodyTooLarge, match="max_body"):
        a.put(queue, item(b"x" * 11))
    assert a.take(queue) == []


@pytest.mark.server
def test_the_trailer_says_where_the_round_stands(a: Client, queue: str) -> None:
    a.policy_set(queue, "é", policy(weight=3), None)
    a.put(queue, *[item(channel="é") for _ in range(3)])
    [row] = a.take(queue)
    assert (a.consumer.channel, a.consumer.credit) == ("é", 2)
    args = Receive(9, acks=[Lease(row.id, row.token), Lease(7, 7)])
    received = a.run(backend.receive(queue, args, a.consumer, None))
    assert (len(received.rows), received.lost) == (2, [7])
    a.put(queue, item(delay_us=60_000_000))
    retry = a.run(backend.receive(queue, Receive(1), a.consumer, None)).retry_after_us
    assert 0 < retry <= 30_000_000  # the lease's end


@pytest.mark.server
def test_the_async_driver(a: Client, queue: str) -> None:
    async def main() -> None:
        driver = asyncmy_driver.AsyncmyDriver(await asyncmy_driver.connect(**arguments()))
        items = [item(b"\x00\xff", f"é{i}") for i in range(20)]
        sent = await run_async(backend.send(queue, items, None), driver, True)
        assert [outcome for _, outcome in sent] == ["s"] * 20
        op = backend.receive(queue, Receive(20), ConsumerState(), None)
        received = await run_async(op, driver, True)
        assert {(row.channel, row.body) for row in received.rows} == {
            (f"é{i}", b"\x00\xff") for i in range(20)
        }
        with pytest.raises(Exception) as raised:
            await run_async(
                backend.apply_verb(queue, ACK, [Lease(10**9, 1)], True, None), driver, True
            )
        code = driver.code(raised.value)
        assert isinstance(backend.translate(code or "", str(raised.value)), errors.LeaseLost)
        await driver.execute("SELECT 1", ())
        await driver.close()
        with pytest.raises(Exception) as raised:
            await driver.execute("SELECT 1", ())
        assert driver.code(raised.value) == "gone"

    asyncio.run(main())


# --- the schema -------------------------------------------------------------------------------


@pytest.mark.server
def test_two_migrate_at_once_and_again() -> None:
    given = arguments("mysql_twice")
    applied: list[list[str]] = []

    def migrate() -> None:
        client = Client(connect(**given, timeout=30))
        applied.append(client.migrate())
        client.check()
        client.driver.close()

    threads = [threading.Thread(target=migrate) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [name for name, _ in backend.migrations()]
    assert sorted(applied) == [[], everything]
    client = Client(connect(**given))
    # As after a crash: nothing is stored before it is there.
    for table in ("migration", "installed", "routine"):
        client.sql(f"DELETE FROM fairturn_{table}")
    assert client.migrate() == everything
    client.check()
    client.driver.close()


@pytest.mark.server
def test_a_missing_schema_is_named() -> None:
    client = Client(connect(**arguments("mysql_nothing")))
    for call in (lambda: client.put("q"), lambda: client.take("q"), lambda: client.check()):
        with pytest.raises(errors.SchemaOutdated, match="fairturn migrate"):
            call()
    client.driver.close()


def test_scripts_are_split_at_their_delimiters() -> None:
    script = "-- hi\nSELECT 1; -- one\n\nSELECT ';';\nDELIMITER //\nBEGIN a; END //\nDELIMITER ;\n"
    assert statements(script) == ["SELECT 1", "SELECT ';'", "BEGIN a; END"]


@pytest.mark.parametrize("prefix", ["", "Jobs_", "a-", "1_", "x" * 40])
def test_a_prefix_is_a_name(prefix: str) -> None:
    with pytest.raises(errors.InvalidArgument):
        MysqlBackend(prefix)


def test_what_error_numbers_mean() -> None:
    for code in ("1213", "1205", "1020"):
        assert backend.translate(code, "") == "busy"
    for code in ("gone", "2006", "2013"):
        assert backend.translate(code, "") == "gone"
    assert backend.translate("1146", "(1146, \"Table 'x.users' doesn't exist\")") is None
    assert backend.translate("1064", "(1064, 'syntax')") is None
    lost = backend.translate("-20535", '(-20535, "7 it\'s")')
    assert isinstance(lost, errors.LeaseLost)
    assert (lost.ids, lost.queue) == ([7], "it's")


# --- counting and plans -----------------------------------------------------------------------


@pytest.mark.server
def test_totals_are_the_same_before_and_after_the_fold(a: Client, b: Client, queue: str) -> None:
    for minute in range(3):
        now = NOW + minute * 60 * SECOND
        a.put(queue, item(), item(), now=now)
        a.apply_verb(queue, ACK, leases(a.take(queue, 2, now)), True, now)
    before = a.stats(queue, NOW), a.history(queue, 0, None)
    a.own = False
    a.driver.begin(True)
    a.put(queue, now=NOW + 60 * SECOND)  # a tally that is not committed is not folded, nor lost
    b.maintain(1000, NOW + 120 * SECOND)
    a.driver.rollback()
    assert b.sql("SELECT COUNT(*) FROM fairturn_tally") == [(0,)]
    assert (b.stats(queue, NOW), b.history(queue, 0, None)) == before
    b.maintain(1000, NOW + 3 * 86_400 * SECOND)
    assert b.history(queue, 0, None) == []
    assert b.stats(queue, NOW) == before[0]


def reads(client: Client) -> int:
    rows = client.sql("SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%'")
    return sum(int(value) for _, value in rows)


@pytest.mark.server
def test_a_receive_reads_little_however_much_there_is(a: Client, queue: str) -> None:
    """In the session that saw the table empty, and without statistics of what came since."""
    a.take(queue, 10)
    a.put(queue, *(item(b"", f"c{i % 50}") for i in range(50)))
    before = reads(a)
    a.apply_verb(queue, ACK, leases(a.take(queue, 50)), True, None)
    small = reads(a) - before
    a.put(queue, *(item(b"", "big", delay_us=0 if i % 2 else 10**12) for i in range(30_000)))
    a.put(queue, *(item(b"", f"c{i % 50}") for i in range(1000)))
    a.policy_set(queue, "c1", policy(max_concurrency=5), None)  # so that the general path is taken
    a.take(queue, 50)
    for _ in range(3):
        before = reads(a)
        a.apply_verb(queue, ACK, leases(a.take(queue, 50)), True, None)
        assert reads(a) - before < 3 * small + 500
    a.policy_clear(queue, "c1", None)
    for _ in range(3):
        before = reads(a)
        a.apply_verb(queue, ACK, leases(a.take(queue, 50)), True, None)
        assert reads(a) - before < 2 * small + 200
