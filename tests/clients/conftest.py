"""Servers that live as long as the session, and are asked after each test what they met."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests import tiers
from tests.clients.serving import BACKENDS, ENVIRONMENT, Harbour, Served


@pytest.fixture(scope="session")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbour]:
    harbour = Harbour(tmp_path_factory.mktemp("clients"))
    yield harbour
    harbour.close()


@pytest.fixture
def session_things(request: pytest.FixtureRequest, harbour: Harbour) -> None:
    """tests/conftest.py asks for this before it counts what there is."""
    harbour.served(request.node.callspec.params["served"])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every client on every database; `make test` takes one for each test."""
    if "served" in metafunc.fixturenames:
        metafunc.parametrize("served", tiers.one_of_each(metafunc, BACKENDS), indirect=True)


@pytest.fixture
def served(
    request: pytest.FixtureRequest,
    harbour: Harbour,
    session_things: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Served]:
    """A server that must have nothing to complain of when the test is over."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    served = harbour.served(request.param)
    yield served
    lines = served.logged()
    bad = [line for line in lines if line["level"] != "INFO" or line.get("status", 200) >= 500]
    assert not bad, f"the server logged: {bad}"


@pytest.fixture
def sqs(served: Served) -> Iterator[Any]:
    """boto3's client."""
    client = served.client()
    yield client
    client.close()
