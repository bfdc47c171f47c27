"""What happens to the nodes of a cluster. Each fault ends when the cluster is whole again: the next
one finds a majority, and a standby that has everything."""

from __future__ import annotations

import signal

from tests.campaign.cluster_sites import GaleraSite, PatroniSite
from tests.campaign.faults.blows import DATABASE, Scene, signal_all
from tests.clusters.patroni import TTL, Node
from tests.server_process import descendants, wait_until

EVICTED = 8.0  # seconds: a Galera node that is silent for longer is no member any more


# --- Patroni ------------------------------------------------------------------------------------
def _patroni(scene: Scene) -> PatroniSite:
    assert isinstance(scene.site, PatroniSite)
    return scene.site


def _leader(site: PatroniSite) -> Node:
    wait_until(lambda: site.cluster.leader() is not None, "a node leads")
    leader = site.cluster.leader()
    assert leader is not None
    return leader


def switch_over(scene: Scene) -> None:
    site = _patroni(scene)
    site.cluster.switchover()
    site.back()


def kill_leader(scene: Scene) -> None:
    """Its Patroni and its PostgreSQL at once; it comes back as a standby of the new leader."""
    site = _patroni(scene)
    site.cluster.kill9_leader()
    scene.kills.append(DATABASE)
    scene.last(0, 2)
    site.cluster.restart_dead()


def kill_leading_postgres(scene: Scene) -> None:
    """Its PostgreSQL only: its Patroni starts it again, or another node takes over."""
    site = _patroni(scene)
    node = _leader(site)
    killed = site.postgres_pids(node)
    signal_all(killed, signal.SIGKILL)
    scene.kills.append(DATABASE)
    # Until then Patroni says that all is well.
    wait_until(lambda: site.serves_again(node, killed[0]), "PostgreSQL is started again", 120)
    site.back()


def kill_standby(scene: Scene) -> None:
    """It may be the synchronous one: then nothing is confirmed until the other one is."""
    site = _patroni(scene)
    _leader(site)
    node = scene.dice.choice(site.standbys())
    node.kill9()
    scene.kills.append(DATABASE)
    site.cluster.dead.append(node)
    scene.last(0, 3)
    site.cluster.restart_dead()


def freeze_leader(scene: Scene) -> None:
    """Patroni and PostgreSQL, sometimes for longer than the leader's lock: it wakes up as one of
    two that believe to lead."""
    site = _patroni(scene)
    old = _leader(site)
    pids = descendants(old.pid)
    long = scene.dice.random() < 0.5
    signal_all(pids, signal.SIGSTOP)
    site.cluster.dead.append(old)  # it is not asked meanwhile
    try:
        if long:
            site.cluster.wait_leader(other_than=old)
            scene.last(0, 1)
        else:
            scene.last(1, TTL / 2)
    finally:
        signal_all(pids, signal.SIGCONT)
        site.cluster.dead.remove(old)
    site.back()


# --- Galera -------------------------------------------------------------------------------------
def _galera(scene: Scene) -> GaleraSite:
    assert isinstance(scene.site, GaleraSite)
    return scene.site


def kill_node(scene: Scene) -> None:
    site = _galera(scene)
    number = scene.dice.randrange(len(site.cluster.nodes))
    site.cluster.kill9(number)
    scene.kills.append(DATABASE)
    # The others have noticed it: a node that comes back before that is refused.
    site.cluster.wait_for_size(len(site.cluster.nodes) - 1)
    scene.last(0, 1)
    site.cluster.start(number)


def freeze_node(scene: Scene) -> None:
    """A short time stops all commits of the cluster; after a long one it is no member any more."""
    site = _galera(scene)
    pids = descendants(scene.dice.choice(site.cluster.nodes).pid)
    least, most = (1, 4) if scene.dice.random() < 0.5 else (EVICTED, EVICTED + 3)
    signal_all(pids, signal.SIGSTOP)
    try:
        scene.last(least, most)
    finally:
        signal_all(pids, signal.SIGCONT)
    site.back()
