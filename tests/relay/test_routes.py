"""What the relay does with messages, whatever the destination is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fairturn
from fairturn.relay import Relay, route, runner
from fairturn.relay.destination import Later, Never, Outcome, Parcel
from tests.relay.places import Place, relayed
from tests.worker.bench import PATIENCE, Bench, eventually


async def test_what_is_handed_over_is_gone_here(bench: Bench) -> None:
    place = Place()
    await bench.queue.send_many(range(250))
    async with relayed(bench, place):
        await eventually(bench.empty)
    assert sorted(place.bodies) == list(range(250))
    assert (await bench.stats()).acked == 250
    assert place.closed


async def test_a_message_waits_until_it_is_due(bench: Bench) -> None:
    place = Place()
    await bench.queue.send("later", delay=3600)
    await bench.queue.send("now")
    async with relayed(bench, place):
        await eventually(lambda: place.bodies == ["now"])
        await bench.queue.reschedule(id=(await bench.queue.peek())[0].id, delay=0)
        await eventually(lambda: place.bodies == ["now", "later"])


async def test_a_place_that_keeps_the_delay_gets_it_early(bench: Bench) -> None:
    place = Place(ahead=900)
    await bench.queue.send("soon", delay=600)
    await bench.queue.send("next year", delay=86_400 * 365)
    async with relayed(bench, place):
        await eventually(lambda: place.bodies == ["soon"])
    assert 540 < place.remaining[0] <= 600
    assert [m.body for m in await bench.queue.peek()] == ["next year"]


async def test_ahead_can_be_less(bench: Bench) -> None:
    place = Place(ahead=900)
    await bench.queue.send("in ten minutes", delay=600)
    await bench.queue.send("in one", delay=60)
    async with relayed(bench, place, ahead=120):
        await eventually(lambda: place.bodies == ["in one"])
    assert (await bench.stats()).scheduled == 1


async def test_an_overdue_message_has_no_delay_left(bench: Bench) -> None:
    place = Place(ahead=900)
    await bench.queue.send("overdue", at=time.time() - 7200)
    async with relayed(bench, place):
        await eventually(lambda: place.bodies == ["overdue"])
    assert place.remaining == [0]


async def test_turned_away_it_comes_again_and_keeps_its_due_time(bench: Bench) -> None:
    place = Place(ahead=900)
    refusals = iter([Later("throttled"), Later("throttled")])
    place.answer = lambda parcel: next(refusals, None)
    await bench.queue.send("early", delay=600)
    due = (await bench.queue.peek())[0].due_at
    async with relayed(bench, place) as relay:
        await eventually(lambda: place.bodies == ["early"])
        await eventually(bench.empty)
        assert relay.snapshot()[bench.name]["later"] == 2
    assert {parcel.due_us for parcel in place.came} == {int(due.timestamp() * 1_000_000)}
    assert len({parcel.identity for parcel in place.came}) == 1


async def test_what_can_never_be_taken_is_dead_and_says_why(bench: Bench) -> None:
    place = Place()
    place.answer = lambda parcel: Never("too large") if parcel.message.body == "big" else None
    await bench.queue.send_many(["big", "small"])
    async with relayed(bench, place):
        await eventually(lambda: place.bodies == ["small"])
        await eventually(bench.empty)
    (dead,) = await bench.queue.peek(state="dead")
    assert (dead.body, dead.error) == ("big", "too large")


async def test_a_place_that_is_down_costs_no_attempts(bench: Bench) -> None:
    place = Place()
    place.answer = lambda parcel: Later("the line is dead", down=True)
    await bench.queue.send_many(range(5))
    async with relayed(bench, place) as relay:
        await eventually(lambda: len(place.waves) > 2)
        assert relay.routes[bench.name].down == "the line is dead"
        assert (await bench.queue.recall(route.TROUBLE))["reason"] == "the line is dead"
        place.answer = lambda parcel: None
        await eventually(bench.empty)
        await eventually(lambda: relay.routes[bench.name].down is None)
    assert sorted(place.bodies) == list(range(5))
    assert {parcel.message.attempts for parcel in place.came} == {1}
    assert await bench.queue.recall(route.TROUBLE) is None


async def test_a_place_that_is_down_stops_no_other(bench: Bench) -> None:
    down, up = Place(), Place()
    down.answer = lambda parcel: Later("no", down=True)
    other = await bench.create()
    relay = Relay(bench.app.async_db, {bench.name: down, other: up}, schedules=False)
    async with relay:
        await bench.queue.send("waits")
        await eventually(lambda: relay.routes and relay.routes[bench.name].down)
        await bench.app.async_db.queue(other).send("goes")
        await eventually(lambda: up.bodies == ["goes"])
        assert down.bodies == []
        await eventually(lambda: len(down.waves) > 3)


async def test_what_was_on_its_way_when_a_relay_died_comes_again(bench: Bench) -> None:
    """It was perhaps handed over: never lost, and recognisable by its identity."""
    first, second = Place(ahead=900), Place(ahead=900)
    first.gate.clear()
    await bench.queue.send("precious", delay=300)
    relay = Relay(bench.app.async_db, {bench.name: first}, lease=1, schedules=False)
    dying = asyncio.create_task(relay.run())
    await eventually(lambda: first.came)
    for task in [*relay._running.values(), *relay.routes[bench.name]._hand_overs, dying]:
        task.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    async with relayed(bench, second):
        await eventually(lambda: second.bodies == ["precious"])
    assert first.came[0].identity == second.came[0].identity
    assert first.came[0].due_us == second.came[0].due_us
    assert second.remaining[0] > 200


async def test_a_long_hand_over_keeps_its_leases(bench: Bench) -> None:
    slow, quick = Place(), Place()
    slow.gate.clear()
    await bench.queue.send("slow")
    async with relayed(bench, slow, lease=3):
        await eventually(lambda: slow.came)
        async with relayed(bench, quick, lease=3):
            (message,) = await bench.queue.peek()
            await eventually(lambda: _extended(bench, message.lease_until))
            slow.gate.set()
            await eventually(bench.empty)
    assert (slow.bodies, quick.came) == (["slow"], [])


async def _extended(bench: Bench, lease_until: datetime | None) -> bool:
    """By more than one lease: without it another would have the message now."""
    (message,) = await bench.queue.peek()
    assert message.lease_until is not None
    assert lease_until is not None
    return message.lease_until > lease_until + timedelta(seconds=3)


async def test_many_relays_share_the_work(bench: Bench) -> None:
    places = [Place() for _ in range(3)]
    await bench.queue.send_many(range(600))
    async with (
        relayed(bench, places[0]),
        relayed(bench, places[1]),
        relayed(bench, places[2]),
    ):
        await eventually(bench.empty)
    assert sorted(n for place in places for n in place.bodies) == list(range(600))


async def test_stopping_lets_what_is_on_its_way_arrive(bench: Bench) -> None:
    place = Place()
    place.gate.clear()
    await bench.queue.send("on its way")
    async with relayed(bench, place) as relay:
        await eventually(lambda: place.came)
        relay.stop()
        place.gate.set()
    assert place.bodies == ["on its way"]
    assert (await bench.stats()).acked == 1


async def test_order_is_kept_where_a_channel_asks_for_it(bench: Bench) -> None:
    """Also when a destination refuses one message and would take the next."""
    await bench.queue.set(policy=fairturn.Policy(ordered=True))
    place = Place()
    refused: set[int] = set()

    def answer(parcel: Parcel) -> Later | None:
        n = parcel.message.body
        if n % 5 == 0 and n not in refused:
            refused.add(n)
            return Later("not now")
        return None

    place.answer = answer
    await bench.queue.send_many([fairturn.Send(n, channel=f"c{n % 3}") for n in range(24)])
    async with relayed(bench, place):
        await eventually(bench.empty)
    for channel in range(3):
        expected = [n for n in range(24) if n % 3 == channel]
        assert [n for n in place.bodies if n % 3 == channel] == expected
    assert len(refused) == 5


async def test_the_same_key_again_is_another_message(bench: Bench) -> None:
    place = Place(ahead=900)
    place.answer = lambda parcel: Later("no", down=True)
    options = {"key": "job", "on_conflict": "replace", "delay": 600}
    await bench.queue.send("first", **options)
    async with relayed(bench, place) as relay:
        await eventually(lambda: place.came)
        await eventually(
            lambda: _replaced(bench, options) if relay.routes[bench.name].down else False
        )
        place.answer = lambda parcel: None
        await eventually(lambda: place.bodies == ["second"])
    identities = {parcel.message.body: parcel.identity for parcel in place.came}
    assert identities["first"] != identities["second"]


async def _replaced(bench: Bench, options: dict[str, object]) -> bool:
    return (await bench.queue.send("second", **options)).outcome == "replaced"  # type: ignore[arg-type]


async def test_a_schedule_whose_queue_is_relayed(bench: Bench) -> None:
    place = Place()
    schedule = bench.app.async_db.schedule(bench.name)
    await schedule.set(queue=bench.name, body={"tick": True}, every=1)
    async with relayed(bench, place, schedules=True):
        await eventually(lambda: len(place.kept) >= 2)
    await schedule.remove()
    assert place.bodies[0] == {"tick": True}
    assert place.kept[0].message.headers["fairturn.schedule"]["name"] == bench.name


@pytest.mark.parametrize("fault", ["raises", "tells too little"])
async def test_a_destination_that_is_wrong_itself(bench: Bench, fault: str) -> None:
    class Wrong(Place):
        async def hand_over(self, parcels: Sequence[Parcel], now_us: int) -> Sequence[Outcome]:
            if fault == "raises":
                raise KeyError("oops")
            return []

    await bench.queue.send_many(range(3))
    async with relayed(bench, Wrong()) as relay:
        await eventually(lambda: relay.routes and relay.routes[bench.name].down)
        said = relay.routes[bench.name].down
        assert said in ("KeyError: 'oops'", "the destination returned 0 outcomes for 3 messages")
    assert (await bench.stats()).ready == 3  # nothing waits for a lease to end


async def test_a_sync_database_is_refused(bench: Bench) -> None:
    with pytest.raises(fairturn.InvalidArgument, match="connect_async"):
        Relay(bench.app.db)  # type: ignore[arg-type]


async def test_who_cannot_wait_for_a_hand_over_leaves_nothing_behind(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GRACE", 0.05)
    place = Place()
    place.gate.clear()
    await bench.queue.send("hangs")
    async with relayed(bench, place) as relay:
        await eventually(lambda: place.came)
        flights = set(relay.routes[bench.name]._hand_overs)
    await asyncio.wait(flights)
    assert flights
    assert all(flight.cancelled() for flight in flights)
    assert place.closed
    assert (await bench.stats()).leased == 1  # it comes back when its lease ends


async def test_however_many_hang_it_stops(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GRACE", 0.05)
    place = Place()
    place.most = 1
    place.gate.clear()
    await bench.queue.send_many(range(route.HAND_OVERS + 1))
    relay = Relay(bench.app.async_db, {bench.name: place}, schedules=False)
    task = asyncio.create_task(relay.run())
    await eventually(lambda: len(place.came) == route.HAND_OVERS)
    relay.stop()
    done, _ = await asyncio.wait([task], timeout=PATIENCE)
    place.gate.set()
    await task
    assert done
    assert place.closed


async def test_one_message_at_fault_holds_up_no_others(bench: Bench) -> None:
    """Though the place says of it that all is down."""
    place = Place()
    place.most = 1
    place.answer = lambda parcel: Later("broken", True) if parcel.message.body == "bad" else None
    await bench.queue.send_many(["bad", *range(20)])
    async with relayed(bench, place):
        await eventually(lambda: sorted(place.bodies) == list(range(20)))
        place.answer = lambda parcel: None
        await eventually(lambda: "bad" in place.bodies)
        await eventually(bench.empty)
    [bad] = {parcel.message.attempts for parcel in place.came if parcel.message.body == "bad"}
    assert bad == 1  # the delivery itself: being turned away costs none


async def test_a_long_reason_does_no_harm(bench: Bench) -> None:
    place = Place()
    bodies = iter([Later("long " * 100_000, down=True)])
    place.answer = lambda parcel: next(bodies, None)
    await bench.queue.send_many(range(3))
    async with relayed(bench, place) as relay:
        await eventually(bench.empty)
        assert relay.totals().lost == 0
    assert sorted(place.bodies) == [0, 1, 2]
    assert len(place.came) == 4


async def test_what_is_rescheduled_after_it_was_turned_away_goes_by_its_new_time(
    bench: Bench,
) -> None:
    place = Place(ahead=900)
    place.answer = lambda parcel: Later("throttled")
    await bench.queue.send("early", delay=600, key="k")
    async with relayed(bench, place) as relay:
        await eventually(lambda: relay.totals().later)
    place.answer = lambda parcel: None
    assert await bench.queue.reschedule(key="k", delay=0)
    async with relayed(bench, place):
        await eventually(bench.empty)
    assert place.remaining == [0]


async def test_it_goes_down_while_more_is_received(bench: Bench) -> None:
    place = Place()
    async with relayed(bench, place) as relay:
        await eventually(lambda: bench.name in relay.routes)
        route = relay.routes[bench.name]
        receive = route.queue.receive

        async def receive_and_go_down(n: int, **options: Any) -> Any:
            found = await receive(n, **options)
            if len(found) > 1:
                route.down = "a flight has told it meanwhile"
            return found

        route.queue.receive = receive_and_go_down  # type: ignore[method-assign]
        await bench.queue.send_many(range(3))
        await eventually(bench.empty)
        assert route.down is None
    assert sorted(place.bodies) == [0, 1, 2]
    assert len(place.came) == 3


async def test_a_deferral_that_is_told_late_keeps_the_due_time(bench: Bench) -> None:
    """The database was away until the pause was over: the message is not due for that."""
    place = Place(ahead=900)
    place.answer = lambda parcel: Later("throttled")
    due = datetime.now(UTC) + timedelta(seconds=600)
    async with relayed(bench, place) as relay:
        await eventually(lambda: bench.name in relay.routes)
        queue = relay.routes[bench.name].queue
        defer = queue.defer

        async def tell_late(messages: Any, *, at: datetime, memo: Any) -> Any:
            place.answer = lambda parcel: None
            past = at - timedelta(seconds=60)
            until = memo["until"] - 60_000_000
            return await defer(messages, at=past, memo=memo | {"until": until})

        queue.defer = tell_late  # type: ignore[method-assign]
        await bench.queue.send("early", at=due)
        await eventually(bench.empty)
    assert {parcel.due_us for parcel in place.came} == {round(due.timestamp() * 1_000_000)}
    assert len(place.came) == 2


async def test_alone_it_stays_where_it_is_while_all_is_down(bench: Bench) -> None:
    """Whoever watches the age of the oldest learns that nothing goes."""
    place = Place()
    place.answer = lambda parcel: Later("down", down=True)
    await bench.queue.send("alone")
    due = (await bench.queue.peek())[0].due_at
    async with relayed(bench, place) as relay:
        await eventually(lambda: len(place.came) > route.PROBES + 1)
        assert relay.totals().later == 0
        assert (await bench.queue.peek())[0].due_at == due
        place.answer = lambda parcel: None
        await eventually(bench.empty)


async def test_what_a_relay_that_died_has_told_is_over_with_the_next_hand_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await route.remember(bench.queue, "down", 1)
    async with relayed(bench, Place()):
        await bench.queue.send("the first of a new relay")
        await eventually(lambda: _untold(bench))
    monkeypatch.setattr(route, "STORE", 0)
    async with relayed(bench, Place()):
        await bench.queue.send("the first")
        await eventually(bench.empty)
        await route.remember(bench.queue, "down", 1)
        await bench.queue.send("the next")
        await eventually(lambda: _untold(bench))


async def _untold(bench: Bench) -> bool:
    return await bench.queue.recall(route.TROUBLE) is None
