"""The sessions of docs/sql.md and sql-mysql.md, held by the real clients against real servers."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

import fairturn
from fairturn import Send
from tests import servers
from tests.docs.pages import ROOT, blocks
from tests.docs.sessions import answers, normal, steps

pytestmark = pytest.mark.server

PAGES = {"psql": ROOT / "docs" / "sql.md", "mariadb": ROOT / "docs" / "sql-mysql.md"}
URLS = {"psql": servers.postgres_url, "mariadb": servers.mysql_url}
SCHEMAS = {
    "psql": (
        ROOT / "src/fairturn/backends/postgres/schema/routines",
        r"CREATE OR REPLACE FUNCTION fairturn\.(\w+)\(",
    ),
    "mariadb": (
        ROOT / "src/fairturn/backends/mysql/schema/routines",
        r"CREATE PROCEDURE (fairturn_\w+)\(",
    ),
}


@pytest.mark.parametrize("client", list(URLS))
def test_the_session_is_what_the_client_shows(client: str, tmp_path: Path) -> None:
    url = URLS[client]("sql_page")
    with fairturn.connect(url) as db:
        db.migrate()
    number_tokens(client, url)
    sessions = [
        (block, *step)
        for block in blocks(PAGES[client])
        if block.language == "sql"
        for step in steps(block)
    ]
    assert len(sessions) > 10
    real = answers(client, url, [statement for _, statement, _ in sessions], tmp_path)
    for (block, statement, shown), answer in zip(sessions, real, strict=True):
        assert normal(answer) == normal(shown), (
            f"{block.place}\n{statement}\nthe page shows:\n{shown}\nthe client says:\n{answer}"
        )
    check_grants(client, url)


def number_tokens(client: str, url: str) -> None:
    """Tokens that are the same in each run: the page shows them, and types them in again."""
    pseudo = "* 2860486313000001 + 1234567890123457) % 9007199254740992"
    if client == "psql":
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("CREATE SEQUENCE public.page_token")
            admin.execute("GRANT USAGE ON SEQUENCE public.page_token TO PUBLIC")
            admin.execute(
                "CREATE OR REPLACE FUNCTION fairturn.new_token() RETURNS bigint LANGUAGE sql AS "
                f"$$ SELECT (nextval('public.page_token') {pseudo} $$"
            )
        return
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname or "", port=parts.port or 0, user="root", database=parts.path[1:]
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE SEQUENCE page_token NOCACHE")
        cursor.execute("DROP PROCEDURE fairturn_new_token_")
        cursor.execute(
            "CREATE PROCEDURE fairturn_new_token_(OUT p_token BIGINT) "
            f"SET p_token = (NEXT VALUE FOR page_token {pseudo}"
        )


def check_grants(client: str, url: str) -> None:
    """The roles that the page made can do their work through the library too, and no more."""
    if client == "psql":
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("ALTER ROLE shop_sender LOGIN")
            admin.execute("ALTER ROLE shop_worker LOGIN")
        sender, worker = (url.replace("postgres@", f"shop_{who}@") for who in ("sender", "worker"))
    else:
        sender = worker = url.replace("root@", "shop_app@")
        parts = urlsplit(url)
        for user, allowed in (("shop_sender", "send"), ("shop_worker", "receive")):
            connection = pymysql.connect(
                host=parts.hostname or "",
                port=parts.port or 0,
                user=user,
                database=parts.path[1:],
                autocommit=True,
            )
            calls = {
                "send": "CALL fairturn_send('orders', '1', NULL)",
                "receive": "CALL fairturn_receive('orders', 1, NULL)",
            }
            with connection, connection.cursor() as cursor:
                cursor.execute(calls.pop(allowed))
                assert len(cursor.fetchall()) == 1
                while cursor.nextset():
                    pass
                # Not by class: where Django has imported MySQLdb, pymysql.err is a second copy.
                with pytest.raises(Exception, match="command denied"):
                    cursor.execute(calls.popitem()[1])
    with fairturn.connect(sender) as db:
        db.queue("orders").send(1, key="k")
        db.queue("orders").send(2, key="k", on_conflict="replace")
        db.queue("orders").send_many([Send(n, key=f"k{n}") for n in range(3)])
        db.queue("orders").send_many(range(2000))
        db.queue("orders").send("later", delay=600)
        list(db.events(after="", timeout=0))  # raises without the right to read them
    with fairturn.connect(worker) as db:
        queue = db.queue("orders")
        batch = queue.receive(2000)
        batch.pop().fail("boom", delay=60)
        batch.pop().kill("boom")
        queue.ack(batch)
        assert queue.receive(10) != []
        assert queue.move() == 0
        assert queue.promote(3600) == 1
        db.schedule("nightly").set("orders", at=0)
        assert db.run_schedules().sent == 1
        assert db.schedule("nightly").remove()
        if client == "psql":
            with pytest.raises(fairturn.DatabaseError, match="may not use Fairturn"):
                queue.drop()


@pytest.mark.parametrize("client", list(URLS))
def test_every_sql_block_is_a_session(client: str) -> None:
    for block in blocks(PAGES[client]):
        assert block.language != "sql" or block.tags == (client,), block.place


@pytest.mark.parametrize("client", list(SCHEMAS))
def test_the_tables_name_functions_that_exist_with_their_arguments(client: str) -> None:
    directory, made = SCHEMAS[client]
    text = "\n".join(path.read_text("utf-8") for path in sorted(directory.glob("*.sql")))
    page = PAGES[client].read_text("utf-8")
    rows = re.findall(r"^\| `([\w.]+)\(([^`]*)\)` \|", page, flags=re.MULTILINE)
    assert len(rows) > 20
    for name, shown in rows:
        wanted = name.removeprefix("fairturn.")
        found = re.search(
            made.replace(r"(\w+)", wanted).replace(r"(fairturn_\w+)", wanted)
            + r"(.*?)\)\s*\n?(?:RETURNS|BEGIN|LANGUAGE|put:)",
            text,
            flags=re.DOTALL,
        )
        assert found, f"{name} does not exist"
        given = found[1].split("OUT ")[0] if client == "psql" else found[1]
        real = re.findall(r"\bp_(\w+) ", given)
        named = [word for word in re.split(r"[\s,\[\]]+", shown) if word]
        assert named == [word for word in real if word != "now"], f"{name}: {named} != {real}"
