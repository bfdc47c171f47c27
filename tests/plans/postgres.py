"""The plans PostgreSQL really used inside the functions, by auto_explain."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

SETTINGS = {
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "log",
    "client_min_messages": "log",
}
MESSAGE = "message"


class Node:
    """One scan of a plan: the index and table, and how many rows it read."""

    def __init__(self, plan: dict[str, Any], query: str) -> None:
        self.kind: str = plan["Node Type"]
        self.table: str | None = plan.get("Relation Name")
        self.index: str | None = plan.get("Index Name") or _index_below(plan)
        self.query = " ".join(query.split())
        loops = plan.get("Actual Loops", 0)
        removed = plan.get("Rows Removed by Filter", 0)
        removed += plan.get("Rows Removed by Index Recheck", 0)
        self.read = int(loops * (plan.get("Actual Rows", 0) + removed))
        self.loops = int(loops)

    def __repr__(self) -> str:
        return f"{self.kind} {self.table} {self.index} read={self.read} x{self.loops}: {self.query}"


def _index_below(plan: dict[str, Any]) -> str | None:
    """A bitmap's rows are read by one node and its index by the node below."""
    if plan["Node Type"] != "Bitmap Heap Scan":
        return None
    return next((child.get("Index Name") for child in plan.get("Plans", ())), None)


def _nodes(plan: dict[str, Any], query: str) -> Iterator[Node]:
    yield Node(plan, query)
    for child in plan.get("Plans", ()):
        yield from _nodes(child, query)


class Plans:
    """What happened in one recording."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, notice: str) -> None:
        found = re.search(r"plan:\s*(\{.*)", notice, re.DOTALL)
        if found:
            explained = json.loads(found[1])
            self.nodes += _nodes(explained["Plan"], explained["Query Text"])

    @property
    def scans(self) -> list[Node]:
        """Reads of the message table that really happened."""
        return [n for n in self.nodes if n.table == MESSAGE and "Scan" in n.kind and n.loops]

    def check(self, rows: int) -> None:
        """No table scan, and no more than this many rows read by any statement's scan."""
        assert self.nodes, "nothing was recorded"
        for node in self.nodes:
            if node.table == MESSAGE:
                assert node.kind != "Seq Scan", node
                # A bitmap has no order and reads all it finds: good for a list of ids only.
                assert node.kind != "Bitmap Heap Scan" or node.index == "message_pkey", node
        for node in self.scans:
            assert node.index is not None, node
            assert node.read <= rows, node

    def indexes(self) -> set[str]:
        return {node.index for node in self.scans if node.index}

    @property
    def probes(self) -> int:
        return sum(node.loops for node in self.scans)

    @property
    def read(self) -> int:
        return sum(node.read for node in self.scans)


def prepare(connection: psycopg.Connection[Any]) -> None:
    connection.execute("LOAD 'auto_explain'")


@contextmanager
def recorded(connection: psycopg.Connection[Any]) -> Iterator[Plans]:
    """The plans of everything this connection runs meanwhile."""
    plans = Plans()
    notices: list[str] = []

    def keep(diagnostic: psycopg.errors.Diagnostic) -> None:
        notices.append(diagnostic.message_primary or "")

    for name, value in SETTINGS.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, value))
    connection.add_notice_handler(keep)
    try:
        yield plans
    finally:
        connection.remove_notice_handler(keep)
        connection.execute("SET auto_explain.log_min_duration = -1")
        connection.execute("SET client_min_messages = notice")
    for notice in notices:
        plans.add(notice)
