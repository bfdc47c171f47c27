"""Real, private, throwaway database servers for the tests.

    from tests import servers
    servers.postgres_url()      # postgresql://…, a fresh database of this test process
    servers.mysql_url()         # mysql://…
    servers.pgbouncer_url()     # postgresql://…, through PgBouncer in transaction mode

A shared server is started on first use, once per test session: the workers of ``pytest -n`` find
it through a file in a directory that is named after their controller. For fault tests start a
server of your own: ``with servers.Postgres() as server: server.kill9(); server.start()``.
Those have every durable default; the shared ones do not wait for the disk (what they have written
survives their own death all the same, only not the machine's).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from tests.keeper import alive
from tests.server_process import (
    MissingBinary,
    Server,
    check_permitted,
    find_binary,
    free_port,
    memory_disk,
    run_step,
    wait_until,
)

__all__ = ["MissingBinary", "Server", "find_binary", "free_port", "memory_disk"]


class Postgres(Server):
    """PostgreSQL with its defaults (fsync and synchronous_commit on)."""

    kind = "postgresql"
    stop_signal = signal.SIGQUIT  # immediate: the data is thrown away
    death_signal = signal.SIGQUIT
    lazy: ClassVar[dict[str, str]] = {"full_page_writes": "off"}  # fsync is free on a memory disk

    def prepare(self) -> None:
        initdb = find_binary("initdb", "postgresql")
        find_binary("postgres", "postgresql")
        command = [initdb, "-D", str(self.directory / "data"), "-U", "postgres", "-A", "trust"]
        run_step([*command, "-E", "UTF8", "--locale=C", "--no-sync"], self.user, self.directory)

    def command(self) -> list[str]:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "max_connections": "200",
            "logging_collector": "off",
            "log_min_messages": "warning",
            "log_min_error_statement": "panic",
            **self.settings,
        }
        command = [find_binary("postgres", "postgresql"), "-D", str(self.directory / "data")]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    def ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(database)}"

    def create_database(self, name: str) -> str:
        """A fresh database; its URL."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore
            connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore
        return self.url(name)


class Mysql(Server):
    """MariaDB with its defaults (innodb_flush_log_at_trx_commit=1)."""

    kind = "mysql"
    lazy: ClassVar[dict[str, str]] = {"debug-no-sync": "ON"}

    def _user(self) -> str | None:
        return None  # it runs as root with --user=root

    def prepare(self) -> None:
        install = find_binary("mariadb-install-db", "mariadb-server")
        find_binary("mariadbd", "mariadb-server")
        command = [install, "--no-defaults", f"--datadir={self.directory / 'data'}"]
        command += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        command += ["--skip-name-resolve", *self._root()]
        run_step(command, self.user, self.directory)

    def _root(self) -> list[str]:
        return ["--user=root"] if os.geteuid() == 0 else []

    def command(self) -> list[str]:
        settings = {
            "datadir": str(self.directory / "data"),
            "tmpdir": str(self.directory),  # another server that starts would empty a shared one
            "port": str(self.port),
            "bind-address": "127.0.0.1",
            "socket": str(self.directory / "socket"),
            "pid-file": str(self.directory / "pid"),
            "max-connections": "200",
            "performance-schema": "OFF",
            "innodb-print-all-deadlocks": "ON",
            **self.settings,
        }
        command = [find_binary("mariadbd", "mariadb-server"), "--no-defaults"]
        command += [f"--{name}={value}" for name, value in settings.items()]
        return [*command, "--skip-name-resolve", *self._root()]

    def ready(self) -> bool:
        import pymysql

        try:
            self.connect("mysql").close()
        except pymysql.MySQLError:
            return False
        return True

    def connect(self, database: str) -> Any:
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, connect_timeout=2
        )

    def url(self, database: str) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/{quote(database)}"

    def create_database(self, name: str) -> str:
        """A fresh database; its URL."""
        connection = self.connect("mysql")
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")
                cursor.execute(f"CREATE DATABASE `{name}`")
        finally:
            connection.close()
        return self.url(name)


class Pgbouncer(Server):
    """PgBouncer in transaction mode in front of a PostgreSQL server."""

    kind = "pgbouncer"
    stop_signal = signal.SIGQUIT

    def __init__(self, upstream: int, *, watch: int | None = None) -> None:
        self.upstream = upstream  # PostgreSQL's port
        super().__init__(watch=watch)

    def command(self) -> list[str]:
        (self.directory / "users.txt").write_text('"postgres" ""\n')
        (self.directory / "pgbouncer.ini").write_text(
            "[databases]\n"
            f"* = host=127.0.0.1 port={self.upstream} user=postgres\n"
            "[pgbouncer]\n"
            "listen_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\n"
            "unix_socket_dir =\n"
            "auth_type = trust\n"
            f"auth_file = {self.directory / 'users.txt'}\n"
            "pool_mode = transaction\n"
            "max_client_conn = 200\n"
            "default_pool_size = 5\n"
            "server_reset_query_always = 0\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        return [find_binary("pgbouncer", "pgbouncer"), str(self.directory / "pgbouncer.ini")]

    def ready(self) -> bool:
        return self.accepts()

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(database)}"


# --- shared by the session ----------------------------------------------------------------------

KINDS: dict[str, type[Server]] = {"postgresql": Postgres, "mysql": Mysql}
_lock = threading.Lock()
_known: dict[str, dict[str, Any]] = {}
_databases: set[tuple[str, str]] = set()


def worker() -> str:
    """The name of this xdist worker, or "main"."""
    return os.environ.get("PYTEST_XDIST_WORKER", "main")


def session_pid() -> int:
    """The process that is the session: xdist's controller, or this one."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def session_directory() -> Path:
    pid = session_pid()
    # With its start time, so that a later process with the same id is another session.
    born = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    return Path(tempfile.gettempdir()) / f"fairturn-session-{os.getuid()}-{pid}-{born}"


def _sweep_old_sessions() -> None:
    """Remove what sessions that were killed could not remove (their servers are gone)."""
    for path in Path(tempfile.gettempdir()).glob(f"fairturn-session-{os.getuid()}-*-*"):
        if not alive(int(path.name.split("-")[3])):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _session_lock() -> Iterator[Path]:
    directory = session_directory()
    if not directory.exists():
        _sweep_old_sessions()
    directory.mkdir(mode=0o711, exist_ok=True)
    with _lock, open(directory / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield directory


def shared(kind: str) -> dict[str, Any]:
    """{"port", "pid", "keeper"} of the session's server of this kind, started if need be."""
    check_permitted()
    if kind in _known:
        return _known[kind]
    upstream = shared("postgresql")["port"] if kind == "pgbouncer" else 0
    with _session_lock() as directory:
        file = directory / f"{kind}.json"
        if not file.exists():
            watch = session_pid()
            server = (
                Pgbouncer(upstream, watch=watch)
                if kind == "pgbouncer"
                else KINDS[kind](watch=watch, durable=False)
            )
            server.start()
            keeper = server._keeper
            assert keeper is not None
            assert keeper.stdout is not None
            keeper.stdout.close()
            server._keeper = None  # from now on it belongs to the session
            keeper.returncode = 0  # and Popen must not warn about it
            found = {"port": server.port, "pid": server.pid, "keeper": keeper.pid}
            file.write_text(json.dumps(found | {"directory": str(server.directory)}))
        _known[kind] = json.loads(file.read_text())
    return _known[kind]


def stop_shared() -> None:
    """Called by the session's process at its end."""
    with _session_lock() as directory:
        for file in directory.glob("*.json"):
            keeper = json.loads(file.read_text())["keeper"]
            with contextlib.suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGTERM)
            wait_until(lambda pid=keeper: not alive(pid), "a keeper ends", 30)
        _known.clear()
        shutil.rmtree(directory, ignore_errors=True)


def _server(kind: str) -> Any:
    """A handle on the session's server, without owning it."""
    handle = object.__new__(KINDS[kind])
    handle.port = shared(kind)["port"]
    return handle


def _database(kind: str, name: str | None) -> str:
    name = f"fl_{worker()}" if name is None else f"fl_{worker()}_{name}"
    server = _server(kind)
    with _lock:
        if (kind, name) not in _databases:
            server.create_database(name)
            _databases.add((kind, name))
    return name


def postgres_url(name: str | None = None) -> str:
    """This worker's database on the session's PostgreSQL (or another, by name); made empty."""
    return _server("postgresql").url(_database("postgresql", name))


def mysql_url(name: str | None = None) -> str:
    """This worker's database on the session's MariaDB (or another, by name); made empty."""
    return _server("mysql").url(_database("mysql", name))


def pgbouncer_url(name: str | None = None) -> str:
    """The database of postgres_url(), through PgBouncer in transaction mode."""
    database = _database("postgresql", name)
    return f"postgresql://postgres@127.0.0.1:{shared('pgbouncer')['port']}/{quote(database)}"
