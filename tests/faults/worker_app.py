"""The application whose workers the fault tests kill, freeze and cut off: ``python -m
tests.faults.worker_app '{"queues": ["plain"]}'``, the options of ``app.run()`` as JSON.

Handlers write what they do into a file of their process (``Notes``), which outlives a kill -9. The
database and the directory of the notes come by the environment, so that the processes of
``executor="process"`` find them too.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import fairturn
from fairturn.worker.runtime import Worker
from tests.faults.crew import Notes

notes = Notes(Path(os.environ["FAULTS_NOTES"]))


class Told(fairturn.Middleware):
    def worker_started(self, worker: Worker) -> None:
        notes.add("ready")


app = fairturn.App(os.environ["FAULTS_URL"], middleware=[Told()])


@contextlib.contextmanager
def noted(ctx: Any, n: int) -> Any:
    """A line when it starts, and one when it ends well."""
    message = ctx.message
    about = {"id": message.id, "delivery": message.deliveries, "attempt": message.attempts}
    notes.add("start", n=n, **about)
    yield
    notes.add("end", n=n, **about)


# --- work without an effect in the database ----------------------------------------------------
@app.task(queue="plain")
def plain(ctx: fairturn.Context, n: int, seconds: float = 0.0) -> None:
    with noted(ctx, n):
        time.sleep(seconds)


@app.task(queue="plain")
async def plain_async(ctx: fairturn.AsyncContext, n: int, seconds: float = 0.0) -> None:
    with noted(ctx, n):
        await asyncio.sleep(seconds)


# --- work with one ----------------------------------------------------------------------------
def insert(n: int, delivery: int) -> str:
    return f"INSERT INTO effect (n, delivery) VALUES ({n}, {delivery})"


@app.task(queue="effect")
def effect(ctx: fairturn.Context, n: int, seconds: float = 0.0) -> None:
    with noted(ctx, n), ctx.transaction() as connection:
        connection.cursor().execute(insert(n, ctx.message.deliveries))
        time.sleep(seconds)


@app.task(queue="effect")
async def effect_async(ctx: fairturn.AsyncContext, n: int, seconds: float = 0.0) -> None:
    with noted(ctx, n):
        async with ctx.transaction() as connection:
            statement = insert(n, ctx.message.deliveries)
            cursor = connection.cursor()
            if hasattr(cursor, "__aenter__"):
                async with cursor:
                    await cursor.execute(statement)
            else:  # SQLite: a plain connection
                cursor.execute(statement)
            await asyncio.sleep(seconds)


# --- work that lasts until it is told to leave, or that it may ------------------------------------
@app.task(queue="long")
def long(ctx: fairturn.Context, n: int, gate: str) -> None:
    """Until the file ``gate`` exists."""
    with noted(ctx, n):
        try:
            while not os.path.exists(gate):
                if ctx.cancelled:
                    notes.add("told", n=n, delivery=ctx.message.deliveries)
                    return
                time.sleep(0.005)
        except BaseException:
            # The interruption may come before we look.
            notes.add("told", n=n, delivery=ctx.message.deliveries)
            raise


@app.task(queue="long")
async def long_async(ctx: fairturn.AsyncContext, n: int, gate: str) -> None:
    with noted(ctx, n):
        try:
            while not os.path.exists(gate):
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            notes.add("told", n=n, delivery=ctx.message.deliveries)
            raise


@app.task(queue="long")
def gated_effect(ctx: fairturn.Context, n: int, gate: str) -> None:
    """Waits inside of its transaction."""
    with noted(ctx, n), ctx.transaction() as connection:
        connection.cursor().execute(insert(n, ctx.message.deliveries))
        while not os.path.exists(gate):
            time.sleep(0.005)


@app.task(queue="long")
def long_effect(ctx: fairturn.Context, n: int, gate: str) -> None:
    """Comes to its transaction when it may have lost its lease long ago."""
    with noted(ctx, n):
        while not os.path.exists(gate):
            time.sleep(0.005)
        with ctx.transaction() as connection:
            connection.cursor().execute(insert(n, ctx.message.deliveries))


# --- work that takes its process down -----------------------------------------------------------
def die(how: str) -> None:
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(1)
    elif how == "killed":  # as the kernel does it, when the memory of the machine is used up
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "memory":
        eaten: list[bytearray] = []
        while True:
            eaten.append(bytearray(16 * 1024 * 1024))


@app.task(queue="thread")
def thread_work(ctx: fairturn.Context, n: int, seconds: float = 0.0, how: str = "") -> None:
    with noted(ctx, n):
        time.sleep(seconds)
        die(how)


@app.task(queue="process", executor="process")
def process_work(ctx: fairturn.Context, n: int, seconds: float = 0.0, how: str = "") -> None:
    with noted(ctx, n):
        time.sleep(seconds)
        die(how)


def main() -> None:
    logging.basicConfig(format="%(relativeCreated)d %(levelname)s %(message)s", level="INFO")
    app.run(**json.loads(sys.argv[1]))
    notes.add("left")


if __name__ == "__main__":
    # The tasks of the module under its own name: their processes import it from there.
    from tests.faults import worker_app

    worker_app.main()
