"""Races inside the functions and procedures: two calls on connections of our own, each stopped at
points inside it, in every order of the pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fairturn.backends.verbs import Kill
from tests.races.explore import Lab, Play
from tests.races.session import Step, item
from tests.races.stops import names
from tests.races.world import NOW, SECOND, World

Sides = tuple[Sequence[Step], Sequence[Step], Callable[[], None]]


def pick(server: Lab, postgres: str, mysql: str) -> list[str]:
    """The stop points of this database; one that an operation does not pass does no harm."""
    return (postgres if server.database.name == "postgresql" else mysql).split()


def receive_stops(server: Lab) -> list[str]:
    return pick(server, "receive.start receive.take receive.lease", "receive.start receive.lease")


def gate_stops(server: Lab) -> list[str]:
    return pick(
        server, "receive.judge receive.gate receive.lease", "judge.lock judge.locked receive.lease"
    )


def test_the_stops_exist(server: Lab) -> None:
    assert set(receive_stops(server)) | set(gate_stops(server)) <= names(server.database.name)


def test_claim_claim(server: Lab) -> None:
    def scene(world: World) -> Sides:
        world.send(3)
        return [world.a.receive(2)], [world.b.receive(2)], lambda: None

    stops = receive_stops(server)
    server.explore("stops: claim/claim", scene, stops_a=stops, stops_b=stops)


def test_claim_claim_of_many_channels(server: Lab) -> None:
    def scene(world: World) -> Sides:
        for channel in ("c", "d", "e"):
            world.send(2, channel)
        return [world.a.receive(3)], [world.b.receive(3)], lambda: None

    stops = receive_stops(server)
    server.explore("stops: claim/claim, three channels", scene, stops_a=stops, stops_b=stops)


@pytest.mark.parametrize(
    ("columns", "most"),
    [
        ({"max_concurrency": 1}, 1),
        ({"max_concurrency": 2}, 2),
        ({"rate_count": 2, "rate_period_us": SECOND, "burst": 2}, 2),
    ],
    ids=["concurrency 1", "concurrency 2", "rate 2"],
)
@pytest.mark.parametrize("kind", ["policy", "default"])
def test_claim_claim_limited(server: Lab, columns: dict[str, int], most: int, kind: str) -> None:
    def scene(world: World) -> Sides:
        world.send(3)
        if kind == "policy":
            world.home.policy(**columns)()
        else:
            world.settings(**columns)

        def check() -> None:
            assert 1 <= len(world.leased()) <= most

        return [world.a.receive(2)], [world.b.receive(2)], check

    stops = gate_stops(server)
    title = f"stops: claim/claim, {kind} {columns}"
    server.explore(title, scene, stops_a=stops, stops_b=stops)


def test_claim_claim_ordered(server: Lab) -> None:
    def scene(world: World) -> Sides:
        world.home.policy(ordered=1)()
        ids = world.send(3)

        def check() -> None:
            given = [id for id, _ in world.of("delivered")]
            assert given == ids[:2], f"{given} of {ids}"

        return [world.a.receive(2)], [world.b.receive(2)], check

    stops = [*gate_stops(server)[1:], "ordered.lock"]
    server.explore("stops: claim/claim, ordered", scene, stops_a=stops, stops_b=stops)


def test_claim_ack(server: Lab) -> None:
    def scene(world: World) -> Sides:
        world.home.policy(max_concurrency=1)()
        world.send(2)
        leases = world.lease(1)

        def check() -> None:
            assert world.b.results == [[]], "the ack was lost"
            assert len(world.leased()) <= 1

        return [world.a.receive(1)], [world.b.ack(leases)], check

    server.explore(
        "stops: claim/ack, concurrency 1",
        scene,
        stops_a=gate_stops(server),
        stops_b=pick(server, "ack.start", "ack.delete"),
    )


def test_sweep_ack(server: Lab) -> None:
    def scene(world: World) -> Sides:
        world.send(1)
        leases = world.lease(1, lease=SECOND)
        world.now = NOW + 2 * SECOND
        return [world.a.receive(1)], [world.b.ack(leases)], lambda: None

    server.explore(
        "stops: sweep/ack",
        scene,
        stops_a=["receive.start", "sweep.recover", "receive.lease"],
        stops_b=pick(server, "ack.start", "ack.delete"),
    )


def test_sweep_sweep(server: Lab) -> None:
    def scene(world: World) -> Sides:
        world.send(2)
        world.lease(2, lease=SECOND)
        world.now = NOW + 2 * SECOND
        return [world.a.receive(1)], [world.b.receive(1)], lambda: None

    stops = ["receive.start", "sweep.recover", "receive.lease"]
    server.explore("stops: sweep/sweep", scene, stops_a=stops, stops_b=stops)


def test_permit_recovery(server: Lab) -> None:
    def scene(world: World) -> Sides:
        permit = world.permit(10 * SECOND)
        world.send(1)
        world.lease(1, lease=SECOND, permit=permit)

        def check() -> None:
            world.now = NOW + 10 * SECOND
            alive = ("permit", permit, 0) in world.log
            assert not (alive and len(world.of("delivered")) > 1)

        beat = world.a.extend_permit(permit, 60 * SECOND, NOW + 9 * SECOND)
        return [beat], [world.b.receive(1, now=NOW + 10 * SECOND)], check

    server.explore(
        "stops: permit heartbeat/recovery",
        scene,
        stops_b=["receive.start", "sweep.recover", "sweep.permits", "receive.lease"],
    )


def _policy_scene(world: World) -> Sides:
    """The limit goes from 2 to 1; then its setter receives, too."""
    world.home.policy(max_concurrency=2)()
    world.send(4)

    def check() -> None:
        if world.before("/a0", "/b0"):
            assert len(world.leased()) <= 1, "leases given after the policy was set"
        else:
            assert len(world.leased()) <= 2

    a = world.a
    return [a.policy(max_concurrency=1), a.receive(2)], [world.b.receive(2)], check


def test_policy_claim(server: Lab) -> None:
    server.explore(
        "stops: policy set and claim/claim",
        _policy_scene,
        stops_a=pick(server, "policy_set.gate", "policy_set.write"),
        stops_b=["receive.start", *gate_stops(server)],
    )


def test_new_policy_claim(server: Lab) -> None:
    """A first limit: calls that begin after it was set are bound by it."""

    def scene(world: World) -> Sides:
        world.send(4)

        def check() -> None:
            mine = len(world.a.results[1])
            assert mine <= 1
            if world.before("/b0", "a1"):
                theirs = len(world.b.results[0])
                assert mine == 0 or theirs == 0, "b's leases were not counted"

        a = world.a
        return [a.policy(max_concurrency=1), a.receive(2)], [world.b.receive(2)], check

    server.explore("stops: first policy and claim/claim", scene, stops_b=receive_stops(server))


def test_queue_limit_claim(server: Lab) -> None:
    def scene(world: World) -> Sides:
        world.settings(limit_concurrency=2)
        world.send(4)

        def check() -> None:
            leased = len(world.leased())
            assert leased <= 2
            if world.before("/a0", "b0"):
                assert leased <= 1

        a = world.a
        lower = a.do("queue_set", {"limit_concurrency": 1})
        return [lower, a.receive(2)], [world.b.receive(2)], check

    server.explore(
        "stops: limit of the queue set and claim/claim",
        scene,
        stops_b=["receive.start", "receive.limit", "receive.lease"],
    )


def test_cancel_ordered_head_claim(server: Lab) -> None:
    def scene(world: World) -> Sides:
        world.home.policy(ordered=1)()
        ids = world.send(3)

        def check() -> None:
            run = [id for id, _ in world.of("delivered")]
            cancelled = ("cancelled", ids[0], 0) in world.log
            assert run in ([], ids[1:], ids[1:2]) if cancelled else run in (ids[:2], [])

        return [world.a.cancel(ids[0])], [world.b.receive(2)], check

    server.explore(
        "stops: cancel of an ordered head/claim",
        scene,
        stops_a=pick(server, "", "find.lock"),
        stops_b=["receive.start", "ordered.lock", "receive.lease"],
    )


@pytest.mark.parametrize("n", [1, 2])
def test_replace_moves_ordered_head(server: Lab, n: int) -> None:
    """The head is replaced into another channel, whose only slot is taken."""

    def scene(world: World) -> Sides:
        world.home.policy("full", max_concurrency=1)()
        world.send(1, "full")
        world.lease(1)
        world.home.policy("line", ordered=1)()
        world.home.send(item("line", key="k"))()
        world.send(1, "line")

        def check() -> None:
            assert len(world.leased("full")) <= 1, "moved into a full channel and leased there"

        replace = world.a.send(item("full", key="k", conflict="r"))
        return [replace], [world.b.receive(n)], check

    server.explore(
        f"stops: replace moves an ordered head/claim of {n}",
        scene,
        stops_a=pick(server, "send.write send.holder", "put.holder"),
        stops_b=["receive.start", "ordered.lock", "receive.lease"],
    )


def test_replace_moves_message(server: Lab) -> None:
    def scene(world: World) -> Sides:
        world.home.policy("full", max_concurrency=1)()
        world.send(1, "full")
        world.lease(1)
        world.home.send(item("open", key="k"))()

        def check() -> None:
            assert len(world.leased("full")) <= 1

        replace = world.a.send(item("full", key="k", conflict="r"))
        return [replace], [world.b.receive(2)], check

    server.explore(
        "stops: replace moves a message/claim",
        scene,
        stops_a=pick(server, "send.write send.holder", "put.holder"),
        stops_b=[*gate_stops(server), *receive_stops(server)][:4],
    )


def test_reschedule_ordered_head(server: Lab) -> None:
    """The head loses its place while a receive is about to take it."""

    def scene(world: World) -> Sides:
        world.home.policy(ordered=1)()
        ids = world.send(2, priority=5)

        def check() -> None:
            run = [id for id, _ in world.of("delivered")]
            if run == ids[:1]:
                assert world.a.results == ["l"] or world.before("b0", "/a0")

        return [world.a.reschedule(ids[0], 1)], [world.b.receive(1)], check

    server.explore(
        "stops: reschedule of an ordered head/claim",
        scene,
        stops_b=["receive.start", "ordered.lock", "receive.lease"],
    )


def test_replace_claim(server: Lab) -> None:
    def scene(world: World) -> Sides:
        world.home.send(item(key="k", body=b"old"))()

        def check() -> None:
            [[(_, outcome)]] = world.a.results
            [lease] = world.of("delivered") or [None]
            if lease is not None:
                assert world.bodies[lease] == (b"new" if outcome == "r" else b"old")

        replace = world.a.send(item(key="k", conflict="r", body=b"new"))
        return [replace], [world.b.receive(1)], check

    server.explore(
        "stops: replace by key/claim",
        scene,
        stops_a=pick(server, "send.write send.holder", "put.holder"),
        stops_b=receive_stops(server),
    )


@pytest.mark.parametrize("conflict", ["e", "i", "r"])
@pytest.mark.parametrize("holder", ["nobody", "dead"])
def test_same_key(server: Lab, conflict: str, holder: str) -> None:
    def scene(world: World) -> Sides:
        if holder == "dead":
            world.home.send(item(key="k"))()
            home, leases = world.home, world.lease(1)
            home.call(
                lambda: home.backend.apply_verb(world.queue, Kill("no"), leases, True, NOW),
                lambda _: [],
            )

        def check() -> None:
            holders = [row["id"] for row in world.rows().values() if row["key"] == "k"]
            assert len(holders) == 1
            outcomes = sorted(session.results[0][0][1] for session in (world.a, world.b))
            assert outcomes == sorted(["s", {"e": "e", "i": "d", "r": "r"}[conflict]])

        send = item(key="k", conflict=conflict)
        return [world.a.send(send)], [world.b.send(send)], check

    stops = pick(server, "send.write send.holder", "put.insert put.holder")
    server.explore(
        f"stops: keyed send/the same key, {conflict}, held by {holder}",
        scene,
        stops_a=stops,
        stops_b=stops,
    )


@pytest.mark.parametrize("conflict", ["i", "r"])
@pytest.mark.parametrize("held", [(), ("k",), ("k", "l")], ids=["nobody", "one", "both"])
def test_two_keys(server: Lab, conflict: str, held: Sequence[str]) -> None:
    """Two calls with the same keys in opposite orders never deadlock."""

    def scene(world: World) -> Sides:
        if held:
            world.home.send(*(item(key=key) for key in held))()
        k, other = item(key="k", conflict=conflict), item(key="l", conflict=conflict)

        def check() -> None:
            assert sorted(row["key"] for row in world.rows().values()) == ["k", "l"]

        return [world.a.send(k, other)], [world.b.send(other, k)], check

    stops = pick(server, "send.holder send.next", "")
    server.explore(
        f"stops: two keys in opposite orders, {conflict}, held {held}",
        scene,
        stops_a=stops,
        stops_b=stops,
    )


def test_three_keys_inside_one_insert(server: Lab) -> None:
    """Two calls meet in the middle of their INSERTs, where a third holds a key of both."""
    world = World(server.home, server.a, server.b)
    home, a, b = world.home, world.a, world.b
    home.begin()
    home.send(item(key="m"))()
    keys = ("k", "m", "z")
    sends = [item(key=key, conflict="i") for key in keys]
    play = Play(a, b, [a.send(*sends)], [b.send(*sends[::-1])], ())
    try:
        for name in ("a", "b"):
            play._move(name)
            play._settle()
        assert a.running, "a does not wait for m"
        assert b.running, "b does not wait for m"
        home.rollback()
        while a.running or b.running:
            play._wait_for_one()
    finally:
        home.driver.rollback()
        server._end()
    assert a.errors == b.errors == []
    assert a.retries == b.retries == 0, "a deadlock of our own making"
    world.check()
    assert sorted(row["key"] for row in world.rows().values()) == list(keys)


def test_carried_acks(server: Lab) -> None:
    def scene(world: World) -> Sides:
        world.home.policy(max_concurrency=1)()
        world.send(3)
        leases = world.lease(1)

        def check() -> None:
            assert ("acked", *leases[0]) in world.log
            assert len(world.leased()) == 1, "the slot that the ack freed was not used"

        return [world.a.receive(1, acks=leases)], [world.b.receive(1)], check

    server.explore(
        "stops: receive with acks/receive, concurrency 1",
        scene,
        stops_a=[*pick(server, "receive.acked", "receive.ack"), *gate_stops(server)],
    )


def test_carried_acks_of_two_channels(server: Lab) -> None:
    """Each in the middle of a turn of another channel, both carrying acks for both: the gates are
    taken in one order."""

    def scene(world: World) -> Sides:
        leases = {}
        for channel in ("c", "d"):
            world.home.policy(channel, max_concurrency=3, weight=2)()
            world.send(6, channel)
        for lease in world.lease(4):
            leases.setdefault(world.rows()[lease.id]["channel"], []).append(lease)
        (c1, c2), (d1, d2) = leases["c"], leases["d"]
        world.a.consumer.channel, world.a.consumer.credit = "c", 1
        world.b.consumer.channel, world.b.consumer.credit = "d", 1

        def check() -> None:
            assert len(world.leased("c")) <= 3
            assert len(world.leased("d")) <= 3

        return [world.a.receive(4, acks=[c1, d1])], [world.b.receive(4, acks=[c2, d2])], check

    stops = pick(server, "receive.gate", "judge.locked")
    server.explore("stops: receives with acks of two channels", scene, stops_a=stops, stops_b=stops)


@pytest.mark.parametrize("what", ["send", "receive", "ack"])
def test_purge(server: Lab, what: str) -> None:
    def scene(world: World) -> Sides:
        world.send(2)
        leases = world.lease(1)
        world.purged = True
        a = world.a
        # On PostgreSQL a send without a key is one statement, with no point to stop at inside.
        sent = item(key="k") if server.database.name == "postgresql" else item()
        step = {"send": a.send(sent), "receive": a.receive(1), "ack": a.ack(leases)}[what]

        def check() -> None:
            rows = world.rows()
            if what == "send" and world.before("/b0", "a0"):
                assert len(rows) == 1
            else:
                assert not rows

        return [step], [world.b.do("queue_purge", False)], check

    stops = {
        "send": pick(server, "send.write", "send.start"),
        "receive": receive_stops(server),
        "ack": pick(server, "ack.start", "ack.delete"),
    }[what]
    server.explore(f"stops: {what}/purge", scene, stops_a=stops)
