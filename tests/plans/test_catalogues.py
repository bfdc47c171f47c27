"""The catalogues are closed: every statement in them is used, and nothing else is ever sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import fairturn
from fairturn.backends.catalogue import parse
from fairturn.backends.mysql import MysqlBackend
from fairturn.backends.mysql.schema import statements as mysql_statements
from fairturn.backends.postgres import PostgresBackend
from fairturn.backends.postgres.fragments import FRAGMENTS
from fairturn.backends.sqlite import SqliteBackend
from fairturn.backends.sqlite.common import SQL
from fairturn.backends.steps import Copy
from fairturn.backends.verbs import Verb
from fairturn.drivers.mysql.pymysql import PyMysqlDriver
from fairturn.drivers.psycopg import PsycopgDriver
from fairturn.drivers.sqlite import SqliteDriver
from tests import servers

SOURCE = Path(fairturn.__file__).parent / "backends"
BACKENDS = ("sqlite", "postgresql", "mysql")
FOLDERS = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "mysql"}
PLACEHOLDERS = {"sqlite": "?{}", "postgresql": "${}", "mysql": "%s"}

# Names as bad as they come; none of them may show up in a statement's text.
MARK = "zQ7"
NASTY = (
    f"{MARK}'; DROP TABLE x; --",
    f'{MARK}"%s$1:name?1{{row}}',
    f"{MARK}\\' \\ ` ％ \u202e",
    f"{MARK}%",
)


def catalogue(backend: str) -> dict[str, str]:
    if backend == "sqlite":
        return SQL.statements  # several files, read as one
    path = SOURCE / FOLDERS[backend] / "statements.sql"
    own = FRAGMENTS if backend == "postgresql" else None
    return parse(path.read_text("utf-8"), PLACEHOLDERS[backend], own)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_statement_is_used(backend: str) -> None:
    folder = SOURCE / FOLDERS[backend]
    code = "\n".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    used = set(re.findall(r"""(?i:sql)\.(\w+)|(?:statements|sql)\[["'](\w+)["']\]""", code))
    names = {name for pair in used for name in pair if name}
    if backend == "postgresql":  # apply_verb sends the statement that has the verb's name
        names |= {verb.name for verb in get_args(Verb)}
    unused = set(catalogue(backend)) - names
    assert not unused, f"nobody sends {sorted(unused)}"


Allowed = Callable[[str], bool]


def allowed_sqlite() -> Allowed:
    texts = SqliteBackend().statements() | {"BEGIN IMMEDIATE", "BEGIN", "COMMIT", "ROLLBACK"}
    return lambda text: text in texts


def allowed_postgres() -> Allowed:
    backend = PostgresBackend()
    texts = {*backend.statements.values(), *(text for _, text in backend.migrations())}
    copy = re.compile(r"COPY fairturn\.message \([a-z_, ]+\) FROM STDIN \(FORMAT binary\)")
    return lambda text: text in texts or text == "BEGIN" or copy.fullmatch(text) is not None


def allowed_mysql() -> Allowed:
    backend = MysqlBackend()
    texts = set(catalogue("mysql").values())
    texts |= {s for _, script in backend.migrations() for s in mysql_statements(script)}
    texts |= {"SELECT @@session.max_allowed_packet"}
    call = re.compile(r"CALL fairturn_[a-z_]+\((?:%s(?:, %s)*)?\)")
    # A statement of the catalogue with a list of literals behind it, where every name and payload
    # is hexadecimal, and perhaps another piece of the catalogue.
    value = r"(?:NULL|-?\d+|X'[0-9a-f]*'|'[a-z]')"
    row = rf"\({value}(?:,{value})*\)"
    pieces = "|".join(sorted(map(re.escape, catalogue("mysql").values()), key=len, reverse=True))
    composed = re.compile(rf"(?:{pieces}) {row}(?:,{row})*(?: (?:{pieces})(?: \d+)?)?")

    def allowed(text: str) -> bool:
        return (
            text in texts
            or call.fullmatch(text) is not None
            or composed.fullmatch(text) is not None
        )

    return allowed


ALLOWED = {"sqlite": allowed_sqlite, "postgresql": allowed_postgres, "mysql": allowed_mysql}
DRIVERS: dict[str, type[Any]] = {
    "sqlite": SqliteDriver,
    "postgresql": PsycopgDriver,
    "mysql": PyMysqlDriver,
}


@pytest.fixture
def texts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every text that the driver of this backend is given."""
    driver = DRIVERS[request.getfixturevalue("backend")]
    found: set[str] = set()
    execute, copy = driver.execute, getattr(driver, "copy", None)

    def watched(self: Any, text: str, params: Any) -> Any:
        found.add(text)
        return execute(self, text, params)

    def watched_copy(self: Any, given: Copy) -> Any:
        found.add(given.text)
        return copy(self, given)

    monkeypatch.setattr(driver, "execute", watched)
    if copy is not None:
        monkeypatch.setattr(driver, "copy", watched_copy)
    return found


def url(backend: str, directory: Path) -> str:
    if backend == "sqlite":
        return f"sqlite:///{directory / 'closed.db'}"
    if backend == "postgresql":
        return servers.postgres_url("closed")
    return servers.mysql_url("closed")


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_else_is_sent(backend: str, texts: set[str], tmp_path: Path) -> None:
    with fairturn.connect(url(backend, tmp_path), pool_size=2) as db:
        db.migrate()
        everything(db)
    assert len(texts) > 30
    allowed = ALLOWED[backend]()
    strangers = [text for text in texts if not allowed(text)]
    assert not strangers, f"not in the catalogue: {strangers[:5]}"
    marked = [text for text in texts if MARK in text]
    assert not marked, f"a name is part of a statement: {marked[:3]}"


def everything(db: fairturn.Database) -> None:
    """Most of what the facade can do, with names nobody should use."""
    name, channel, key, type_ = NASTY
    dead = db.queue(name + "dead")
    dead.create()
    queue = db.queue(name)
    queue.create(lease=30, max_attempts=3, dead_letter=dead.name)
    queue.set(backoff=1, retention=60)
    queue.channel(channel).set_policy(max_concurrency=5, rate="100/s", burst=100, weight=2)
    queue.channel("line" + MARK).set_policy(ordered=True, max_size=1000)
    queue.set_limit(max_concurrency=500)
    headers = {key: type_}
    for on_conflict in ("ignore", "replace"):
        queue.send(key, channel=channel, key=key, on_conflict=on_conflict, type=type_)
    with pytest.raises(fairturn.DuplicateKey):
        queue.send(key, key=key)
    queue.send(name.encode(), channel="line" + MARK, headers=headers, delay=0.5)
    queue.send_many([fairturn.Send(i, channel=channel, priority=i % 3) for i in range(50)])
    queue.send_many([fairturn.Send(i, key=f"{key}{i}", on_conflict="replace") for i in range(9)])
    queue.send_many([fairturn.Send(i, key=f"{key}{i}", on_conflict="replace") for i in range(9)])
    queue.send_many([fairturn.Send(i, key=f"{key}{i}", on_conflict="ignore") for i in range(5, 12)])
    queue.send_many([b"x"] * 1500)
    for _ in range(2):
        queue.send(b"z", once=key)
        queue.send_many([fairturn.Send(b"z", once=f"{key}{i}") for i in range(3)])
        queue.remember(key, {MARK: type_}, keep=60)
    assert queue.recall(key) == {MARK: type_}
    permit = db.permit(name, ttl=30)
    first, *rest = queue.receive(20, permit=permit)
    permit.extend()
    first.extend(60)
    queue.lease(first.id, first.token).extend(60, exact=True)
    rest[0].complete({MARK: key})
    rest[1].defer(10, memo={MARK: key})
    rest[2].fail(key, delay=5, details={MARK: type_}, reference=key)
    rest[3].kill(key)
    rest[4].release()
    first.ack()
    with pytest.raises(fairturn.LeaseLost):
        first.ack()
    queue.ack(rest[5:])
    more = queue.receive(5, types=[type_, "other"], version=0, min_priority=-5, max_bytes=10_000)
    queue.receive(5, ack=more)
    for _ in range(3):
        queue.receive(2)
    waiting = queue.send(b"y", delay=100)
    queue.reschedule(id=waiting, delay=200, priority=3)
    queue.get(id=waiting)
    queue.promote(300, limit=1)
    queue.explain(id=waiting)
    queue.cancel(id=waiting)
    queue.cancel(key=f"{key}3")
    queue.peek(5)
    queue.peek(5, state="dead")
    queue.channels()
    queue.stats()
    queue.failures()
    db.trace(key)
    db.stats()
    db.queues()
    queue.settings()
    dead.move()
    queue.move(dead.name, limit=5)
    dead.redrive(to=queue.name)
    queue.redrive()
    queue.discard(state="dead")
    queue.pause()
    queue.receive()
    queue.resume()
    db.maintain()
    permit.close()
    schedule = db.schedule(name)
    for body in (key, type_):
        schedule.set(queue.name, body, every=60, channel=channel, headers=headers, owner=key)
    schedule.pause()
    schedule.resume()
    schedule.trigger()
    for n, policy in enumerate(("once", "skip")):
        db.schedule(f"{name}{n}").set(queue.name, key, at=n, missed=policy, type=type_)
    db.schedule(f"{name}lost").set(dead.name, at=1)
    db.schedules()
    dead.drop()
    assert len(db.run_schedules().errors) == 1
    assert all(db.schedule(one.name).remove() for one in db.schedules())
    queue.channel(channel).clear_policy()
    queue.purge(reset=True)
    db.maintain()
    queue.drop()
