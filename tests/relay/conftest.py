"""The relay's tests run as the worker's do: on every backend, each in a loop of its own."""

import pytest

from tests import tiers
from tests.relay.sqs_servers import KINDS, aws, ours, session_things, sqs, sqs_fleet
from tests.relay.waiters import VARIANTS, door, variant
from tests.worker.conftest import backend, bench, pytest_pyfunc_call, url

__all__ = [
    "aws",
    "backend",
    "bench",
    "door",
    "ours",
    "pytest_pyfunc_call",
    "session_things",
    "sqs",
    "sqs_fleet",
    "url",
    "variant",
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With both SQS servers, by both waiters; `make test` takes one for each test."""
    for name, variants in (("sqs", KINDS), ("variant", VARIANTS)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, tiers.one_of_each(metafunc, variants), indirect=True)
