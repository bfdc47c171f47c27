"""A way to a database that falls silent without a word: it is given up, and a new one tried."""

from __future__ import annotations

from pathlib import Path

import pytest

import fairturn
from fairturn.relay import Relay, fairturn_destination, runner
from tests import servers
from tests.faults.crew import fresh_url
from tests.faults.proxy import Proxy
from tests.relay.places import Place
from tests.worker.bench import eventually

KINDS = ["postgresql", "mysql"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_silent_way_to_the_centre(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fairturn_destination, "WITHIN", 0.5)
    url = fresh_url(kind, tmp_path)
    with fairturn.connect(url) as centre, Proxy(servers.shared(kind)["port"]) as proxy:
        queue = centre.queue("in")
        queue.create()
        async with (
            fairturn.connect_async(f"sqlite:///{tmp_path}/edge.db") as edge,
            Relay(edge, {"out": f"{proxy.url(url)}#in"}, schedules=False) as relay,
        ):
            await edge.queue("out").create()
            await edge.queue("out").send("before")
            await eventually(lambda: queue.stats().sent == 1)
            proxy.open_hole("lose")
            await edge.queue("out").send("after")
            await eventually(lambda: relay.routes["out"].down)
            proxy.heal()
            await eventually(lambda: queue.stats().sent == 2)
        assert [message.body for message in queue.peek()] == ["before", "after"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_silent_way_to_our_own_database(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ANSWER_TIMEOUT", 0.5)
    url = fresh_url(kind, tmp_path)
    place = Place()
    with fairturn.connect(url) as db, Proxy(servers.shared(kind)["port"]) as proxy:
        queue = db.queue("out")
        queue.create()
        async with (
            fairturn.connect_async(proxy.url(url)) as through,
            Relay(through, {"out": place}, schedules=False, lease=1),
        ):
            queue.send("before")
            await eventually(lambda: queue.stats().acked == 1)
            proxy.open_hole("lose")
            queue.send("after")
            opened = proxy.accepted
            await eventually(lambda: proxy.accepted > opened)
            proxy.heal()
            await eventually(lambda: queue.stats().acked == 2)
    assert place.bodies[0] == "before"
    assert set(place.bodies) == {"before", "after"}


@pytest.mark.server
async def test_postgresql_falls_silent_where_we_begin_to_listen(tmp_path: Path) -> None:
    url = fresh_url("postgresql", tmp_path)
    place = Place()
    with fairturn.connect(url) as db, Proxy(servers.shared("postgresql")["port"]) as proxy:
        queue = db.queue("out")
        queue.create()
        proxy.lose_from(b"LISTEN")
        async with (
            fairturn.connect_async(proxy.url(url), timeout=1) as through,
            Relay(through, {"out": place}, schedules=False),
        ):
            await eventually(lambda: proxy.lost)  # nothing is due: it sleeps
            queue.send("it polls")
            await eventually(lambda: queue.stats().acked == 1)
    assert place.bodies == ["it polls"]
