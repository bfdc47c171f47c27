"""A DynamoDB and an SQS for the session, and a queue with its table for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests import tiers
from tests.clients.serving import ENVIRONMENT
from tests.relay.dynamodb.stage import Stage, World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("dynamodb"))
    yield world
    world.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On both; `make test` takes one for each test."""
    marks = metafunc.definition.iter_markers("parametrize")
    if "kind" in metafunc.fixturenames and not any("kind" in mark.args[0] for mark in marks):
        metafunc.parametrize("kind", tiers.one_of_each(metafunc, ["dynalite", "moto"]))


def pytest_itemcollected(item: pytest.Item) -> None:
    """What the original does wrong it does wrong tomorrow, too."""
    callspec = getattr(item, "callspec", None)
    if callspec is not None and callspec.params.get("subject") == "original":
        item.add_marker("deep")


@pytest.fixture
def session_things(request: pytest.FixtureRequest, world: World) -> None:
    """tests/conftest.py asks for this before it counts what there is."""
    world.dynamodb_url(request.node.callspec.params["kind"])
    assert world.served.url


@pytest.fixture
def subject() -> str:
    return "ours"


@pytest.fixture
def stage(
    kind: str,
    subject: str,
    world: World,
    session_things: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with contextlib.ExitStack() as clients:
        yield Stage(world, kind, subject, clients)
