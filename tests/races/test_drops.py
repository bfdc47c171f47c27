"""A queue that is dropped while somebody receives from it, at every stop point inside."""

from __future__ import annotations

from typing import Any

import pytest

from fairturn.core.errors import QueueNotFound
from tests.races.explore import Lab
from tests.races.stops import names
from tests.races.test_stops import Sides
from tests.races.world import SECOND, World

KINDS: dict[str, dict[str, int]] = {
    "plain": {},
    "weighted": {"weight": 3},
    "ordered": {"ordered": 1},
    "concurrency": {"max_concurrency": 2},
    "rate": {"rate_count": 2, "rate_period_us": SECOND, "burst": 2},
    "limit": {"limit_concurrency": 2},
    "limit rate": {"limit_rate_count": 2, "limit_rate_period_us": SECOND, "limit_burst": 2},
}


@pytest.mark.parametrize("gated", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("n", [1, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_claim_drop(server: Lab, kind: str, n: int, gated: bool) -> None:
    """Whoever receives has messages, nothing, or learns that there is no such queue. (On PostgreSQL
    it once looked for ever, where the drop came before the gate of a new channel was made.)"""

    def scene(world: World) -> Sides:
        world.settings(**KINDS[kind])
        world.send(3, "c")
        world.send(3, "d")
        if gated:
            leases = world.lease(2)
            world.home.release(leases)()
        world.dropped = True

        def check() -> None:
            for session in (world.a, world.b):
                for error in session.errors:
                    said: Any = session.driver.code(error)
                    assert isinstance(session.backend.translate(said, str(error)), QueueNotFound)

        return [world.a.receive(n)], [world.b.do("queue_drop")], check

    stops = [
        name for name in names(server.database.name) if name.startswith(("receive.", "judge."))
    ]
    title = f"stops: claim/drop, {kind}, {n}, {'known' if gated else 'new'} channels"
    server.explore(title, scene, stops_a=sorted(stops))
