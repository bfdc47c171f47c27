"""Which sends are repeated after a connection broke at an unknown moment (semantics §19.7)."""

from __future__ import annotations

import time

import pytest

from fairturn import OutcomeUnknown, Send
from fairturn.backends.mysql import MysqlBackend
from fairturn.backends.sqlite import SqliteBackend
from fairturn.drivers.base import GONE
from fairturn.execution.retries import decide
from fairturn.operations import sends
from fairturn.operations.call import Core

CORE = Core(SqliteBackend())
KEYED = Send(1, key="k", on_conflict="ignore")
BRIEF = Send(1, once="y", once_for=0.000002)


def repeated(*items: Send) -> bool:
    call = sends.send(CORE, "q", sends.encode_many(items))
    while time.monotonic() <= call.until < time.monotonic() + 1:
        pass  # the microsecond of a brief name
    decision = decide(CORE.backend, GONE, ConnectionError(), call, 0)
    assert decision.connection == "lose"
    assert decision.error is None or isinstance(decision.error, OutcomeUnknown)
    return decision.error is None


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([Send(1)], False),
        ([Send(1, once="x")], True),
        ([Send(1, once="x", once_for=60)], True),
        ([BRIEF], False),
        ([Send(1, once="x"), Send(2, once="x"), Send(3, once="y")], True),
        ([Send(1, once="x"), KEYED], True),
        ([Send(1, once="x"), Send(2)], False),
        ([Send(1, once="x"), Send(2, key="k")], False),
        ([Send(1, once="x"), BRIEF], False),
        ([KEYED, KEYED], True),
    ],
)
def test_only_while_the_name_is_surely_remembered(items: list[Send], expected: bool) -> None:
    assert repeated(*items) is expected


@pytest.mark.parametrize("code", ["1317", "1969", "3024"])
def test_an_interruption_on_mysql_may_have_come_after_the_commit(code: str) -> None:
    backend = MysqlBackend()
    plain = sends.send(Core(backend), "q", [sends.encode(Send(1))])
    decision = decide(backend, code, RuntimeError("interrupted"), plain, 0)
    assert isinstance(decision.error, OutcomeUnknown)
    assert "may or may not have happened" in str(decision.error)
    assert decision.connection == "lose"
