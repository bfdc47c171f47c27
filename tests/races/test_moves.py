"""A move beside another move, a receive and a sweep, each stopped at points inside it."""

from __future__ import annotations

from fairturn.backends.base import Peek
from tests.races.explore import Lab
from tests.races.test_stops import Sides, receive_stops
from tests.races.world import NOW, SECOND, World

STOPS = ["move.sweep", "move.write"]


def other(world: World) -> str:
    """A second queue, for what leaves the first."""
    name = f"{world.queue}-to"
    home = world.home
    home.call(lambda: home.backend.queue_create(name, {}, NOW), lambda _: [])
    world.purged = True  # messages leave the queue, and nobody acked them
    return name


def bodies(world: World, queue: str) -> list[bytes]:
    home = world.home
    rows = home.call(lambda: home.backend.peek(queue, Peek(100), world.now), lambda _: [])
    return [row.body for row in rows]


def send(world: World, number: int) -> list[bytes]:
    """Messages that can be told apart, by their age."""
    for n in range(number):
        world.send(body=str(n).encode())
    return bodies(world, world.queue)


def test_move_move(server: Lab) -> None:
    def scene(world: World) -> Sides:
        sent, to = send(world, 3), other(world)

        def check() -> None:
            assert bodies(world, to) == sent, "each once, and in their order"
            assert bodies(world, world.queue) == []

        return [world.a.do("move", to, 2)], [world.b.do("move", to, 2)], check

    server.explore("stops: move/move", scene, stops_a=STOPS, stops_b=STOPS)


def test_move_claim(server: Lab) -> None:
    def scene(world: World) -> Sides:
        sent, to = send(world, 3), other(world)

        def check() -> None:
            assert sorted(bodies(world, to) + bodies(world, world.queue)) == sorted(sent)
            # Nobody waits for the other, and nobody comes back with nothing.
            assert world.leased()
            assert bodies(world, to)

        return [world.a.do("move", to, 2)], [world.b.receive(2)], check

    server.explore("stops: move/claim", scene, stops_a=STOPS, stops_b=receive_stops(server))


def test_move_sweep(server: Lab) -> None:
    """Both meet the same ended leases."""

    def scene(world: World) -> Sides:
        sent, to = send(world, 2), other(world)
        world.lease(2, lease=SECOND)
        world.now = NOW + 2 * SECOND

        def check() -> None:
            assert sorted(bodies(world, to) + bodies(world, world.queue)) == sorted(sent)
            assert world.totals()["recovered"] == 2

        return [world.a.do("move", to, 2)], [world.b.receive(2)], check

    stops = [*STOPS, "sweep.recover", "sweep.permits"]
    server.explore("stops: move/sweep", scene, stops_a=stops, stops_b=receive_stops(server))
