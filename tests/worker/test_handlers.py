"""What handlers return and raise, and what becomes of their messages."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import fairturn
from fairturn import Backoff, Defer, GiveUp, Retry
from tests.worker.bench import AT_ONCE, PATIENCE, Bench, eventually


async def test_plain_functions_and_coroutine_functions(bench: Bench) -> None:
    ran: list[Any] = []

    @bench.task()
    def plain(n: int) -> None:
        ran.append((n, threading.current_thread() is threading.main_thread()))

    @bench.task()
    async def coroutine(n: int) -> None:
        ran.append((n, threading.current_thread() is threading.main_thread()))

    async with bench.worker() as worker:
        await plain.send_async(1)
        await coroutine.send_async(2)
        await eventually(bench.empty)
        assert worker.plan.running == 0
    assert sorted(ran) == [(1, False), (2, True)]
    stats = await bench.stats()
    assert (stats.acked, stats.delivered, stats.total) == (2, 2, 0)


async def test_results_are_kept_and_typed(bench: Bench) -> None:
    @bench.task(result=True)
    def plain(n: int) -> int:
        return n * 2

    @bench.task(result=True)
    async def coroutine(text: str) -> dict[str, Any]:
        return {"text": text}

    @bench.task(result=True, retry=False)
    def lying(n: int) -> int:
        return str(n)  # type: ignore[return-value]

    async with bench.worker():
        first, second = await plain.send_async(4), await coroutine.send_async("ä")
        wrong = await lying.send_async(1)
        assert (await plain.wait_async(first, PATIENCE)).result == 8
        assert (await coroutine.wait_async(second, PATIENCE)).result == {"text": "ä"}
        outcome = await lying.wait_async(wrong, PATIENCE)
    assert outcome.state == "dead"
    assert outcome.error == "InvalidArgument: the result of lying: not an int: '1'"


async def test_a_sync_caller_waits_for_a_result(bench: Bench) -> None:
    @bench.task(result=True)
    def double(n: int) -> int:
        return n * 2

    async with bench.worker():
        sent = await asyncio.to_thread(double.send, 21)
        outcome = await asyncio.to_thread(double.wait, sent, PATIENCE)
    assert (outcome.state, outcome.result) == ("done", 42)


async def test_a_failing_handler_is_retried_until_dead(bench: Bench) -> None:
    attempts: list[int] = []

    @bench.task(retry=Backoff(initial=0, jitter=0, max_attempts=3))
    def flaky(ctx: fairturn.Context) -> None:
        attempts.append(ctx.attempt)
        raise ValueError(f"no {ctx.attempt}")

    async with bench.worker():
        sent = await flaky.send_async()
        outcome = await flaky.wait_async(sent, PATIENCE)
    assert (outcome.state, outcome.error) == ("dead", "ValueError: no 3")
    assert attempts == [1, 2, 3]
    assert await bench.failures() == ["ValueError: no 1", "ValueError: no 2", "ValueError: no 3"]
    (last, *_) = await bench.queue.failures()
    assert 'raise ValueError(f"no {ctx.attempt}")' in last.details["traceback"]


async def test_without_a_rule_the_queue_says_how_often(bench: Bench) -> None:
    name = await bench.create(max_attempts=2)
    attempts: list[int] = []
    gave_up: list[str] = []

    async def hook(ctx: fairturn.AsyncContext, error: str) -> None:
        gave_up.append(error)

    @bench.task(queue=name, on_give_up=hook)
    async def flaky(ctx: fairturn.AsyncContext) -> None:
        attempts.append(ctx.attempt)
        raise ValueError("no")

    async with bench.worker():
        sent = await flaky.send_async()
        assert (await flaky.wait_async(sent, PATIENCE)).state == "dead"
    assert attempts == [1, 2]
    assert gave_up == ["ValueError: no"]


async def test_retries_by_type_of_exception(bench: Bench) -> None:
    attempts: dict[str, int] = {}

    @bench.task(retry={OSError: AT_ONCE, ConnectionError: Backoff(initial=0, max_attempts=2)})
    async def flaky(kind: str) -> None:
        attempts[kind] = attempts.get(kind, 0) + 1
        raise {"os": OSError, "connection": ConnectionResetError, "value": ValueError}[kind](kind)

    @bench.task(retry={OSError: None})
    async def strict(kind: str) -> None:
        attempts[kind] = attempts.get(kind, 0) + 1
        raise OSError(kind)

    await bench.queue.set(backoff=0.001)  # for the errors that have none of their own
    async with bench.worker():
        sent = [await flaky.send_async(kind) for kind in ("os", "connection", "value")]
        sent.append(await strict.send_async("never again"))
        for one in sent:
            assert (await flaky.wait_async(one, PATIENCE)).state == "dead"
    assert attempts == {"os": 5, "connection": 2, "value": 5, "never again": 1}


async def test_where_nobody_says_when_the_next_try_is_not_at_once(bench: Bench) -> None:
    @bench.task()
    async def fails() -> None:
        raise ValueError

    async with bench.worker():
        sent = await fails.send_async()
        await eventually(lambda: bench.failures(sent))
    [message] = await bench.queue.peek()
    last = (await bench.queue.failures())[0]  # a slow machine may have tried again
    usual = Backoff()
    wait = usual.initial * usual.factor ** (last.attempt - 1)
    delay = (message.due_at - last.at).total_seconds()
    assert wait * (1 - usual.jitter) - 0.001 <= delay <= wait + 0.001


async def test_one_call_may_have_attempts_of_its_own(bench: Bench) -> None:
    attempts: dict[int, int] = {}
    gave_up: list[int] = []

    def hook(ctx: fairturn.Context, error: str) -> None:
        gave_up.append(ctx.attempt)

    @bench.task(retry=Backoff(initial=0, max_attempts=3), on_give_up=hook)
    def flaky(n: int) -> None:
        attempts[n] = attempts.get(n, 0) + 1
        raise ValueError

    async with bench.worker():
        for n in (2, 7):
            sent = await flaky.with_options(max_attempts=n).send_async(n)
            assert (await flaky.wait_async(sent, PATIENCE)).state == "dead"
    assert attempts == {2: 2, 7: 7}
    assert gave_up == [2, 7]


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_the_give_up_hook_is_called_once(bench: Bench, kind: str) -> None:
    gave_up: list[Any] = []

    def plain_hook(ctx: fairturn.Context, error: str) -> None:
        gave_up.append((ctx.message.body, ctx.attempt, error))

    async def coroutine_hook(ctx: fairturn.AsyncContext, error: str) -> None:
        await asyncio.sleep(0)
        gave_up.append((ctx.message.body, ctx.attempt, error))

    hook = plain_hook if kind == "plain" else coroutine_hook

    @bench.task(retry=Backoff(initial=0, max_attempts=2), on_give_up=hook)
    def flaky(n: int) -> None:
        raise ValueError("no")

    @bench.task(on_give_up=hook)
    async def hopeless(n: int) -> None:
        raise GiveUp("never")

    async with bench.worker():
        first, second = await flaky.send_async(1), await hopeless.send_async(2)
        for task, sent in ((flaky, first), (hopeless, second)):
            assert (await task.wait_async(sent, PATIENCE)).state == "dead"
        await eventually(lambda: len(gave_up) == 2)
    assert sorted(gave_up, key=str) == [({"n": 1}, 2, "ValueError: no"), ({"n": 2}, 1, "never")]


async def test_a_broken_give_up_hook_harms_nobody(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def hook(ctx: fairturn.AsyncContext, error: str) -> None:
        raise RuntimeError("the hook itself")

    @bench.task(on_give_up=hook)
    async def hopeless() -> None:
        raise GiveUp("never")

    async with bench.worker():
        for _ in range(2):
            assert (
                await hopeless.wait_async(await hopeless.send_async(), PATIENCE)
            ).state == "dead"
        await eventually(lambda: caplog.text.count("RuntimeError: the hook itself") == 2)


async def test_retry_says_when(bench: Bench) -> None:
    attempts: list[int] = []

    @bench.task(retry=Backoff(initial=3600))
    def again(ctx: fairturn.Context) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise Retry("not ready", delay=0)

    async with bench.worker():
        await again.send_async()
        await eventually(bench.empty)
    assert attempts == [1, 2, 3]
    assert await bench.failures() == ["not ready", "not ready"]


async def test_what_cannot_be_carried_out_is_a_failure_all_the_same(bench: Bench) -> None:
    """A delay below 0, a memo that is no JSON, texts that no database takes: none may leave the
    message leased for ever."""
    errors: list[BaseException] = [
        Retry("sooner", delay=-5),
        Defer(-1),
        Defer(1, memo=object()),
        ValueError("a \0 and a \ud800"),
    ]

    @bench.task()
    async def wrong(n: int) -> None:
        raise errors[n]

    async with bench.worker():
        sent = [await wrong.with_options(max_attempts=1).send_async(n) for n in range(len(errors))]
        for one in sent:
            assert (await wrong.wait_async(one, PATIENCE)).state == "dead"


async def test_defer_keeps_a_memo(bench: Bench) -> None:
    seen: list[Any] = []

    @bench.task()
    async def pages(ctx: fairturn.AsyncContext) -> None:
        seen.append((ctx.memo, ctx.attempt))
        page = ctx.memo["page"] if ctx.memo else 0
        if page < 3:
            raise Defer(0, memo={"page": page + 1})
        if len(seen) == 4:
            raise Defer(0)

    async with bench.worker():
        await pages.send_async()
        await eventually(bench.empty)
    assert seen == [(None, 1), *(({"page": n}, 1) for n in (1, 2, 3, 3))]
    stats = await bench.stats()
    assert (stats.deferred, stats.failed, stats.acked) == (4, 0, 1)


# --- whose message is it --------------------------------------------------------------------------
async def test_an_unknown_task_fails_and_the_known_are_listed(bench: Bench) -> None:
    @bench.task()
    def known() -> None: ...

    @bench.task(name="another")
    def other() -> None: ...

    async with bench.worker():
        sent = await bench.queue.send({}, type="missing")
        without = await bench.queue.send({})
        await eventually(lambda: bench.failures(id=sent))
        await eventually(lambda: bench.failures(id=without))
    assert await bench.failures(sent) == [
        "no task is named 'missing'; this worker has another, known"
    ]
    assert await bench.failures(without) == [
        "the message has no type, and its queue has several tasks: another, known"
    ]
    assert (await bench.stats()).scheduled == 2  # a deploy may be on its way


async def test_a_message_without_a_type_goes_to_the_only_task(bench: Bench) -> None:
    ran: list[int] = []

    @bench.task()
    def only(n: int) -> None:
        ran.append(n)

    async with bench.worker():
        await bench.queue.send({"n": 5})
        await eventually(bench.empty)
    assert ran == [5]


async def test_an_invalid_body_fails_with_the_name_of_the_field(bench: Bench) -> None:
    @bench.task(retry=False)
    def strict(n: int, tags: list[str]) -> None:
        raise AssertionError("never called")

    bodies: list[Any] = [{"n": "x", "tags": []}, {"n": 1, "tags": [2]}, {"n": 1}, [1], b"raw"]
    async with bench.worker():
        for body in bodies:
            sent = await bench.queue.send(body, type="strict")
            assert (await strict.wait_async(sent, PATIENCE)).state == "dead"
    assert await bench.failures() == [
        "InvalidArgument: strict(n): not an int: 'x'",
        "InvalidArgument: strict(tags)[0]: not a string: 2",
        "InvalidArgument: strict(): missing a required argument: 'tags'",
        "InvalidArgument: strict(): not an object of arguments by name: [1]",
        "InvalidArgument: strict(): not an object of arguments by name: b'raw'",
    ]


async def test_a_task_may_be_sent_to_another_queue(bench: Bench) -> None:
    other = await bench.create()
    ran: list[str] = []

    @bench.task()
    def here(ctx: fairturn.Context) -> None:
        ran.append(ctx.queue)

    @bench.task(queue=other)
    def there() -> None: ...

    async with bench.worker():
        await here.with_options(queue=other).send_async()
        await here.send_async()
        await eventually(bench.empty)
    assert sorted(ran) == sorted([other, bench.name])


async def test_without_a_backoff_anywhere_there_is_one(bench: Bench) -> None:
    @bench.task()
    async def flaky() -> None:
        raise ValueError("not now")

    async with bench.worker():
        sent = await flaky.send_async()
        await eventually(lambda: bench.failures(id=sent))
    waiting = await bench.queue.get(id=sent)
    assert waiting is not None
    assert waiting.state == "scheduled"


async def test_a_handlers_traceback_is_in_the_log(bench: Bench, caplog: Any) -> None:
    @bench.task(retry=False)
    def broken() -> None:
        raise KeyError("x")

    async with bench.worker():
        await broken.send_async()
        await eventually(bench.empty)
    [record] = [r for r in caplog.records if "is dead" in r.getMessage()]
    assert "test_handlers.py" in record.exc_text
