"""From the edge to the centre: another Fairturn database."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import fairturn
from fairturn.relay import Later, Never, Parcel, Relay
from fairturn.relay.fairturn_destination import FairturnDestination
from fairturn.relay.route import parcel
from tests import servers
from tests.relay.places import relayed
from tests.worker.bench import Bench, eventually


async def _parcels(bench: Bench, *sends: object) -> list[Parcel]:
    await bench.queue.send_many(sends)
    return [parcel(message) for message in await bench.queue.receive(100)]


async def test_a_message_is_the_same_there(bench: Bench, tmp_path: Path) -> None:
    """All that a message is but its key, which is unique only at home."""
    due = round(time.time()) + 300
    edge = fairturn.connect_async(f"sqlite:///{tmp_path}/edge.db")
    await edge.queue("out").create()
    options = {"channel": "c", "priority": 7, "version": 3, "type": "t", "headers": {"a": [1]}}
    await edge.queue("out").send({"ü": 1.5}, at=due, key="k", **options)  # type: ignore[arg-type]
    await edge.queue("out").send(b"\x00\xff")
    place = FairturnDestination(bench.app.async_db, bench.name)
    async with Relay(edge, {"out": place}, schedules=False):
        await eventually(lambda: _count(bench, 2))
    early, raw = sorted(await bench.queue.peek(), key=lambda m: m.is_json, reverse=True)
    assert (early.body, early.channel, early.priority) == ({"ü": 1.5}, "c", 7)
    assert (early.version, early.type, early.headers, early.key) == (3, "t", {"a": [1]}, None)
    assert (early.state, early.due_at.timestamp()) == ("scheduled", due)
    assert (raw.body, raw.state) == (b"\x00\xff", "ready")
    assert (await edge.queue("out").stats()).acked == 2
    await edge.close()


async def _count(bench: Bench, n: int) -> bool:
    stats = await bench.stats()
    return stats.ready + stats.scheduled == n


async def test_handed_over_twice_it_arrives_once(bench: Bench) -> None:
    parcels = await _parcels(bench, "a", "b")
    there = await bench.create()
    place = FairturnDestination(bench.app.async_db, there)
    for _ in range(3):
        assert await place.hand_over(parcels, 0) == [None, None]
    messages = await bench.app.async_db.queue(there).peek()
    assert [message.body for message in messages] == ["a", "b"]


async def test_what_it_does_not_take_is_told_one_by_one(bench: Bench) -> None:
    db = bench.app.async_db
    parcels = await _parcels(bench, "small", "x" * 500, "small, too")
    there = await bench.create(max_body=100)
    outcomes = await FairturnDestination(db, there).hand_over(parcels, 0)
    assert outcomes[0] is None
    assert outcomes[2] is None
    assert isinstance(outcomes[1], Never)
    assert "100" in outcomes[1].reason


@pytest.mark.server
async def test_a_centre_that_is_away(bench: Bench) -> None:
    parcels = await _parcels(bench, "a")
    nowhere = fairturn.connect_async("postgresql://nobody@127.0.0.1:1/x", timeout=1)
    (outcome,) = await FairturnDestination(nowhere, "in", own=True).hand_over(parcels, 0)
    assert isinstance(outcome, Later)
    assert outcome.down
    await nowhere.close()
    async with fairturn.connect_async(servers.postgres_url("empty")) as empty:
        (outcome,) = await FairturnDestination(empty, "in").hand_over(parcels, 0)
        assert isinstance(outcome, Later)
        assert outcome.down
        assert f"fairturn migrate --db '{empty.target.shown}'" in outcome.reason
    missing = FairturnDestination(bench.app.async_db, "no-such-queue")
    (outcome,) = await missing.hand_over(parcels, 0)
    assert isinstance(outcome, Later)
    assert outcome.down
    assert "fairturn queue create" in outcome.reason


async def test_order_arrives_as_order(bench: Bench) -> None:
    policy = fairturn.Policy(ordered=True)
    await bench.queue.set(policy=policy)
    there = await bench.create(policy=policy)
    await bench.queue.send_many([fairturn.Send(n, channel=f"c{n % 2}") for n in range(20)])
    async with relayed(bench, FairturnDestination(bench.app.async_db, there)):
        await eventually(lambda: _arrived(bench, there, 20))
    messages = await bench.app.async_db.queue(there).peek(100)
    for channel in range(2):
        expected = [n for n in range(20) if n % 2 == channel]
        assert [m.body for m in messages if m.channel == f"c{channel}"] == expected


async def _arrived(bench: Bench, queue: str, n: int) -> bool:
    return (await bench.stats(queue)).sent == n
