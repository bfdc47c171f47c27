"""Who may run when: slots lent, kept for the urgent, shared by weight; limits of channels."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import fairturn
from fairturn import Backoff, Defer, GiveUp, Policy, Retry
from tests.worker.bench import PATIENCE, AtOnce, Bench, eventually


async def test_no_more_handlers_than_slots_and_no_fewer(bench: Bench) -> None:
    """rsqueue's agent: waits at capacity."""
    inside = AtOnce()
    full = asyncio.Event()

    @bench.task()
    async def busy() -> None:
        with inside:
            if inside.now == 3:
                full.set()
            await full.wait()

    async with bench.worker(concurrency=3) as worker:
        await busy.send_many_async([{}] * 12)
        await eventually(bench.empty)
        assert worker.plan.running == 0
    assert inside.most == 3


# --- a handler that waits for other work --------------------------------------------------------
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_a_handler_that_waits_for_a_child_lends_its_slot(bench: Bench, kind: str) -> None:
    """rsqueue's agent: recursion frees a slot."""

    @bench.task(result=True)
    def child(n: int) -> int:
        return n + 1

    @bench.task(result=True)
    def plain(ctx: fairturn.Context) -> int:
        sent = child.send(1)
        with ctx.yield_slot():
            return child.wait(sent, PATIENCE).result

    @bench.task(result=True)
    async def coroutine(ctx: fairturn.AsyncContext) -> int:
        sent = await child.send_async(1)
        async with ctx.yield_slot():
            outcome = await child.wait_async(sent, PATIENCE)
        return outcome.result

    inside = AtOnce()

    @bench.task()
    async def probe() -> None:
        with inside:
            await asyncio.sleep(0.001)

    parent = plain if kind == "plain" else coroutine
    async with bench.worker(concurrency=1) as worker:
        sent = [await parent.send_async() for _ in range(3)]
        for one in sent:
            assert (await parent.wait_async(one, PATIENCE)).result == 2
        await probe.send_many_async([{}] * 10)
        await eventually(bench.empty)
        await eventually(lambda: worker.plan.running == 0)
    assert inside.most == 1


async def test_a_deep_chain_of_parents_in_one_slot(bench: Bench) -> None:
    @bench.task(result=True)
    def depth(n: int, ctx: fairturn.Context) -> int:
        if n == 0:
            return 0
        sent = depth.send(n - 1)
        with ctx.yield_slot():
            below = depth.wait(sent, PATIENCE)
        return below.result + 1

    async with bench.worker(concurrency=1) as worker:
        assert (await depth.wait_async(await depth.send_async(6), PATIENCE)).result == 6
        await eventually(lambda: worker.plan.running == 0)


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_a_lent_slot_comes_back_after_an_error(bench: Bench, kind: str) -> None:
    @bench.task(retry=False)
    def plain(ctx: fairturn.Context) -> None:
        with ctx.yield_slot():
            raise ValueError("in between")

    @bench.task(retry=False)
    async def coroutine(ctx: fairturn.AsyncContext) -> None:
        async with ctx.yield_slot():
            raise ValueError("in between")

    task = plain if kind == "plain" else coroutine
    async with bench.worker(concurrency=1) as worker:
        for _ in range(3):
            assert (await task.wait_async(await task.send_async(), PATIENCE)).state == "dead"
        await eventually(lambda: worker.plan.running == 0)


async def test_a_handler_cancelled_while_it_wants_its_slot_back_leaves_none_behind(
    bench: Bench,
) -> None:
    lent, taken, hold = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @bench.task(retry=False, timeout=0.5)
    async def parent(ctx: fairturn.AsyncContext) -> None:
        async with ctx.yield_slot():
            lent.set()
            await taken.wait()

    @bench.task()
    async def other() -> None:
        taken.set()
        await hold.wait()

    async with bench.worker(concurrency=1) as worker:
        sent = await parent.send_async()
        await lent.wait()
        await other.send_async()
        outcome = await parent.wait_async(sent, PATIENCE)  # timed out waiting for its slot
        assert outcome.error.startswith("TaskTimeout")
        assert worker.plan.running == 1
        hold.set()
        await eventually(bench.empty)
        await eventually(lambda: worker.plan.running == 0)
        await other.send_async()  # and the slot can be used
        await eventually(bench.empty)


# --- slots for the urgent -----------------------------------------------------------------------
async def test_an_urgent_message_starts_though_all_ordinary_slots_are_busy(bench: Bench) -> None:
    inside = AtOnce()
    hold = asyncio.Event()

    @bench.task()
    async def ordinary() -> None:
        with inside:
            await hold.wait()

    @bench.task(priority=10, result=True)
    async def urgent() -> int:
        return inside.now

    async with bench.worker(concurrency=3, reserve={0: 2, 10: 3}) as worker:
        await ordinary.send_many_async([{}] * 6)
        await eventually(lambda: inside.now == 2)
        for _ in range(3):
            sent = await urgent.send_async()
            assert (await urgent.wait_async(sent, PATIENCE)).result == 2
        hold.set()
        await eventually(bench.empty)
        await eventually(lambda: worker.plan.running == 0)
    assert inside.most == 2


async def test_queues_by_weight(bench: Bench) -> None:
    heavy, light = await bench.create(), await bench.create()
    order: list[str] = []

    @bench.task(queue=heavy)
    async def a() -> None:
        order.append("a")

    @bench.task(queue=light)
    async def b() -> None:
        order.append("b")

    await a.send_many_async([{}] * 300)
    await b.send_many_async([{}] * 300)
    async with bench.worker(concurrency=8, queues={heavy: 3, light: 1}, prefetch=0):
        await eventually(bench.empty)
    assert (order.count("a"), order.count("b")) == (300, 300)
    assert 0.6 < order[:200].count("a") / 200 < 0.9


async def test_only_the_named_queues_are_worked_on(bench: Bench) -> None:
    mine, other = await bench.create(), await bench.create()
    ran: list[str] = []

    @bench.task(queue=mine)
    async def a() -> None:
        ran.append("a")

    @bench.task(queue=other)
    async def b() -> None:
        ran.append("b")

    await b.send_async()
    async with bench.worker(queues=[mine]):
        await a.send_async()
        await eventually(lambda: ran == ["a"])
    assert (await bench.stats(other)).ready == 1
    with pytest.raises(fairturn.InvalidArgument, match="no task uses queue 'typo'"):
        bench.worker(queues=["typo"])


# --- what the handlers take longer than thought -------------------------------------------------
async def test_prefetched_messages_go_back_when_a_handler_takes_long(bench: Bench) -> None:
    hold = asyncio.Event()
    ran: list[int] = []

    @bench.task()
    async def task(n: int) -> None:
        ran.append(n)
        if n == 100:
            await hold.wait()

    async with bench.worker(concurrency=1) as worker:
        await task.send_many_async({"n": n} for n in range(30))  # quick: it learns to prefetch
        await eventually(bench.empty)
        await bench.queue.pause()
        await task.with_options(priority=1).send_async(100)
        await task.send_many_async({"n": n} for n in range(200, 205))
        await bench.queue.resume()
        await eventually(lambda: 100 in ran)
        others = await eventually(lambda: bench.queue.receive(10))  # nobody else is kept waiting
        await eventually(lambda: worker.plan.buffered == 0)
        await bench.queue.release(others)
        hold.set()
        await eventually(bench.empty)
    assert sorted(ran) == [*range(30), 100, *range(200, 205)]
    assert {m.attempts for m in others} == {1}


# --- limits of channels -------------------------------------------------------------------------
def calls(channels: int = 5, each: int = 12) -> list[dict[str, Any]]:
    return [{"channel": f"c{c}", "n": n} for n in range(each) for c in range(channels)]


async def test_an_ordered_channel_is_in_order_under_many_slots(bench: Bench) -> None:
    """One after the other, though a receive gives many: also those that fail, defer or die."""
    name = await bench.create(policy=Policy(ordered=True))
    inside: dict[str, AtOnce] = {}
    done: dict[str, list[int]] = {}
    tried: set[tuple[str, int]] = set()

    @bench.task(
        queue=name, channel=lambda channel, n: channel, retry=Backoff(initial=0.02, jitter=0)
    )
    async def in_order(channel: str, n: int) -> None:
        with inside.setdefault(channel, AtOnce()):
            await asyncio.sleep(0)
            again = (channel, n) in tried
            tried.add((channel, n))
            if n % 5 == 0 and not again:
                raise Defer(0)
            if n % 5 == 1 and not again:
                raise ValueError("later")
            if n % 5 == 2 and not again:
                raise Retry("at once", delay=0)
            done.setdefault(channel, []).append(n)
            if n % 5 == 3:
                raise GiveUp("and go on")

    await in_order.send_many_async(calls())
    async with bench.worker(concurrency=20) as worker:
        await eventually(bench.empty)
        await eventually(lambda: worker.plan.running == 0)
    assert done == {f"c{c}": list(range(12)) for c in range(5)}
    assert {counter.most for counter in inside.values()} == {1}
    assert (worker.plan.buffered, worker.settler.pending) == (0, 0)


async def test_two_workers_share_ordered_channels(bench: Bench) -> None:
    name = await bench.create(policy=Policy(ordered=True))
    inside: dict[str, AtOnce] = {}
    done: dict[str, list[int]] = {}

    @bench.task(queue=name, channel=lambda channel, n: channel)
    async def in_order(channel: str, n: int) -> None:
        with inside.setdefault(channel, AtOnce()):
            await asyncio.sleep(0.001)
            done.setdefault(channel, []).append(n)
            if channel == "c0" and n == 5:
                first.stop()  # in the middle of a run

    await in_order.send_many_async(calls())
    first = bench.worker(concurrency=3)
    async with bench.worker(concurrency=3, name="second"):
        await first.run()
        await eventually(bench.empty)
    assert done == {f"c{c}": list(range(12)) for c in range(5)}
    assert {counter.most for counter in inside.values()} == {1}


async def test_a_channels_limit_is_exact_under_many_slots(bench: Bench) -> None:
    name = await bench.create(policy=Policy(max_concurrency=3))
    inside: dict[str, AtOnce] = {}
    done: dict[str, list[int]] = {}
    lock = threading.Lock()
    full = {f"c{c}": threading.Barrier(3) for c in range(5)}

    @bench.task(queue=name, channel=lambda channel, n: channel)
    def in_parallel(channel: str, n: int) -> None:
        with lock:
            counter = inside.setdefault(channel, AtOnce())
            counter.__enter__()
        full[channel].wait(PATIENCE)  # until there are three
        with lock:
            counter.__exit__()
            done.setdefault(channel, []).append(n)

    await in_parallel.send_many_async(calls())
    async with bench.worker(concurrency=20):
        await eventually(bench.empty)
    assert {name: sorted(ns) for name, ns in done.items()} == {
        f"c{c}": list(range(12)) for c in range(5)
    }
    assert {counter.most for counter in inside.values()} == {3}


async def test_the_limit_of_a_queue_is_exact_over_two_workers(bench: Bench) -> None:
    await bench.queue.set_limit(max_concurrency=4)
    inside, full = AtOnce(), asyncio.Barrier(4)

    @bench.task(channel=lambda channel, n: channel)
    async def limited(channel: str, n: int) -> None:
        with inside:
            await full.wait()  # until there are four

    await limited.send_many_async(calls())
    async with bench.worker(concurrency=20), bench.worker(concurrency=20, name="second"):
        await eventually(bench.empty)
    assert inside.most == 4
