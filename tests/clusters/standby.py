"""A primary PostgreSQL and its streaming standby: real, private, throwaway.

    with Replicated() as pair:                  # asynchronous; Replicated(synchronous=True) is not
        pair.create_database("jobs")
        fairturn.connect(pair.url("jobs"))      # both hosts, read-write: the primary
        pair.cut()                              # the standby receives no more WAL
        pair.fail_over()                        # kill -9 of the primary, the standby is promoted
        pair.rejoin()                           # the old primary follows the new one (pg_rewind)

What was committed after cut() is lost by fail_over(), as in an asynchronous failover of production.
"""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from tests.server_process import find_binary, run_step, wait_until
from tests.servers import Postgres

# wal_log_hints: pg_rewind needs it. wal_keep_size: a standby that was cut off finds what it missed.
_SETTINGS = {
    "wal_level": "replica",
    "hot_standby": "on",
    "wal_log_hints": "on",
    "wal_keep_size": "512MB",
    "max_wal_senders": "5",
    "wal_retrieve_retry_interval": "100ms",
    "wal_receiver_status_interval": "1s",
}


class Node(Postgres):
    """One of the two servers. With a ``source`` it begins as a copy of it, and its standby."""

    lazy: ClassVar[dict[str, str]] = {}  # pg_rewind needs full_page_writes

    def __init__(
        self, name: str, source: Node | None = None, settings: dict[str, str] | None = None
    ) -> None:
        self.name = name  # application_name of its connection to the primary
        self.source = source
        # In memory: the pair outlives the kill of a server, and need not outlive the machine.
        super().__init__(settings={**_SETTINGS, **(settings or {})}, durable=False)

    def prepare(self) -> None:
        if self.source is None:
            super().prepare()
            # Into the file: pg_rewind starts a server for itself, and the copy needs them too.
            with open(self.directory / "data" / "postgresql.conf", "a") as file:
                file.writelines(f"{name} = '{value}'\n" for name, value in self.settings.items())
            return
        backup = find_binary("pg_basebackup", "postgresql")
        command = [backup, "-D", str(self.directory / "data"), "-d", self.follows(self.source)]
        command += ["-X", "stream", "--checkpoint=fast", "--no-sync", "--write-recovery-conf"]
        run_step(command, self.user, self.directory)

    def follows(self, primary: Node) -> str:
        """The connection string by which this node reads the primary's WAL."""
        return (
            f"host=127.0.0.1 port={primary.port} user=postgres dbname=postgres"
            f" application_name={self.name}"
        )

    def rewind(self, primary: Node) -> None:
        """Undo what the new primary does not have, and follow it. The server does not run."""
        rewind = find_binary("pg_rewind", "postgresql")
        command = [rewind, "-D", str(self.directory / "data"), "--no-sync"]
        command += ["--source-server", self.follows(primary), "--write-recovery-conf"]
        run_step(command, self.user, self.directory)

    def ask(self, query: str) -> Any:
        """The first value of the first row, or None."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=5) as own:
            answer = own.execute(query)  # type: ignore
            row = None if answer.description is None else answer.fetchone()
        return None if row is None else row[0]

    def configure(self, name: str, value: str) -> None:
        """Change a setting of the running server."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=5) as own:
            own.execute(f"ALTER SYSTEM SET {name} = '{value}'")  # type: ignore
            own.execute("SELECT pg_reload_conf()")


class Replicated:
    """The pair. ``primary`` and ``standby`` change places at fail_over(). ``settings`` are for both
    servers."""

    def __init__(
        self, *, synchronous: bool = False, settings: dict[str, str] | None = None
    ) -> None:
        self.synchronous = synchronous
        self.settings = settings
        self.nodes: list[Node] = []  # in the order of the URL

    @property
    def primary(self) -> Node:
        return self.nodes[self._first]

    @property
    def standby(self) -> Node:
        return self.nodes[1 - self._first]

    def start(self) -> None:
        self._first = 0
        try:
            self.nodes.append(Node("one", settings=self.settings))
            self.primary.start()
            self.nodes.append(Node("two", self.primary, self.settings))
            self.standby.start()
            self._replicate()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for node in reversed(self.nodes):
            node.stop()
        self.nodes.clear()

    def __enter__(self) -> Replicated:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- addresses ---

    def url(self, database: str, attributes: str = "read-write") -> str:
        """Both hosts; the client takes the one with these target_session_attrs."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://postgres@{hosts}/{quote(database)}?target_session_attrs={attributes}"

    def create_database(self, name: str) -> str:
        """A fresh database, on both servers; its URL."""
        self.primary.create_database(name)
        self.catch_up()
        return self.url(name)

    # --- replication ---

    def streams(self) -> bool:
        """Does the standby receive WAL?"""
        name = self.standby.name
        return bool(
            self.primary.ask(
                "SELECT count(*) FROM pg_stat_replication"
                f" WHERE application_name = '{name}' AND state = 'streaming'"
            )
        )

    def catch_up(self) -> None:
        """Wait until the standby has all that the primary has written until now."""
        end = self.primary.ask("SELECT pg_current_wal_flush_lsn()")
        wait_until(
            lambda: self.standby.ask(f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn"),
            "the standby catches up",
        )

    def cut(self) -> None:
        """The standby receives no more WAL. A synchronous primary then waits at every commit."""
        self.standby.configure("primary_conninfo", "")
        wait_until(lambda: not self.streams(), "the standby is cut off")

    def mend(self) -> None:
        """The opposite of cut(): the standby follows the primary again."""
        self.standby.configure("primary_conninfo", self.standby.follows(self.primary))
        wait_until(self.streams, "the standby follows the primary")

    def fail_over(self) -> None:
        """kill -9 of the primary, with all its processes. The standby becomes the primary."""
        self.primary.kill9()
        self.promote()

    def promote(self) -> None:
        """The standby becomes the primary, whatever the old one does."""
        self.standby.ask("SELECT pg_promote(true, 60)")
        self._first = 1 - self._first

    def rejoin(self) -> None:
        """The old primary, which was killed, becomes the standby of the new one."""
        # pg_rewind looks for the point where the histories part in the new primary's control file,
        # which names the new history only after a checkpoint.
        self.primary.ask("CHECKPOINT")
        self.standby.rewind(self.primary)
        self.standby.start()
        self._replicate()

    def _replicate(self) -> None:
        wait_until(self.streams, "the standby follows the primary")
        if self.synchronous:
            self.primary.configure("synchronous_standby_names", self.standby.name)
            wait_until(self._is_synchronous, "the standby is synchronous")

    def _is_synchronous(self) -> bool:
        return self.primary.ask("SELECT max(sync_state) FROM pg_stat_replication") == "sync"
