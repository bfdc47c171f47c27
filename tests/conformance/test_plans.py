"""The same answers when the tables are large and the planner knows it.

A hundred thousand messages of another queue (half of it dropped and not yet swept) lie next to the
queue under test, and the statistics are fresh: plans differ from those of an empty table, on old
connections and on new ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fairturn
from fairturn import Policy, Send
from tests.conformance.door import unique
from tests.conformance.yours import plain

BACKENDS = ("sqlite", "postgresql", "mysql")
ANALYZE = {
    "sqlite": ["ANALYZE"],
    "postgresql": ["ANALYZE"],
    "mysql": ["ANALYZE TABLE fairturn_message"],
}


@pytest.fixture(params=BACKENDS)
def backend(request: Any, session_things: None) -> str:
    return request.param


@pytest.fixture(scope="module")
def crowd(doors: Any, databases: Any) -> Iterator[Callable[[str], None]]:
    """Makes the crowd, once per backend."""
    made: dict[str, fairturn.Queue] = {}

    def crowd(backend: str) -> None:
        if backend in made:
            return
        stay, go = (databases[backend].queue(unique("crowd")) for _ in range(2))
        for queue in (stay, go):
            queue.create()
            for start in range(0, 50_000, 10_000):
                numbers = range(start, start + 10_000)
                queue.send_many(
                    [Send(n, channel=f"c{n % 500}", priority=n % 3, version=n % 2) for n in numbers]
                )
        stay.receive(5_000, lease=600)
        go.drop()
        with plain(backend, doors.url(backend)) as mine:
            for text in ANALYZE[backend]:
                mine.execute(text)
            mine.commit()
        made[backend] = stay

    yield crowd
    for backend, queue in made.items():
        queue.drop()
        while databases[backend].maintain(50_000).more:  # the tests after this need not carry it
            pass


@pytest.fixture(params=["old", "new"])
def queue(
    request: Any, backend: str, crowd: Any, databases: Any, doors: Any
) -> Iterator[fairturn.Queue]:
    """Our queue, on a connection that was there before the crowd, or on a new one."""
    crowd(backend)
    database = databases[backend]
    if request.param == "new":
        database = fairturn.connect(doors.url(backend))
    queue = database.queue(unique())
    queue.create()
    yield queue
    queue.drop()
    if request.param == "new":
        database.close()


@pytest.mark.parametrize("n", [1, 4, 60])
def test_order_within_a_channel(queue, n):
    queue.send_many([Send(i, priority=i % 3, at=1000 - i % 5, version=i % 2) for i in range(60)])
    got = []
    while messages := queue.receive(n):
        got += [(-m.priority, m.due_at, m.id) for m in messages]
        assert queue.ack(messages).lost == []
    assert len(got) == 60
    assert got == sorted(got)


def test_turns_of_channels(queue):
    queue.send_many([Send(i, channel=c, priority=i % 2) for i in range(4) for c in "abc"])
    received = queue.receive(12)
    assert "".join(m.channel for m in received) == "abc" * 4
    for channel in "abc":
        assert [m.priority for m in received if m.channel == channel] == [1, 1, 0, 0]


def test_filters_and_limits(queue):
    queue.set(policy=Policy(max_concurrency=2))
    queue.send_many([Send(i, channel=c, type="t", version=1) for i in range(4) for c in "ab"])
    queue.send_many([Send(i, channel=c, type="u") for i in range(4) for c in "ab"])
    received = queue.receive(20, types=["t"], version=1)
    assert sorted((m.channel, m.body) for m in received) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert queue.receive(20) == []


def test_ordered_runs(queue):
    queue.set(policy=Policy(ordered=True))
    queue.send_many([Send(i, priority=i % 2) for i in range(10)])
    assert [m.body for m in queue.receive(10)] == [1, 3, 5, 7, 9, 0, 2, 4, 6, 8]


def test_due_and_expired_are_swept_in_order(queue):
    now = time.time()
    sent = queue.send_many([Send(i, at=now - i) for i in range(20)])
    assert [m.id for m in queue.receive(20, lease=0)] == list(sent)[::-1]
    again = queue.receive(20)
    assert [m.id for m in again] == list(sent)[::-1]
    assert all(m.recovered for m in again)


def test_pages_go_by_id(queue):
    sent = queue.send_many([Send(i, priority=i % 3, channel=f"c{i % 4}") for i in range(50)])
    first = queue.peek(20)
    rest = queue.peek(50, after=first[-1].id)
    assert [m.id for m in first + rest] == list(sent)
    queue.kill(queue.receive(50))
    assert [m.id for m in queue.peek(50, state="dead")] == list(sent)
    queue.redrive(limit=5)
    assert [m.id for m in queue.peek(state="ready")] == list(sent[:5])
