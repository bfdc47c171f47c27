"""A sender's open transaction delays nobody: not another sender, not a receiver, not maintenance.

The others run with lock time-outs so low that any wait is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairturn.execution.retries import ATTEMPTS
from tests.races.databases import Mysql, Postgres
from tests.races.explore import Lab
from tests.races.session import Session, item
from tests.races.world import NOW, SECOND, World

LIMITS: dict[str, dict[str, Any]] = {
    "none": {},
    "concurrency": {"max_concurrency": 100},
    "rate": {"rate_count": 1000, "rate_period_us": SECOND, "burst": 1000},
    "ordered": {"ordered": 1},
    "size": {"max_size": 100},
}


@contextmanager
def impatient(*sessions: Session) -> Iterator[None]:
    """Whoever has to wait for a row fails."""
    postgres = sessions[0].database.name == "postgresql"
    low, normal = (
        ("SET lock_timeout = '20ms'", "RESET lock_timeout")
        if postgres
        else ("SET innodb_lock_wait_timeout = 1", "SET innodb_lock_wait_timeout = 20")
    )
    for session in sessions:
        session.driver.execute(low, ())
    try:
        yield
    finally:
        for session in sessions:
            session.driver.execute(normal, ())


@pytest.fixture
def crowd(server: Lab) -> None:
    """Enough rows that no optimizer reads the whole table instead of an index. (Without them: see
    test_a_small_table.)"""
    if server in _crowded:
        return
    world = World(server.home, server.a, server.b)
    world.send(3000, "crowd")
    table = {"postgresql": "ANALYZE stops.message", "mysql": "ANALYZE TABLE stops_message"}
    server.home.driver.execute(table[server.database.name], ())
    _crowded.append(server)


_crowded: list[Lab] = []


def _never_again(session: Session) -> None:
    assert session.met == [], "it had to wait"
    assert not session.errors


def test_the_timeout_is_real(server: Lab) -> None:
    """The same set-up does fail where a wait is right: two senders of one key."""
    world = World(server.home, server.a, server.b)
    world.a.begin()
    world.a.send(item(key="k"))()
    world.b.retries = ATTEMPTS  # as if it had tried often enough
    with impatient(world.b), pytest.raises(Exception) as caught:
        world.b.send(item(key="k"))()
    code = world.b.driver.code(caught.value)
    assert world.b.backend.translate(code, str(caught.value)) == "busy"
    world.a.rollback()


@pytest.mark.parametrize("where", ["policy", "default"])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("sent", ["one", "many", "keyed"])
def test_an_open_send_delays_nobody(
    server: Lab, crowd: None, limit: str, where: str, sent: str
) -> None:
    world = World(server.home, server.a, server.b)
    a, b, home = world.a, world.b, world.home
    columns = LIMITS[limit]
    if where == "policy" and columns:
        home.policy("c", **columns)()
    elif columns:
        world.settings(**columns)
    before = world.send(4, "c")
    a.begin()
    number = {"one": 1, "many": 5, "keyed": 3}[sent]
    keys = [f"open{i}" if sent == "keyed" else None for i in range(number)]
    a.send(*(item("c", key=key) for key in keys))()

    with impatient(b, home):
        # Other senders of the channel, with and without keys, late and early.
        b.send(item("c"))()
        b.send(item("c", delay=SECOND), item("c", priority=9), item("c"))()
        b.send(item("c", key="other"))()
        b.send(item("c", key="other", conflict="r"), item("c", key="third", conflict="i"))()
        # Receivers, with and without carried acks, and all that can be done with a lease.
        first = b.receive(2)()
        assert first, "the open send kept a receiver from a message"
        more = home.receive(2, acks=first)()
        if limit != "ordered":
            assert more
        home.ack(more)()
        for verb in (b.ack, b.release, b.fail):
            leases = b.receive(1)()
            assert leases
            verb(leases)()
        b.cancel(before[-1])()
        # Policies, the numbers, maintenance.
        home.policy("c", max_concurrency=3)()
        home.call(lambda: home.backend.maintain(100, NOW), lambda _: [])
        world.totals()
        _never_again(b)
        _never_again(home)
    a.commit()
    world.check()
    world.drain()


@pytest.mark.server
@pytest.mark.parametrize("kind", [Postgres, Mysql])
@pytest.mark.parametrize("verb", ["ack", "release", "fail"])
def test_a_small_table(kind: type[Any], verb: str) -> None:
    """In a fresh database with a handful of messages, too, a lease is reached by its key."""
    lab = Lab(kind(f"races_small_{verb}"))
    try:
        world = World(lab.home, lab.a, lab.b)
        world.a.begin()
        world.a.send(item("c"))()
        world.b.send(item("c"))()
        world.b.retries = ATTEMPTS  # the first wait is an error
        with impatient(world.b):
            leases = world.b.receive(1)()
            assert len(leases) == 1
            getattr(world.b, verb)(leases)()
            _never_again(world.b)
        world.a.commit()
        world.check()
    finally:
        lab._end()
        lab.close()


def test_an_open_send_delays_no_transaction(server: Lab) -> None:
    """The same inside another open transaction, twice round: nobody waits for anybody."""
    world = World(server.home, server.a, server.b)
    world.settings(max_concurrency=5)
    world.send(6, "c")
    a, b = world.a, world.b
    with impatient(a, b):
        for session in (a, b):
            session.begin()
            session.send(item("c"), item("c"))()
        for session in (a, b):
            session.send(item("c"))()
        leases = a.receive(2)()
        assert len(leases) == 2
        a.ack(leases)()
        b.send(item("c"))()
        a.commit()
        assert len(b.receive(2)()) == 2
        b.commit()
    world.check()
    world.drain()


@pytest.mark.parametrize("what", ["receive", "ack"])
def test_an_open_receive_or_ack_delays_no_other(server: Lab, what: str) -> None:
    """Without limits the rows in somebody's hands are passed by."""
    world = World(server.home, server.a, server.b)
    world.send(6, "c")
    leases = world.lease(1)
    world.a.begin()
    {"receive": world.a.receive(1), "ack": world.a.ack(leases)}[what]()
    with impatient(world.b):
        assert len(world.b.receive(2)()) == 2
        world.b.send(item("c"))()
        assert len(world.b.receive(10)()) >= 1
        _never_again(world.b)
    world.a.commit()
    world.check()
    world.drain()


@pytest.mark.parametrize("where", ["policy", "default"])
def test_an_open_receive_of_a_limited_channel_is_passed_by(server: Lab, where: str) -> None:
    """Somebody else decides about the channel: a receive goes on without it and does not wait."""
    world = World(server.home, server.a, server.b)
    if where == "policy":
        world.home.policy("c", max_concurrency=2)()
    else:
        world.settings(max_concurrency=2)
    world.send(3, "c")
    world.send(3, "d")
    world.a.begin()
    assert len(world.a.receive(1)()) == 1
    with impatient(world.b):
        world.b.receive(4)()
        _never_again(world.b)
    world.a.commit()
    world.check()
    world.drain()
