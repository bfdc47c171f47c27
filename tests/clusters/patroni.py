"""A Patroni cluster as people run it: three PostgreSQL servers, etcd, HAProxy. Real and private.

    with Patroni(synchronous=True) as cluster:
        cluster.create_database("jobs")
        fairturn.connect(cluster.url("jobs"))    # through HAProxy, which follows the leader
        cluster.switchover()                     # the leader hands over, as for an upgrade
        cluster.kill9_leader()                   # Patroni and PostgreSQL; another one is promoted
        cluster.restart_dead()                   # the old leader comes back as a standby

Needs Debian's packages patroni, etcd-server and haproxy. The times are short, so that a failover
takes seconds: Patroni's own defaults are a ttl of 30 and a loop of 10 seconds.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from tests.server_process import Server, descendants, find_binary, free_port, run_step, wait_until

NODES = ("one", "two", "three")
TTL, LOOP, RETRY = 8, 1, 3  # seconds: the leader's lock, Patroni's loop, its patience with etcd
BELOW = Path(__file__).resolve().with_name("below.py")
_CLEAN = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]


class Etcd(Server):
    """Where Patroni keeps who is the leader."""

    kind = "etcd"

    def prepare(self) -> None:
        find_binary("etcd", "etcd-server")
        self._peers = free_port()

    def command(self) -> list[str]:
        clients = f"http://127.0.0.1:{self.port}"
        peers = f"http://127.0.0.1:{self._peers}"
        command = [*_CLEAN, find_binary("etcd", "etcd-server"), "--name", "etcd"]
        command += ["--data-dir", str(self.directory / "data"), "--log-level", "warn"]
        command += ["--listen-client-urls", clients, "--advertise-client-urls", clients]
        command += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        return [*command, "--initial-cluster", f"etcd={peers}", "--logger", "zap"]

    def ready(self) -> bool:
        return _get(f"http://127.0.0.1:{self.port}/health")[0] == 200


class Node(Server):
    """One PostgreSQL and its Patroni. ``kill9()`` kills both at once."""

    kind = "patroni"
    death_signal = signal.SIGTERM  # of below.py, which then ends PostgreSQL too
    lazy: ClassVar[dict[str, str]] = {}

    def __init__(self, name: str, etcd: Etcd, *, synchronous: bool) -> None:
        self.name = name
        self.etcd = etcd
        self.synchronous = synchronous
        super().__init__(durable=False)

    def prepare(self) -> None:
        find_binary("patroni", "patroni")
        find_binary("initdb", "postgresql")
        self.rest = free_port()

    def command(self) -> list[str]:
        config = self.directory / "patroni.json"  # YAML reads JSON
        config.write_text(json.dumps(self._config()))
        os.chmod(config, 0o644)
        program = [*_CLEAN, find_binary("patroni", "patroni"), str(config)]
        # A copy, run by Patroni's own Python: the user may not read ours.
        below = self.directory / "below.py"
        below.write_text(BELOW.read_text())
        os.chmod(below, 0o644)
        return ["/usr/bin/python3", "-I", "-S", str(below), *program]

    def _config(self) -> dict[str, Any]:
        return {
            "scope": "fairturn",
            "name": self.name,
            "restapi": {
                "listen": f"127.0.0.1:{self.rest}",
                "connect_address": f"127.0.0.1:{self.rest}",
            },
            "etcd3": {"hosts": f"127.0.0.1:{self.etcd.port}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL,
                    "loop_wait": LOOP,
                    "retry_timeout": RETRY,
                    "maximum_lag_on_failover": 1 << 30,
                    "synchronous_mode": self.synchronous,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "parameters": {"max_connections": 200, "wal_keep_size": "512MB"},
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}, "no-sync"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.directory / "data"),
                "bin_dir": str(Path(find_binary("pg_rewind", "postgresql")).resolve().parent),
                "pgpass": str(self.directory / "pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "postgres"},
                },
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
                "basebackup": ["no-sync", {"checkpoint": "fast"}],
                "parameters": {
                    "unix_socket_directories": str(self.directory),
                    "wal_retrieve_retry_interval": "200ms",
                    "wal_log_hints": "on",
                },
            },
        }

    def ready(self) -> bool:
        return self.status("health") == 200

    def status(self, what: str) -> int:
        """The answer of Patroni's health check, 0 if there is none."""
        return _get(f"http://127.0.0.1:{self.rest}/{what}")[0]

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(database)}"


class Haproxy(Server):
    """Forwards to the server whose Patroni says that it is the primary."""

    kind = "haproxy"

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        super().__init__(durable=False)

    def command(self) -> list[str]:
        lines = [
            "global",
            "  maxconn 500",
            f"  stats socket {self.directory / 'stats'}",
            "defaults",
            "  mode tcp",
            "  timeout connect 2s",
            "  timeout check 2s",
            "  timeout client 30m",
            "  timeout server 30m",
            "listen primary",
            f"  bind 127.0.0.1:{self.port}",
            "  option httpchk GET /primary",
            "  http-check expect status 200",
            "  default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions",
        ]
        lines += [
            f"  server {node.name} 127.0.0.1:{node.port} check port {node.rest}"
            for node in self.nodes
        ]
        config = self.directory / "haproxy.cfg"
        config.write_text("\n".join(lines) + "\n")
        os.chmod(config, 0o644)
        return [*_CLEAN, find_binary("haproxy", "haproxy"), "-db", "-f", str(config)]

    def prepare(self) -> None:
        run_step([find_binary("haproxy", "haproxy"), "-v"], self.user, self.directory)

    def ready(self) -> bool:
        """It forwards to one server. At its start it takes all of them for good, until the first
        checks have failed."""
        return self.accepts() and self._up() == 1

    def _up(self) -> int:
        asking = socket.socket(socket.AF_UNIX)
        with asking, contextlib.suppress(OSError), asking.makefile("rw") as talk:
            asking.connect(str(self.directory / "stats"))
            talk.write("show stat\n")
            talk.flush()
            states = list(csv.DictReader(talk))
            return sum(row["svname"] in NODES and row["status"].startswith("UP") for row in states)
        return 0


def _get(url: str) -> tuple[int, Any]:
    return _ask(urllib.request.Request(url))


def _ask(request: urllib.request.Request) -> tuple[int, Any]:
    """The status and the JSON of the answer; (0, None) if there is none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return answer.status, _json(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _json(error.read())
    except OSError:
        return 0, None


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


class Patroni:
    """The cluster. Its servers are stopped in the opposite order of their start."""

    def __init__(self, *, synchronous: bool = False) -> None:
        self.synchronous = synchronous
        self.nodes: list[Node] = []
        self._servers: list[Server] = []
        self.dead: list[Node] = []

    def start(self) -> None:
        try:
            etcd = self._add(Etcd(durable=False))
            etcd.start()
            for name in NODES:
                self.nodes.append(self._add(Node(name, etcd, synchronous=self.synchronous)))
            self.nodes[0].start()
            wait_until(lambda: self.leader() is not None, "the first node leads")
            for node in self.nodes[1:]:
                node.start()
            self.haproxy = self._add(Haproxy(self.nodes))
            self.haproxy.start()
            self.wait_whole()
        except BaseException:
            for server in self._servers:
                print(f"--- {server.directory.name}\n{server.log_tail()}")
            self.stop()
            raise

    def _add(self, server: Any) -> Any:
        self._servers.append(server)
        return server

    def stop(self) -> None:
        for server in reversed(self._servers):
            server.stop()
        self._servers.clear()
        self.nodes.clear()

    def __enter__(self) -> Patroni:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- addresses ---

    def url(self, database: str) -> str:
        """Through HAProxy, which has no idea of PostgreSQL."""
        return f"postgresql://postgres@127.0.0.1:{self.haproxy.port}/{quote(database)}"

    def direct_url(self, database: str) -> str:
        """To the three servers; the driver looks for the primary."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://postgres@{hosts}/{quote(database)}?target_session_attrs=read-write"

    def create_database(self, name: str) -> str:
        """A fresh database; its URL through HAProxy."""
        import psycopg

        with psycopg.connect(self.direct_url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore
        return self.url(name)

    # --- the state of the cluster ---

    def leader(self) -> Node | None:
        """The node that may write, if there is one now."""
        leading = [node for node in self._live() if node.status("primary") == 200]
        return leading[0] if len(leading) == 1 else None

    def _live(self) -> list[Node]:
        return [node for node in self.nodes if node not in self.dead]

    def wait_leader(self, *, other_than: Node) -> Node:
        wait_until(lambda: self.leader() not in (None, other_than), "another node leads")
        leader = self.leader()
        assert leader is not None
        return leader

    def wait_whole(self) -> None:
        """Until there is a leader, all others stream from it, and, if the cluster is synchronous,
        one of them is the synchronous standby."""
        wait_until(self.whole, "the cluster is whole", 90)

    def whole(self) -> bool:
        members = self._members()
        followers = [member for member in members if member["role"] != "leader"]
        return (
            len(followers) == len(self.nodes) - 1
            and len(members) == len(self.nodes)
            and all(_follows(member) for member in followers)
            and len({member.get("timeline") for member in members}) == 1
            and (not self.synchronous or any(m["role"] == "sync_standby" for m in followers))
        )

    def _members(self) -> list[dict[str, Any]]:
        for node in self._live():
            status, answer = _get(f"http://127.0.0.1:{node.rest}/cluster")
            if status == 200:
                return answer["members"]
        return []

    # --- faults ---

    def switchover(self) -> Node:
        """The leader stops and another one takes over, with all its commits. The new leader."""
        old = self._leads()
        body = json.dumps({"leader": old.name}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{old.rest}/switchover",
            body,
            {"Content-Type": "application/json"},
        )
        status, answer = _ask(request)
        assert status == 200, f"the switchover failed: {status} {answer}"
        return self.wait_leader(other_than=old)

    def kill9_leader(self) -> Node:
        """kill -9 of the leader's Patroni and PostgreSQL, all processes at once. The new leader."""
        old = self._leads()
        old.kill9()
        self.dead.append(old)
        return self.wait_leader(other_than=old)

    def hold_back(self) -> None:
        """The leader sends no more WAL: the standbys fall behind, until it is killed. What it
        commits meanwhile is lost then, unless the cluster is synchronous."""
        for pid in descendants(self._leads().pid):
            with contextlib.suppress(OSError):
                if b"walsender" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGSTOP)

    def restart_dead(self) -> None:
        """Start what was killed; it comes back as a standby (pg_rewind)."""
        while self.dead:
            node = self.dead.pop()
            node.start()
        self.wait_whole()

    def _leads(self) -> Node:
        wait_until(lambda: self.leader() is not None, "a node leads")
        leader = self.leader()
        assert leader is not None
        return leader

    def logs(self) -> str:
        """The ends of all logs, for a test that fails."""
        return "\n".join(f"--- {each.directory.name}\n{each.log_tail()}" for each in self._servers)


def _follows(member: dict[str, Any]) -> bool:
    return member.get("state") in ("running", "streaming") and member.get("lag") == 0
