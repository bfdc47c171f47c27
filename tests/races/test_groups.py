"""Groups under races: whatever the order, a group closes once, and no member is stranded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fairturn.backends.base import Opening, Peek
from tests.races.explore import Lab
from tests.races.session import Session, Step, item
from tests.races.test_pairs import steps
from tests.races.world import NOW, World

ENDS = (("commit", "commit"), ("commit", "rollback"), ("rollback", "commit"))
Sides = tuple[Sequence[Step], Sequence[Step], Callable[[], None]]


class Group:
    """A group whose members are in the world's queue and whose works go to a queue of their own."""

    def __init__(self, world: World, members: int = 2, start: bool = True) -> None:
        self.world = world
        self.name = f"group of {world.queue}"
        self.works = f"{world.queue}-works"
        self._ask("queue_create", self.works, {}, NOW)
        end, abort = item(body=b"end"), item(body=b"abort")
        self._ask("group_open", Opening(self.name, self.works, "i", end, abort), NOW)
        world.home.send(*(item(group=self.name) for _ in range(members)))()
        if start:
            self._ask("group_start", self.name, NOW)

    def _ask(self, method: str, *args: Any) -> Any:
        home = self.world.home
        return home.call(lambda: getattr(home.backend, method)(*args), lambda _: [])

    def step(self, session: Session, method: str) -> Step:
        make = getattr(session.backend, method)
        args = (100, NOW) if method == "settle" else (self.name, NOW)
        return lambda: session.call(lambda: make(*args), lambda _: [])

    def settled(self) -> tuple[str, list[bytes]]:
        """Its last state, and the works that were sent."""
        self._ask("settle", 100, NOW)
        row = self._ask("group_status", self.name, NOW)
        rows = self._ask("peek", self.works, Peek(100), NOW)
        return row.state, [bytes(one.body) for one in rows if one.state != "h"]

    def held_in_a_running_group(self) -> int:
        row = self._ask("group_status", self.name, NOW)
        return row.held if row.state == "r" else 0


@pytest.mark.parametrize("ends", ENDS, ids="/".join)
def test_last_ack_last_ack(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        group = Group(world)
        [first], [second] = world.lease(1), world.lease(1)

        def check() -> None:
            both = ends == ("commit", "commit")
            assert group.settled() == (("e", [b"end"]) if both else ("r", []))

        a = steps(world.a, ends[0], world.a.ack([first]))
        b = steps(world.b, ends[1], world.b.ack([second]))
        return a, b, check

    lab.explore(f"last ack/last ack, {ends}", scene, drain=False)


@pytest.mark.parametrize("ends", ENDS, ids="/".join)
def test_last_ack_and_a_new_member(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        group = Group(world, 1)
        [only] = world.lease(1)

        def check() -> None:
            state, works = group.settled()
            acked, added = (end == "commit" for end in ends)
            if acked and not added:
                assert (state, works) == ("e", [b"end"])
            elif acked:
                # It joined in time and the group runs on; or the group was closed already, and it
                # opened another of that name.
                assert (state, works) in [("r", []), ("o", [b"end"])]
            else:
                assert (state, works) == ("r", [])

        a = steps(world.a, ends[0], world.a.ack([only]))
        b = steps(world.b, ends[1], world.b.send(item(group=group.name)))
        return a, b, check

    lab.explore(f"last ack/new member, {ends}", scene, drain=False)


@pytest.mark.parametrize("ends", ENDS, ids="/".join)
def test_start_and_a_new_member(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        group = Group(world, 1, start=False)

        def check() -> None:
            state, works = group.settled()
            assert (state, works) == (("r" if ends[0] == "commit" else "o"), [])
            assert group.held_in_a_running_group() == 0

        a = steps(world.a, ends[0], group.step(world.a, "group_start"))
        b = steps(world.b, ends[1], world.b.send(item(group=group.name)))
        return a, b, check

    lab.explore(f"start/new member, {ends}", scene, drain=False)


@pytest.mark.parametrize("rival", ["group_cancel", "group_start", "settle"])
def test_cancel_and_others(lab: Lab, rival: str) -> None:
    def scene(world: World) -> Sides:
        group = Group(world, 2, start=rival == "settle")
        world.purged = True  # members go without an ack, by intent

        def check() -> None:
            assert group.settled() == ("c", [b"abort"])

        a = steps(world.a, "commit", group.step(world.a, "group_cancel"))
        b = steps(world.b, "commit", group.step(world.b, rival))
        return a, b, check

    def scene_without_totals(world: World) -> Sides:
        a, b, check = scene(world)
        world.check = check  # type: ignore[method-assign]
        return a, b, lambda: None

    lab.explore(f"cancel/{rival}", scene_without_totals, drain=False)


def test_last_acks_settled_by_both(server: Lab) -> None:
    """As the library does it on its own connections, stopped inside."""

    def scene(world: World) -> Sides:
        group = Group(world)
        [first], [second] = world.lease(1), world.lease(1)

        def check() -> None:
            assert group.settled() == ("e", [b"end"])

        a = [world.a.ack([first]), group.step(world.a, "settle")]
        b = [world.b.ack([second]), group.step(world.b, "settle")]
        return a, b, check

    if server.database.name == "postgresql":
        stops = ["ack.start", "settle.group"]
    else:
        stops = ["settle.lock", "settle.look"]
    server.explore("stops: last acks", scene, stops_a=stops, stops_b=stops, drain=False)
