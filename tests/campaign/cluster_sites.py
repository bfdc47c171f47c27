"""Campaigns on clusters: the nodes of a real one are the database, and every client knows several
ways to it, each through a proxy."""

from __future__ import annotations

import contextlib
import random
from typing import Any

from tests.campaign.site import Site
from tests.clusters.galera import Galera
from tests.clusters.patroni import Node, Patroni
from tests.faults.proxy import Proxy
from tests.keeper import alive
from tests.server_process import descendants, wait_until

DATABASE = "campaign"
WHOLE_SECONDS = 120.0  # for a node to come back, on a busy machine


def hosts(proxies: list[Proxy]) -> str:
    return ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)


class PatroniSite(Site):
    """Three PostgreSQL servers with Patroni, synchronous: no leader confirms what no standby has.
    Half of the clients go through HAProxy, the others name the three servers."""

    def __init__(self) -> None:
        super().__init__("patroni", False)
        self.family = "postgresql"

    def _open(self, stack: contextlib.ExitStack) -> None:
        self.cluster = stack.enter_context(Patroni(synchronous=True))
        self.cluster.create_database(DATABASE)
        self.url = self.cluster.direct_url(DATABASE)
        front = stack.enter_context(Proxy(self.cluster.haproxy.port))
        nodes = [stack.enter_context(Proxy(node.port)) for node in self.cluster.nodes]
        self.proxies = [front, *nodes]
        named = f"postgresql://postgres@{hosts(nodes)}/{DATABASE}?target_session_attrs=read-write"
        self.ways = [front.url(self.cluster.url(DATABASE)), named]

    def create_database(self, name: str) -> str:
        with self.session(random.Random()) as session:
            session.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self.cluster.create_database(name)
        return self.cluster.direct_url(name)

    def standbys(self) -> list[Node]:
        leader = self.cluster.leader()
        return [node for node in self.cluster.nodes if node is not leader]

    def postgres_pids(self, node: Node) -> list[int]:
        """The postmaster of a node and all its processes, without its Patroni."""
        file = node.directory / "data" / "postmaster.pid"
        return descendants(int(file.read_text().split()[0]))

    def serves_again(self, node: Node, killed: int) -> bool:
        """Another postmaster than the killed one runs, and Patroni is content with it."""
        with contextlib.suppress(OSError, IndexError, ValueError):  # it is just being written
            return self.postgres_pids(node)[0] != killed and node.ready()
        return False

    def back(self) -> None:
        """All nodes are there, and a standby is synchronous again."""
        try:
            wait_until(self.cluster.whole, "the cluster is whole again", WHOLE_SECONDS)
        except RuntimeError:
            print(self.cluster.logs())
            raise


class GaleraSite(Site):
    """Three nodes, and clients on each of them: everyone names all nodes, each begins with another
    one."""

    def __init__(self) -> None:
        super().__init__("galera", False)
        self.family = "mysql"

    def _open(self, stack: contextlib.ExitStack) -> None:
        self.cluster = stack.enter_context(Galera())
        self.cluster.create_database(DATABASE)
        direct = ",".join(f"127.0.0.1:{node.port}" for node in self.cluster.nodes)
        self.url = f"mysql://root@{direct}/{DATABASE}"
        self.proxies = [stack.enter_context(Proxy(node.port)) for node in self.cluster.nodes]
        turns = [self.proxies[n:] + self.proxies[:n] for n in range(len(self.proxies))]
        self.ways = [f"mysql://root@{hosts(turn)}/{DATABASE}" for turn in turns]

    def create_database(self, name: str) -> str:
        self.cluster.create_database(name)
        return self.url.replace(f"/{DATABASE}", f"/{name}")

    def session(self, dice: random.Random) -> Any:
        return dice.choice(self.cluster.nodes).connect(DATABASE)

    def back(self) -> None:
        """All nodes are there and synced; one that has ended itself is started."""
        for node in self.cluster.nodes:
            if not node.pid or not alive(node.pid):
                self.cluster.kill9(node.number)
                self.cluster.start(node.number)
        whole = str(len(self.cluster.nodes))
        for node in self.cluster.nodes:
            wait_until(
                lambda node=node: node.status("wsrep_cluster_size") == whole and node.ready(),
                f"node {node.number} is in the cluster again",
                WHOLE_SECONDS,
            )


def open_site(kind: str, mounts: bool) -> Site:
    """The place of this kind, not started yet."""
    if kind == "patroni":
        return PatroniSite()
    return GaleraSite() if kind == "galera" else Site(kind, mounts)
