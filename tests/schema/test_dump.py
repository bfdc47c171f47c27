"""The committed dump of each engine is what the migrations make."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import servers
from tests.schema.dump import ENGINES, committed, dump


@pytest.mark.parametrize("engine", ENGINES)
def test_the_dump_is_what_the_migrations_make(engine: str, tmp_path: Path) -> None:
    urls = {
        "postgresql": lambda: servers.postgres_url("dump"),
        "mysql": lambda: servers.mysql_url("dump"),
        "sqlite": lambda: f"sqlite:///{tmp_path / 'dump.db'}",
    }
    made = dump(engine, urls[engine]()).splitlines()
    there = committed(engine).read_text("utf-8").splitlines()
    assert made == there, "if the change is meant: make schema-dump, and commit it"
