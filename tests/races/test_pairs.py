"""Pairs of operations in your own transactions: BEGIN, operation, COMMIT or ROLLBACK on two
connections, in every order of these steps.

On the servers BEGIN takes neither a lock nor a snapshot (READ COMMITTED), so that it makes one step
with its operation, except in the first test, which shows it. On SQLite it is the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fairturn.backends.verbs import Kill
from tests.races.explore import Lab
from tests.races.session import Session, Step, item
from tests.races.world import NOW, SECOND, World

ENDS = (("commit", "commit"), ("commit", "rollback"), ("rollback", "commit"))
Check = Callable[[], None]
Sides = tuple[Sequence[Step], Sequence[Step], Check]

pytestmark = pytest.mark.parametrize("ends", ENDS, ids="/".join)


def steps(session: Session, end: str, operation: Step) -> list[Step]:
    """Last step: ``/a2`` on SQLite, ``/a1`` on the servers."""
    finish: Step = getattr(session, end)
    if session.database.name == "sqlite":
        return [session.begin, operation, finish]

    def first() -> object:
        session.begin()
        return operation()

    return [first, finish]


def both(world: World, ends: tuple[str, str], a: Step, b: Step, check: Check) -> Sides:
    return steps(world.a, ends[0], a), steps(world.b, ends[1], b), check


def value(session: Session) -> object:
    """What the party's operation returned."""
    return session.results[-2]


def test_claim_claim_with_begin(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.send(3)
        a, b = world.a, world.b
        return (
            [a.begin, a.receive(2), getattr(a, ends[0])],
            [b.begin, b.receive(2), getattr(b, ends[1])],
            lambda: None,
        )

    lab.explore("claim/claim, BEGIN apart", scene)


def test_claim_claim(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.send(4)

        def check() -> None:
            # Each may take two of the four whatever the other does: nobody comes back short.
            assert len(world.leased()) == 2 * ends.count("commit")

        return both(world, ends, world.a.receive(2), world.b.receive(2), check)

    lab.explore("claim/claim", scene)


def test_claim_claim_last_message(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.send(1)
        return both(world, ends, world.a.receive(1), world.b.receive(1), lambda: None)

    lab.explore("claim/claim of one message", scene)


def test_claim_ack(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.send(2)
        leases = world.lease(1)

        def check() -> None:
            assert value(world.b) == [], "the ack was lost"

        return both(world, ends, world.a.receive(2), world.b.ack(leases), check)

    lab.explore("claim/ack", scene)


def test_ack_ack(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.send(2)
        leases = world.lease(2)
        return both(world, ends, world.a.ack(leases), world.b.ack(leases[::-1]), lambda: None)

    lab.explore("ack/ack of the same leases", scene)


@pytest.mark.parametrize("verb", ["ack", "release", "fail"])
def test_sweep_verb(lab: Lab, ends: tuple[str, str], verb: str) -> None:
    def scene(world: World) -> Sides:
        world.send(1)
        leases = world.lease(1, lease=SECOND)
        world.now = NOW + 2 * SECOND
        use = getattr(world.b, verb)(leases)
        return both(world, ends, world.a.receive(1), use, lambda: None)

    lab.explore(f"sweep/{verb}", scene)


def test_sweep_sweep(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.send(2)
        world.lease(2, lease=SECOND)
        world.now = NOW + 2 * SECOND
        return both(world, ends, world.a.receive(1), world.b.receive(1), lambda: None)

    lab.explore("sweep/sweep", scene)


LIMITS = {
    "concurrency 1": ({"max_concurrency": 1}, 1),
    "concurrency 2": ({"max_concurrency": 2}, 2),
    "rate 1": ({"rate_count": 1, "rate_period_us": SECOND}, 1),
    "rate 2": ({"rate_count": 2, "rate_period_us": SECOND, "burst": 2}, 2),
    "ordered": ({"ordered": 1}, 3),
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("kind", ["policy", "default"])
def test_claim_claim_limited(lab: Lab, ends: tuple[str, str], limit: str, kind: str) -> None:
    columns, most = LIMITS[limit]

    def scene(world: World) -> Sides:
        ids = world.send(3)
        if kind == "policy":
            world.home.policy(**columns)()
        else:
            world.settings(**columns)

        def check() -> None:
            assert len(world.leased()) <= most
            if limit == "ordered":
                # One run from the head, in the hands of one consumer.
                given = [
                    value(s)
                    for s, end in zip((world.a, world.b), ends, strict=True)
                    if end == "commit" and value(s)
                ]
                assert len(given) <= 1, f"two runs: {given}"
                assert all([id for id, _ in run] == ids[: len(run)] for run in given)

        return both(world, ends, world.a.receive(3), world.b.receive(3), check)

    lab.explore(f"claim/claim, {kind} {limit}", scene)


@pytest.mark.parametrize(
    "columns",
    [
        {"limit_concurrency": 2},
        {"limit_rate_count": 2, "limit_rate_period_us": SECOND, "limit_burst": 2},
    ],
    ids=["concurrency", "rate"],
)
def test_claim_claim_queue_limit(lab: Lab, ends: tuple[str, str], columns: dict[str, int]) -> None:
    def scene(world: World) -> Sides:
        world.send(2, "c")
        world.send(2, "d")
        world.settings(**columns)

        def check() -> None:
            leased = len(world.leased("c")) + len(world.leased("d"))
            # It is waited for, so the second gets what the first left.
            assert leased == 2

        return both(world, ends, world.a.receive(2), world.b.receive(2), check)

    lab.explore(f"claim/claim, limit of the queue: {next(iter(columns))}", scene)


def test_carried_acks(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.home.policy(max_concurrency=1)()
        world.send(3)
        leases = world.lease(1)

        def check() -> None:
            assert len(world.leased()) <= 1
            if ends[0] == "commit":
                assert ("acked", *leases[0]) in world.log, "the carried ack was lost"

        return both(world, ends, world.a.receive(1, acks=leases), world.b.receive(1), check)

    lab.explore("receive with acks/receive, concurrency 1", scene)


def test_carried_acks_both(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.home.policy(max_concurrency=2)()
        world.send(5)
        first, second = world.lease(2)

        def check() -> None:
            assert len(world.leased()) <= 2

        return both(
            world, ends, world.a.receive(2, acks=[first]), world.b.receive(2, acks=[second]), check
        )

    lab.explore("receive with acks/the same, concurrency 2", scene)


def test_first_send_policy(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        def check() -> None:
            world.send(2, "new")
            got = world.home.receive(5)()
            committed = ends[0] == "commit"
            assert len(got) == (1 if ends[1] == "commit" else 2 + committed)

        return both(
            world, ends, world.a.send(item("new")), world.b.policy("new", max_concurrency=1), check
        )

    lab.explore("first send to a channel/policy set", scene)


def test_policy_claim(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.home.policy(max_concurrency=2)()
        world.send(3)

        def check() -> None:
            last = "/a2" if lab.database.name == "sqlite" else "/a1"
            claim = "b1" if lab.database.name == "sqlite" else "b0"
            bound = ends[0] == "commit" and world.before(last, claim)
            assert len(world.leased()) <= (1 if bound else 2)

        return both(world, ends, world.a.policy(max_concurrency=1), world.b.receive(3), check)

    lab.explore("policy set/claim", scene)


def test_cancel_ordered_head_claim(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.home.policy(ordered=1)()
        ids = world.send(3)

        def check() -> None:
            run = [id for id, _ in world.of("delivered")]
            if ("cancelled", ids[0], 0) in world.log:
                assert run in ([], ids[1:], ids[1:2])
            else:
                assert run in ([], ids[:2], ids[:1])

        return both(world, ends, world.a.cancel(ids[0]), world.b.receive(2), check)

    lab.explore("cancel of an ordered head/claim", scene)


def test_cancel_claim(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        ids = world.send(2)
        return both(world, ends, world.a.cancel(ids[0]), world.b.receive(2), lambda: None)

    lab.explore("cancel/claim", scene)


def test_fail_ordered_claim(lab: Lab, ends: tuple[str, str]) -> None:
    """While the head is on its way back, or not yet, the second never overtakes it."""

    def scene(world: World) -> Sides:
        world.home.policy(ordered=1)()
        ids = world.send(2)
        leases = world.lease(1)

        def check() -> None:
            assert all(id == ids[0] for id, _ in world.of("delivered"))

        return both(world, ends, world.a.fail(leases), world.b.receive(1), check)

    lab.explore("fail of an ordered head/claim", scene)


def test_permit_recovery(lab: Lab, ends: tuple[str, str]) -> None:
    """A heartbeat just in time by its own clock, a sweep just too late by its own."""

    def scene(world: World) -> Sides:
        permit = world.permit(10 * SECOND)
        world.send(1)
        world.lease(1, lease=SECOND, permit=permit)
        beat = world.a.extend_permit(permit, 60 * SECOND, NOW + 9 * SECOND)

        def check() -> None:
            world.now = NOW + 10 * SECOND
            alive = ("permit", permit, 0) in world.log
            again = len(world.of("delivered")) > 1
            assert not (alive and again), "the permit lives and its lease was given away"

        sweep = world.b.receive(1, now=NOW + 10 * SECOND)
        return both(world, ends, beat, sweep, check)

    lab.explore("permit heartbeat/recovery", scene)


def test_replace_claim(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.home.send(item(key="k", body=b"old"))()

        def check() -> None:
            [(_, outcome)] = value(world.a)
            assert outcome in "rf"
            if outcome == "f":
                assert world.bodies.get(next(iter(world.bodies))) == b"old"
            if outcome == "r" and ends[0] == "commit":
                [row] = world.rows().values()
                assert bytes(row["body"]) == b"new"
                for lease in world.of("delivered"):
                    assert world.bodies[lease] == b"new", "replaced after it was delivered"

        replace = world.a.send(item(key="k", conflict="r", body=b"new"))
        return both(world, ends, replace, world.b.receive(1), check)

    lab.explore("replace by key/claim", scene)


@pytest.mark.parametrize("conflict", ["e", "i", "r"])
@pytest.mark.parametrize("holder", ["nobody", "waiting", "dead"])
def test_same_key(lab: Lab, ends: tuple[str, str], conflict: str, holder: str) -> None:
    def scene(world: World) -> Sides:
        _hold_key(world, holder, "k")

        def check() -> None:
            holders = [r for r in world.rows().values() if r["key"] == "k"]
            assert len(holders) <= 1
            for session, end in zip((world.a, world.b), ends, strict=True):
                [(id, outcome)] = value(session)
                if end == "commit" and outcome in "sdr":
                    assert [row["id"] for row in holders] == [id]
            if holder != "waiting":
                assert holders, "nobody got the key"

        send = item(key="k", conflict=conflict)
        return both(world, ends, world.a.send(send), world.b.send(send), check)

    lab.explore(f"keyed send/the same key, {conflict}, held by {holder}", scene, drain=False)


def _hold_key(world: World, holder: str, *keys: str) -> None:
    if holder == "nobody":
        return
    world.home.send(*(item(key=key) for key in keys))()
    if holder == "dead":
        leases = world.lease(len(keys))
        home = world.home
        home.call(
            lambda: home.backend.apply_verb(world.queue, Kill("no"), leases, True, NOW),
            lambda _: [],
        )


@pytest.mark.parametrize("conflict", ["e", "i", "r"])
@pytest.mark.parametrize("holder", ["nobody", "waiting", "dead"])
def test_two_keys_in_opposite_orders(
    lab: Lab, ends: tuple[str, str], conflict: str, holder: str
) -> None:
    def scene(world: World) -> Sides:
        _hold_key(world, holder, "k", "l")
        k, one = item(key="k", conflict=conflict), item(key="l", conflict=conflict)

        def check() -> None:
            keys = [row["key"] for row in world.rows().values() if row["key"]]
            assert sorted(keys) == ["k", "l"]

        return both(world, ends, world.a.send(k, one), world.b.send(one, k), check)

    lab.explore(
        f"two keys/the same in opposite order, {conflict}, held by {holder}", scene, drain=False
    )


def test_purge_open_send(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.send(1)

        def check() -> None:
            world.purged = True
            sqlite = lab.database.name == "sqlite"
            sending, purged = ("a1", "/b2") if sqlite else ("a0", "/b1")
            rows = world.rows()
            if ends[1] == "rollback":
                assert len(rows) == 1 + (ends[0] == "commit")
            elif ends[0] == "commit" and world.before(purged, sending):
                assert len(rows) == 1, "sent after the purge"
            else:
                assert not rows, "sent or open before the purge"

        world.purged = ends[1] == "commit"
        return both(world, ends, world.a.send(item()), world.b.do("queue_purge", False), check)

    lab.explore("open send/purge", scene)


def test_purge_claim(lab: Lab, ends: tuple[str, str]) -> None:
    def scene(world: World) -> Sides:
        world.send(2)
        world.purged = ends[1] == "commit"

        def check() -> None:
            if world.purged:
                assert not world.rows()

        return both(world, ends, world.a.receive(1), world.b.do("queue_purge", False), check)

    lab.explore("claim/purge", scene)
