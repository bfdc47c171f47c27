"""What doctor says about a Galera cluster, by the values that a node shows."""

from __future__ import annotations

import pytest

from fairturn.doctor import galera

VARIABLES = {"wsrep_on": "ON", "innodb_autoinc_lock_mode": "2", "binlog_format": "ROW"}
STATUS = {
    "wsrep_cluster_size": "3",
    "wsrep_cluster_status": "Primary",
    "wsrep_local_state_comment": "Synced",
    "wsrep_ready": "ON",
    "wsrep_flow_control_paused": "0.01",
    "wsrep_local_cert_failures": "3",
    "wsrep_local_bf_aborts": "4",
}


def levels(variables: dict[str, str], status: dict[str, str]) -> dict[str, str]:
    found = galera.examine(VARIABLES | variables, STATUS | status)
    return {finding.check: finding.level for finding in found}


def test_a_healthy_cluster() -> None:
    assert set(levels({}, {}).values()) == {"ok"}
    [conflicts] = [f for f in galera.examine(VARIABLES, STATUS) if f.check == "conflicts"]
    assert conflicts.what == "7 transactions of this node met another node's since its start"


@pytest.mark.parametrize("variables", [{}, {"wsrep_on": "OFF"}])
def test_a_single_server(variables: dict[str, str]) -> None:
    assert list(galera.examine(variables, {})) == []


@pytest.mark.parametrize(
    ("status", "check", "level"),
    [
        ({"wsrep_cluster_status": "non-Primary", "wsrep_ready": "OFF"}, "cluster", "bad"),
        ({"wsrep_local_state_comment": "Donor/Desynced"}, "cluster", "warn"),
        ({"wsrep_cluster_size": "2"}, "majority", "warn"),
        ({"wsrep_cluster_size": "1"}, "majority", "warn"),
        ({"wsrep_flow_control_paused": "0.4"}, "flow control", "warn"),
    ],
)
def test_a_cluster_in_trouble(status: dict[str, str], check: str, level: str) -> None:
    assert levels({}, status)[check] == level


@pytest.mark.parametrize(
    "variables", [{"innodb_autoinc_lock_mode": "1"}, {"binlog_format": "MIXED"}]
)
def test_wrong_settings(variables: dict[str, str]) -> None:
    assert levels(variables, {})["cluster settings"] == "bad"
