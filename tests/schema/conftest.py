"""An empty database of each server for a test."""

from __future__ import annotations

import itertools

import pytest

from tests.schema.installation import ALL, SERVERS, Installation, new

_numbers = itertools.count(1)


@pytest.fixture(params=SERVERS)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def empty(engine: str) -> Installation:
    return new(engine, f"schema{next(_numbers)}")


@pytest.fixture
def installed(empty: Installation) -> Installation:
    """A database that was migrated."""
    assert empty.migrate() == ALL
    return empty
