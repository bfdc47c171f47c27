"""A private MariaDB Galera cluster on loopback: every node takes writes.

    with Galera() as cluster:
        cluster.create_database("jobs")
        cluster.url(0, "jobs"), cluster.url(1, "jobs"), cluster.urls("jobs")
        cluster.kill9(1); cluster.start(1)      # returns when the node is synced again

A killed node comes back with a full copy of another node's data (rsync). Replication is synchronous
in that a commit is certified by all nodes before it returns, but another node applies it a little
later.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from tests.server_process import (
    MissingBinary,
    Server,
    find_binary,
    free_port,
    run_step,
    wait_until,
)
from tests.servers import Mysql

PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so")
SYNCED = "4"  # wsrep_local_state


def provider() -> str:
    """The library that makes MariaDB a node of a cluster."""
    for path in PROVIDERS:
        if Path(path).exists():
            return path
    raise MissingBinary("libgalera_smm.so", "galera-4")


class Node(Mysql):
    """One node. It is ready when it is synced with the cluster."""

    kind = "galera"

    def __init__(self, number: int, template: Node | None, settings: dict[str, str]) -> None:
        self.number = number
        self.template = template
        self.gcomm = free_port()
        self.ist = free_port()
        self.sst = free_port()
        self.members: list[str] = []  # the gcomm addresses of all nodes; none: a new cluster
        provider()
        find_binary("rsync", "rsync")
        super().__init__(durable=False, settings=settings)

    def _user(self) -> str | None:
        return Server._user(self)  # as root, rsync's server becomes nobody and cannot write

    def _root(self) -> list[str]:
        return []

    def prepare(self) -> None:
        if self.template is None:
            super().prepare()
        else:
            copied = [str(self.template.directory / "data"), str(self.directory)]
            run_step(["cp", "-a", *copied], self.user, self.directory)

    def command(self) -> list[str]:
        options = {
            "gmcast.listen_addr": f"tcp://127.0.0.1:{self.gcomm}",
            "ist.recv_addr": f"127.0.0.1:{self.ist}",
            "gcache.size": "32M",
            "gcache.dir": str(self.directory / "data"),
        }
        settings = {
            "binlog-format": "ROW",
            "innodb-autoinc-lock-mode": "2",
            "innodb-buffer-pool-size": "64M",
            "innodb-log-file-size": "32M",
            "wsrep-on": "ON",
            "wsrep-provider": provider(),
            "wsrep-cluster-name": "fairturn",
            "wsrep-cluster-address": f"gcomm://{','.join(self.members)}",
            "wsrep-node-name": f"n{self.number}",
            "wsrep-node-address": f"127.0.0.1:{self.gcomm}",
            "wsrep-node-incoming-address": f"127.0.0.1:{self.port}",
            "wsrep-sst-method": "rsync",
            "wsrep-sst-receive-address": f"127.0.0.1:{self.sst}",
            "wsrep-slave-threads": "2",
            "wsrep-provider-options": ";".join(f"{name}={is_}" for name, is_ in options.items()),
        }
        return [*super().command(), *(f"--{name}={value}" for name, value in settings.items())]

    def ready(self) -> bool:
        return self.status("wsrep_ready") == "ON" and self.status("wsrep_local_state") == SYNCED

    def status(self, name: str) -> str | None:
        """A status variable of the node, or None if the node does not answer."""
        import pymysql

        with contextlib.suppress(pymysql.MySQLError), contextlib.closing(self._plain()) as link:
            cursor = link.cursor()
            cursor.execute("SHOW STATUS LIKE %s", (name,))
            row = cursor.fetchone()
            return None if row is None else row[1]
        return None

    def _plain(self) -> Any:
        """Without a database: a node that is not ready refuses one."""
        import pymysql

        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", connect_timeout=2)


class Galera:
    """Nodes 0, 1, 2 …, started one after the other. ``settings`` are for each of them."""

    def __init__(self, size: int = 3, settings: dict[str, str] | None = None) -> None:
        self.nodes: list[Node] = []
        try:
            for number in range(size):
                first = self.nodes[0] if self.nodes else None
                self.nodes.append(Node(number, first, settings or {}))
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Galera:
        try:
            for node in self.nodes:
                self.start(node.number)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, number: int) -> None:
        """Start a node, also again; return when it is synced and all running nodes see it."""
        node = self.nodes[number]
        running = [other for other in self.nodes if other.pid and other is not node]
        node.members = [f"127.0.0.1:{other.gcomm}" for other in running]
        node.start()
        self.wait_for_size(len(running) + 1)

    def kill9(self, number: int) -> None:
        """Kill a node. The others notice it after some seconds (evs.suspect_timeout)."""
        node = self.nodes[number]
        node.kill9()
        node.pid = 0

    def wait_for_size(self, size: int) -> None:
        """Wait until every running node counts so many members and is synced."""
        for node in self.nodes:
            if node.pid:
                wait_until(
                    lambda node=node: (
                        node.status("wsrep_cluster_size") == str(size) and node.ready()
                    ),
                    f"node {node.number} sees {size} nodes",
                )

    def stop(self) -> None:
        for node in reversed(self.nodes):  # the last to stop is the one that began
            node.stop()

    def create_database(self, name: str) -> None:
        """A fresh database; it is on every node at once, since DDL is ordered with all writes."""
        self.nodes[0].create_database(name)

    def url(self, number: int, database: str) -> str:
        return self.nodes[number].url(database)

    def urls(self, database: str) -> list[str]:
        return [node.url(database) for node in self.nodes if node.pid]
