"""Tasks that run in processes: at the top of a module that another process can import. Where the
database is, it learns as any program would: from its environment."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fairturn
from fairturn import Backoff, Defer, GiveUp

QUEUE = "processes"


class Mark(fairturn.Middleware):
    @contextmanager
    def handling(self, context: Any) -> Iterator[None]:
        os.environ["MARKED_BY"] = f"{os.getpid()}"
        yield


app = fairturn.App(os.environ.get("FAIRTURN_TEST_URL", "sqlite:///not-set.db"), middleware=[Mark()])


@app.task(queue=QUEUE, executor="process", result=True)
def where(n: int) -> tuple[int, int, bool]:
    return n, os.getpid(), os.environ.get("MARKED_BY") == str(os.getpid())


@app.task(queue=QUEUE, executor="process", result=True)
async def where_async(n: int) -> tuple[int, int]:
    return n, os.getpid()


@app.task(queue=QUEUE, executor="process", retry=Backoff(initial=0, max_attempts=2))
def fails(text: str) -> None:
    raise ValueError(text)


@app.task(queue=QUEUE, executor="process")
def signals(ctx: fairturn.Context) -> None:
    if ctx.memo is None:
        raise Defer(0, memo={"pid": os.getpid()})
    raise GiveUp(f"memo {sorted(ctx.memo)}")


@app.task(queue=QUEUE, executor="process", timeout=0.2, retry=False)
def endless() -> None:
    while True:
        time.sleep(0.01)


@app.task(queue=QUEUE, executor="process", timeout=3.0, retry=False, result=True)
def extends(ctx: fairturn.Context) -> bool:
    assert ctx.remaining is not None
    ctx.extend(60)
    time.sleep(3.0)  # beyond the first deadline: that is what is tested
    return ctx.remaining > 30


@app.task(queue=QUEUE, executor="process", retry=Backoff(initial=0, max_attempts=3))
def dies(how: str) -> None:
    if how == "exit":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "real-time signal":
        os.kill(os.getpid(), 35)
    ctypes.string_at(0)


@app.task(queue=QUEUE, executor="process", result=True)
def progresses(ctx: fairturn.Context) -> int:
    ctx.progress(0.5, note="in a process")
    with ctx.yield_slot():
        return ctx.attempt


@app.task(queue=QUEUE, executor="process")
def in_transaction(ctx: fairturn.Context, queue: str) -> None:
    with ctx.transaction() as connection:
        cursor = connection.cursor()
        cursor.execute(f"INSERT INTO effect (queue, n) VALUES ('{queue}', 1)")
        cursor.close()


@app.task(queue=QUEUE, executor="process")
def waits() -> None:
    time.sleep(3600)


@app.task(queue=QUEUE, result=True)
def here() -> int:
    return os.getpid()
