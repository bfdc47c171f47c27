"""PostgreSQL's short ways to receive, against each other, stopped inside."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fairturn.backends.postgres import receive, scan_hints
from fairturn.backends.verbs import Lease
from tests.races.explore import Lab
from tests.races.session import Session, Step
from tests.races.test_stops import Sides
from tests.races.world import HOUR, World

YEAR = 365 * 24 * HOUR


class Still:
    @staticmethod
    def monotonic() -> float:
        return 1000.0


@pytest.fixture(autouse=True)
def time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer takes a short way until 100 ms after its last look; then schedules would depend on
    the machine's speed."""
    monkeypatch.setattr(scan_hints, "time", Still)
    monkeypatch.setattr(receive, "time", Still)


@pytest.mark.parametrize("most", [None, 1, 2], ids=["free", "limit 1", "limit 2"])
@pytest.mark.parametrize("channels", [("c",), ("c", "d")], ids=["lone", "many"])
def test_claim_claim_on_the_short_ways(
    server: Lab, channels: Sequence[str], most: int | None
) -> None:
    """Consumers whose last receive was filled, each carrying the ack of what it has."""
    if server.database.name != "postgresql":
        pytest.skip("only PostgreSQL has them")

    def scene(world: World) -> Sides:
        world.settings(max_concurrency=most)
        for channel in channels:
            world.send(4, channel)
        held: dict[Session, Sequence[Lease]] = {}
        for session in (world.a, world.b):
            held[session] = session.receive(1, lease=100 * YEAR, clock=True)()

        def again(session: Session) -> Step:
            return session.receive(1, acks=held[session], lease=100 * YEAR, clock=True)

        def check() -> None:
            for channel in channels:
                assert most is None or len(world.leased(channel)) <= most

        return [again(world.a)], [again(world.b)], check

    stops = ["next.take", "lone.gate", "receive.start", "receive.gate", "receive.lease"]
    name = f"stops: short ways, {len(channels)} channels, limit {most}"
    server.explore(name, scene, stops_a=stops, stops_b=stops, drain=False)


@pytest.mark.parametrize("n", [1, 40], ids=["one", "many"])
@pytest.mark.parametrize("most", [1, 2], ids=["limit 1", "limit 2"])
def test_a_large_batch_has_all_gates_or_goes_one_by_one(server: Lab, most: int, n: int) -> None:
    """Two consumers, one of which asks for enough to try for all gates at once."""
    if server.database.name != "postgresql":
        pytest.skip("only PostgreSQL has it")
    channels = ("c", "d", "e")

    def scene(world: World) -> Sides:
        world.settings(max_concurrency=most)
        for channel in channels:
            world.send(4, channel)
        held = {s: s.receive(1, lease=100 * YEAR, clock=True)() for s in (world.a, world.b)}

        def check() -> None:
            for channel in channels:
                assert len(world.leased(channel)) <= most

        return (
            [world.a.receive(40, acks=held[world.a], lease=100 * YEAR, clock=True)],
            [world.b.receive(n, acks=held[world.b], lease=100 * YEAR, clock=True)],
            check,
        )

    stops = ["receive.start", "receive.gates", "receive.judge", "receive.gate", "receive.lease"]
    name = f"stops: a batch of 40 and one of {n}, limit {most}"
    server.explore(name, scene, stops_a=stops, stops_b=stops, drain=False)
