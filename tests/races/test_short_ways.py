"""PostgreSQL's short ways to receive, against each other, stopped inside."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fairlead.backends.base import Lease
from tests.races.explore import Lab
from tests.races.session import Session, Step
from tests.races.test_stops import Sides
from tests.races.world import HOUR, World

YEAR = 365 * 24 * HOUR


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
