"""Which sends are repeated after a connection broke at an unknown moment (semantics §19.7)."""

from __future__ import annotations

import time

import pytest

from fairlead import OutcomeUnknown, Send
from fairlead.backends.mysql import MysqlBackend
from fairlead.backends.sqlite import SqliteBackend
from fairlead.drivers.base import GONE
from fairlead.operations import sending
from fairlead.operations.call import Core
from fairlead.retrying import LOST, judge, lost

CORE = Core(SqliteBackend())
KEYED = Send(1, key="k", on_conflict="ignore")
BRIEF = Send(1, once="y", once_for=0.000002)


def repeated(*items: Send) -> bool:
    """Alone by send, several by send_many."""
    if len(items) == 1:
        call = sending.send(CORE, "q", sending.encode_send(items[0]))
    else:
        call = sending.send_many(CORE, "q", items)
    while time.monotonic() <= call.until < time.monotonic() + 1:
        pass  # the microsecond of a brief name
    verdict = judge(CORE.backend, GONE, ConnectionError(), call, 0)
    assert verdict == LOST or isinstance(verdict, OutcomeUnknown)
    return verdict == LOST


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
    plain = sending.send(Core(backend), "q", sending.encode_send(Send(1)))
    verdict = judge(backend, code, RuntimeError("interrupted"), plain, 0)
    assert isinstance(verdict, OutcomeUnknown)
    assert "may or may not have happened" in str(verdict)
    assert lost(code, verdict)
