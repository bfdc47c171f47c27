"""Which queues are relayed, and where to: what their meta says."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn.relay import Relay, addresses, registration, runner
from fairturn.relay.destination import DestinationError
from fairturn.relay.route import TROUBLE
from tests.worker.bench import Bench, eventually


@pytest.fixture
def centre(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/centre.db"
    with fairturn.connect(url) as db:
        db.queue("in").create()
        db.queue("also").create()
    return url


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CHECK", 0.05)


def bodies(centre: str, queue: str) -> list[object]:
    with fairturn.connect(centre) as db:
        return [message.body for message in db.queue(queue).peek(1000)]


async def test_an_address_is_noticed_changed_and_taken_away(bench: Bench, centre: str) -> None:
    db = bench.app.async_db
    async with Relay(db, schedules=False):
        await bench.queue.send(1)
        await bench.queue.set(meta={"destination": f"{centre}#in", "mine": 1})
        await eventually(lambda: bodies(centre, "in") == [1])
        await bench.queue.set(meta={"destination": f"{centre}#also"})
        await bench.queue.send(2)
        await eventually(lambda: [1, 2] in (bodies(centre, "in"), [1, *bodies(centre, "also")]))
        await eventually(lambda: _goes(bench, centre, "also"))
        await bench.queue.set(meta=None)
        await eventually(lambda: _stays(bench))


async def _goes(bench: Bench, centre: str, queue: str) -> bool:
    await bench.queue.send("now")
    await eventually(bench.empty)
    return "now" in bodies(centre, queue)


async def _stays(bench: Bench) -> bool:
    """The relay may still have taken it; then it is tried with another one."""
    await bench.queue.send("mine")
    async with Relay(bench.app.async_db, schedules=False) as another:
        await eventually(lambda: another.ready)
    return not await bench.empty()


async def test_a_wrong_address_stops_no_other(
    bench: Bench, centre: str, caplog: pytest.LogCaptureFixture
) -> None:
    db = bench.app.async_db
    wrong = await bench.create(meta={"destination": "amqp://${NO_SUCH_VARIABLE}@host/"})
    await bench.queue.set(meta={"destination": f"{centre}#in"})
    await db.queue(wrong).send("stays")
    await bench.queue.send("goes")
    with caplog.at_level(logging.ERROR, "fairturn.relay"):
        async with Relay(db, schedules=False):
            await eventually(lambda: bodies(centre, "in") == ["goes"])
            await eventually(lambda: "NO_SUCH_VARIABLE" in caplog.text)
    assert (await bench.stats(wrong)).ready == 1
    assert caplog.text.count("is not relayed") == 1
    assert "NO_SUCH_VARIABLE" in (await db.queue(wrong).recall(TROUBLE))["reason"]


async def test_not_to_itself(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.queue.set(meta={"destination": f"{bench.url}#{bench.name}"})
    await bench.queue.send("stays")
    async with Relay(bench.app.async_db, schedules=False):
        await eventually(lambda: "is the queue itself" in caplog.text)
    assert (await bench.stats()).sent == 1


async def test_a_queue_that_is_dropped_and_comes_back(bench: Bench, centre: str) -> None:
    db = bench.app.async_db
    meta = {"destination": f"{centre}#in"}
    await bench.queue.set(meta=meta)
    async with Relay(db, schedules=False) as relay:
        await eventually(lambda: bench.name in relay.routes)
        await bench.queue.drop()
        await eventually(lambda: bench.name not in relay.routes)
        await bench.queue.create(meta=meta)
        await bench.queue.send("again")
        await eventually(lambda: bodies(centre, "in") == ["again"])


async def test_only_some_queues(bench: Bench, centre: str) -> None:
    db = bench.app.async_db
    other = await bench.create(meta={"destination": f"{centre}#also"})
    await bench.queue.set(meta={"destination": f"{centre}#in"})
    await db.queue(other).send("stays")
    await bench.queue.send("goes")
    async with Relay(db, queues=[bench.name], schedules=False) as relay:
        await eventually(lambda: bodies(centre, "in") == ["goes"])
        assert list(relay.routes) == [bench.name]


async def test_what_cannot_be_used_stops_no_other(
    bench: Bench, centre: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has looked at what stands in ``meta``."""
    wrong = [
        await bench.create(meta={"destination": address})
        for address in ("mysql://host:port/db#x", "mysql://host#x", "sqlite:file.db#x", "what?")
    ]
    await bench.queue.set(meta={"destination": f"{centre}#in"})
    await bench.queue.send("goes")
    async with Relay(bench.app.async_db, queues=[bench.name, *wrong], schedules=False) as relay:
        await eventually(lambda: bodies(centre, "in") == ["goes"])
        await eventually(lambda: relay.ready)
        assert list(relay.routes) == [bench.name]
    for name in wrong:
        assert f"queue {name} is not relayed" in caplog.text


# --- addresses ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("orders", "no destination: use sqs:https://"),
        ("ftp://host/x", "no destination"),
        ("sqs:orders", "looks like sqs:https://"),
        ("sqs:https://host/1/q?regoin=x", "?region=… and &groups=1"),
        ("amqp://host/?exchnage=x", "has no option 'exchnage'"),
        ("amqp://u:${PASSWORD@host/", "a variable is written ${NAME}"),
        ("amqp://u:geheim@host:99999/", "check its port"),
        ("amqp://:geheim@host/", "single quotes"),
        ("amqp://u:@host/", "single quotes"),
        ("postgresql://u:geheim@host/db", "names no queue"),
        ("mysql://u:geheim@host:port/db#x", "check the port"),
        ("mysql://u:geheim@host#x", "names no database"),
        ("sqlite:file.db#x", "not a database URL"),
        ("sqlite://#x", "name a file"),
        ("sqlite:///:memory:#x", "name a file"),
    ],
)
def test_what_no_address_can_be(address: str, part: str) -> None:
    with pytest.raises(DestinationError) as caught:
        addresses.check(address)
    assert part in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_variables_are_quoted_unless_they_are_the_whole() -> None:
    environment = {"P": "a@b/c", "ALL": "amqp://u:p@host/"}
    assert addresses.expanded("amqp://u:${P}@host/", environment) == "amqp://u:a%40b%2Fc@host/"
    assert addresses.expanded("${ALL}", environment) == "amqp://u:p@host/"
    assert addresses.check("${ALL}") == "${ALL}"
    with pytest.raises(DestinationError, match=r"needs \$U and \$Q: not set where the relay runs"):
        addresses.expanded("amqp://${U}:${P}@${Q}/", environment)
    assert addresses.shown("amqp://u:p%40w@host/x") == "amqp://u:***@host/x"


async def _relays(bench: Bench) -> list[fairturn.PermitStatus]:
    return [one for one in await bench.app.async_db.permits() if one.name.startswith("relay ")]


async def test_who_looks_sees_that_it_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "TTL", 0.3)
    others = {one.id for one in await _relays(bench)}  # relays of other tests, which were cut off

    async def ours() -> list[fairturn.PermitStatus]:
        return [one for one in await _relays(bench) if one.id not in others]

    async def beats() -> bool:
        return any(one.expires_at > first.expires_at for one in await ours())

    async with Relay(bench.app.async_db, schedules=False):
        [first] = await eventually(ours)
        # Beyond its first life: it is extended, or made again if it was late.
        await eventually(beats)
    assert await ours() == []


async def test_a_permit_that_was_lost_is_made_again(bench: Bench) -> None:
    db = bench.app.async_db
    permit = await registration._beat(db, "relay x", None)
    assert await registration._beat(db, "relay x", permit) is permit
    await permit.close()
    another = await registration._beat(db, "relay x", permit)
    assert registration.relays(await db.permits()).count("x") == 1
    await another.close()


async def test_a_permit_that_is_being_made_is_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = bench.app.async_db
    make, made, answer = db.permit, asyncio.Event(), asyncio.Event()

    async def permit(*args: Any, **settings: Any) -> Any:
        permit = await make(*args, **settings)
        made.set()
        await answer.wait()
        return permit

    monkeypatch.setattr(db, "permit", permit)
    others = {one.id for one in await _relays(bench)}
    showing = asyncio.create_task(registration.show_presence(db))
    await made.wait()
    showing.cancel()
    await asyncio.sleep(0)
    answer.set()
    with pytest.raises(asyncio.CancelledError):
        await showing
    assert [one for one in await _relays(bench) if one.id not in others] == []
