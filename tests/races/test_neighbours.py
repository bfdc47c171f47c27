"""An open transaction holds what it has taken, and nothing beside it.

A scan that locks rows may touch the first row behind its range too, which may be the next channel's
or the next queue's, and keep it until the transaction ends. Whoever skips what is locked would not
see that message for so long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import fairturn
from fairturn import Send
from tests import servers
from tests.conformance.door import Clock, unique
from tests.conformance.yours import Mine, plain

BACKENDS = ("postgresql", "mysql")


@dataclass
class Street:
    """Three queues side by side; somebody is busy in the one in the middle."""

    clock: Clock
    left: fairturn.Queue
    middle: fairturn.Queue
    right: fairturn.Queue
    mine: Mine

    @property
    def others(self) -> tuple[fairturn.Queue, fairturn.Queue]:
        return self.left, self.right

    @contextmanager
    def busy(self, act: Callable[[Any], Any]) -> Iterator[Any]:
        self.mine.begin()
        try:
            yield act(self.middle.using(self.mine.connection))
        finally:
            self.mine.rollback()


@pytest.fixture(params=BACKENDS)
def street(request: pytest.FixtureRequest) -> Iterator[Street]:
    backend = request.param
    url = (servers.postgres_url if backend == "postgresql" else servers.mysql_url)("neighbours")
    clock = Clock()
    with fairturn.connect(url, clock=clock) as db, plain(backend, url) as mine:
        db.migrate()
        queues = [db.queue(unique(side)) for side in ("left", "middle", "right")]
        for queue in queues:
            queue.create()
        yield Street(clock, *queues, mine)
        for queue in queues:
            queue.drop()


def fill(queue: fairturn.Queue) -> None:
    """One of each kind that a receive has to find, all of them due in a minute."""
    queue.send("abandoned")
    assert queue.receive(1, lease=30)
    queue.send("due", delay=30)
    queue.send("ready")
    queue.send("another", channel="z", version=2, priority=-5)


def clear(queue: fairturn.Queue) -> None:
    """Whoever looks finds all of them, and none besides."""
    found = sorted(message.body for message in queue.receive(10))
    assert found == ["abandoned", "another", "due", "ready"]


def some(queue: fairturn.Queue) -> None:
    queue.send_many([Send("m", channel=channel) for channel in ("a", "b", "c")])


def versions(queue: fairturn.Queue) -> None:
    queue.send_many([Send("m", version=version) for version in (0, 1, 2)])


def priorities(queue: fairturn.Queue) -> None:
    queue.send_many([Send("m", priority=priority) for priority in (-1, 0, 1, 2)])


def late(queue: fairturn.Queue) -> None:
    queue.send_many([Send("m", delay=delay) for delay in (10, 20, 90)])


def abandoned(queue: fairturn.Queue) -> None:
    queue.send_many([Send("m") for _ in range(3)])
    assert queue.receive(2, lease=30)
    assert queue.receive(1, lease=90)


def expiring(queue: fairturn.Queue) -> None:
    queue.set(expires=30)
    queue.send_many([Send("m") for _ in range(2)])
    queue.set(expires=90)
    queue.send("m")


def dead(queue: fairturn.Queue) -> None:
    queue.send_many([Send("m") for _ in range(3)])
    queue.kill(queue.receive(3), "why not")


def done(queue: fairturn.Queue) -> None:
    queue.set(retention=3600)
    queue.send_many([Send("m") for _ in range(3)])
    queue.ack(queue.receive(3))


def limited(queue: fairturn.Queue) -> None:
    queue.channel("b").set_policy(max_concurrency=2)
    some(queue)


def ordered(queue: fairturn.Queue) -> None:
    queue.channel("b").set_policy(ordered=True)
    some(queue)


ACTS: dict[str, tuple[Callable[[fairturn.Queue], None], Callable[[Any], Any]]] = {
    **{f"receive {n}": (some, lambda q, n=n: q.receive(n)) for n in (1, 2, 3, 4, 10)},
    **{f"limited {n}": (limited, lambda q, n=n: q.receive(n)) for n in (1, 10)},
    **{f"ordered {n}": (ordered, lambda q, n=n: q.receive(n)) for n in (1, 10)},
    **{f"versions {n}": (versions, lambda q, n=n: q.receive(n)) for n in (1, 10)},
    **{f"a version {n}": (versions, lambda q, n=n: q.receive(n, version=1)) for n in (1, 10)},
    **{f"types {n}": (some, lambda q, n=n: q.receive(n, types=["none"])) for n in (1, 10)},
    **{
        f"priorities {n}": (priorities, lambda q, n=n: q.receive(n, min_priority=0))
        for n in (1, 10)
    },
    "late": (late, lambda q: q.receive(10)),
    "abandoned": (abandoned, lambda q: q.receive(10)),
    "expiring": (expiring, lambda q: q.receive(10)),
    "promote": (late, lambda q: q.promote(30)),
    "redrive": (dead, lambda q: q.redrive()),
    "discard dead": (dead, lambda q: q.discard()),
    "discard done": (done, lambda q: q.discard(state="done")),
    "purge": (some, lambda q: q.purge()),
    "send": (some, lambda q: q.send("m")),
    "reschedule": (late, lambda q: q.reschedule(id=q.send("m").id, delay=5)),
}


@pytest.mark.parametrize("act", ACTS)
def test_the_queues_beside_it_are_not_touched(street: Street, act: str) -> None:
    prepare, do = ACTS[act]
    prepare(street.middle)
    for queue in street.others:
        fill(queue)
    street.clock.tick(60)
    with street.busy(do):
        for queue in street.others:
            clear(queue)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("prepare", [some, priorities, limited, ordered])
def test_the_rest_of_the_queue_is_not_touched(
    street: Street, prepare: Callable[[fairturn.Queue], None], n: int
) -> None:
    prepare(street.middle)
    some(street.middle)
    there = street.middle.stats().ready
    with street.busy(lambda queue: queue.receive(n)) as taken:
        rest = street.middle.receive(10)
    gates = {message.channel for message in taken} & {"b"} if prepare in (limited, ordered) else {}
    behind = 1 if gates else 0  # what its channel has besides waits for it
    assert (len(taken), len(rest)) == (n, there - n - behind)


@pytest.mark.parametrize("n", [1, 3, 10])
def test_behind_what_others_hold_more_is_found(street: Street, n: int) -> None:
    queue = street.middle
    queue.send_many([Send("m", priority=1, version=i % 2) for i in range(60)])
    with street.busy(lambda busy: busy.receive(30, version=0)):
        assert len(queue.receive(n, version=0, min_priority=1)) == 0
        assert len(queue.receive(n, min_priority=1)) == n
        assert len(queue.receive(n)) == n
    with street.busy(lambda busy: busy.receive(20, version=0)):
        assert len(queue.receive(n, version=0, min_priority=1)) == min(n, 10)
