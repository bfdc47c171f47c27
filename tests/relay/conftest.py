"""The relay's tests run as the worker's do: on every backend, each in a loop of its own."""

from tests.relay.sqs_servers import aws, ours, session_things, sqs, sqs_fleet
from tests.relay.waiters import door, way
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
    "way",
]
