"""How often a task is tried when its ``retry`` has a number for each type of error."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn import Backoff
from fairturn.tasks.verdicts import RetryPolicy

NOW = 0.001  # seconds: not worth waiting for


def tries(policy: RetryPolicy, error: Exception, queue: int, override: int | None = None) -> int:
    """How often it runs, up to 50."""
    most = policy.max_attempts if override is None else override
    most = queue if most is None else most
    usual = queue if override is None else override
    for attempt in range(1, 51):
        verdict = policy.judge(error, attempt, most, usual)
        if verdict.final or (most and attempt >= most):
            assert verdict.final, "the database buries it, and nobody is told"
            return attempt
    return 50


@pytest.mark.parametrize(
    ("rule", "error", "queue", "expected"),
    [
        (None, OSError(), 5, 5),
        (None, OSError(), 0, 50),
        (False, OSError(), 5, 1),
        (Backoff(max_attempts=8), OSError(), 5, 8),
        (Backoff(max_attempts=2), OSError(), 5, 2),
        (Backoff(max_attempts=0), OSError(), 5, 50),
        (Backoff(), OSError(), 5, 5),
        ({OSError: Backoff(max_attempts=8)}, OSError(), 5, 8),
        ({OSError: Backoff(max_attempts=2)}, OSError(), 5, 2),
        ({OSError: Backoff(max_attempts=0)}, OSError(), 5, 50),
        ({OSError: Backoff()}, OSError(), 5, 5),
        ({OSError: None}, OSError(), 5, 1),
        # what is not listed: as the queue says, whatever the others may do
        ({OSError: Backoff(max_attempts=8)}, KeyError(), 5, 5),
        ({OSError: Backoff(max_attempts=0)}, KeyError(), 5, 5),
        ({OSError: None}, KeyError(), 5, 5),
        # a rule without a number beside one with
        ({OSError: Backoff(max_attempts=8), KeyError: Backoff()}, KeyError(), 5, 5),
    ],
)
def test_how_often(rule: Any, error: Exception, queue: int, expected: int) -> None:
    assert tries(RetryPolicy(rule, "t"), error, queue) == expected


@pytest.mark.parametrize("rule", [None, Backoff(max_attempts=9), {OSError: Backoff()}])
def test_one_call_may_say_otherwise(rule: Any) -> None:
    assert tries(RetryPolicy(rule, "t"), OSError(), 5, override=3) == 3


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def test_the_database_is_as_patient_as_the_most_patient_rule(tmp_path: Path) -> None:
    app = fairturn.App(f"sqlite:///{tmp_path / 'retry.db'}")
    told: list[tuple[int, str]] = []

    @app.task(
        retry={OSError: Backoff(initial=NOW, maximum=NOW, max_attempts=7)},
        on_give_up=lambda context, error: told.append((context.attempt, error)),
    )
    def fails(kind: str) -> None:
        raise OSError("away") if kind == "away" else KeyError("wrong")

    async def main() -> None:
        app.db.queue("default").create(max_attempts=2, backoff=NOW)
        fails.send("away")
        fails.send("wrong")
        async with app.worker():
            await until(lambda: len(told) == 2)
        await app.close_async()

    asyncio.run(main())
    assert sorted(told) == [(2, "KeyError: 'wrong'"), (7, "OSError: away")]


def test_the_lost_lease_of_another_message_is_a_failure_like_any_other(tmp_path: Path) -> None:
    """Its own lease is alive: nobody else would ever get the message."""
    app = fairturn.App(f"sqlite:///{tmp_path / 'lost.db'}")
    other = app.db.queue("other")

    @app.task(retry=Backoff(max_attempts=1))
    def twice() -> None:
        other.send("once")
        [message] = other.receive()
        message.ack()
        message.ack()

    async def main() -> None:
        other.create()
        app.db.queue("default").create()
        twice.send()
        async with app.worker():
            await until(lambda: app.db.queue("default").stats().dead == 1)
        await app.close_async()

    asyncio.run(main())
