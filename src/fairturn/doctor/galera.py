"""MariaDB Galera: whether this node is a part of its cluster, and settings that all nodes need."""

from __future__ import annotations

from collections.abc import Iterator

from fairturn.doctor.examination import Finding, bad, many, ok, warn

PAUSED = 0.1  # the part of the time in which a slow node makes the others wait


def examine(variables: dict[str, str], status: dict[str, str]) -> Iterator[Finding]:
    """Findings about the cluster; none if this server is not a node of one."""
    if variables.get("wsrep_on", "OFF").upper() not in ("ON", "1"):
        return
    yield _member(status)
    yield from _majority(status)
    yield from _settings(variables)
    yield from _pauses(status)
    yield _conflicts(status)
    yield _your_connections(variables)


def _member(status: dict[str, str]) -> Finding:
    size = many(int(status.get("wsrep_cluster_size", 0)), "node")
    state = status.get("wsrep_local_state_comment", "?")
    part = status.get("wsrep_cluster_status", "?")
    if part != "Primary" or status.get("wsrep_ready", "OFF") != "ON":
        return bad(
            "cluster",
            f"this node ({state}) has lost the majority of its Galera cluster ({part})",
            "it refuses every statement, so that two halves never write apart",
            "start the other nodes. If they are gone for good, on one node: "
            "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES';",
        )
    if state != "Synced":
        return warn(
            "cluster",
            f"this node of a Galera cluster of {size} is {state}, not Synced",
            "it copies data, and calls on it wait",
            "wait until it is synced, or connect to another node",
        )
    return ok("cluster", f"a Galera cluster of {size}; this one is synced")


def _majority(status: dict[str, str]) -> Iterator[Finding]:
    size = int(status.get("wsrep_cluster_size", 0))
    if size in (1, 2):
        yield warn(
            "majority",
            f"the Galera cluster has {many(size, 'node')}",
            "it is not more available than one server"
            + ("" if size == 1 else ": if one node fails, the other has no majority and stops"),
            "add nodes until there are three, or an arbitrator (garbd) as the third",
        )


def _settings(variables: dict[str, str]) -> Iterator[Finding]:
    wanted = {"innodb_autoinc_lock_mode": "2", "binlog_format": "ROW"}
    wrong = {name: is_ for name in wanted if (is_ := variables.get(name, "?")) != wanted[name]}
    for name, value in wrong.items():
        yield bad(
            "cluster settings",
            f"{name} is {value}",
            "Galera replicates rows, and gives ids on several nodes at once",
            f"{name} = {wanted[name]} in the configuration of every node, then restart it",
        )
    if not wrong:
        shown = ", ".join(f"{name} {value}" for name, value in wanted.items())
        yield ok("cluster settings", shown)


def _pauses(status: dict[str, str]) -> Iterator[Finding]:
    paused = float(status.get("wsrep_flow_control_paused", 0))
    if paused > PAUSED:
        yield warn(
            "flow control",
            f"the cluster was paused for {paused:.0%} of the time since FLUSH STATUS",
            "every node waits for the slowest one",
            "SHOW STATUS LIKE 'wsrep_local_recv_queue_avg'; on each node, and help the slowest: "
            "more wsrep_slave_threads, a faster disk",
        )


def _conflicts(status: dict[str, str]) -> Finding:
    refused = int(status.get("wsrep_local_cert_failures", 0))
    aborted = int(status.get("wsrep_local_bf_aborts", 0))
    return ok(
        "conflicts",
        f"{many(refused + aborted, 'transaction')} of this node met another node's since its start",
        "Fairturn starts such a call again. There are fewer if all clients use one node",
    )


def _your_connections(variables: dict[str, str]) -> Finding:
    return ok(
        "your connections",
        f"wsrep_sync_wait is {variables.get('wsrep_sync_wait', '?')} and wsrep_retry_autocommit "
        f"is {variables.get('wsrep_retry_autocommit', '?')} by default; Fairturn's own sessions "
        "use 7 and 0",
        "do the same on *your* connections before you CALL Fairturn's procedures: "
        "SET SESSION wsrep_sync_wait = 7, wsrep_retry_autocommit = 0",
    )
