"""Run handlers that are interrupted by their time-out, again and again, wherever they are; then see
whether the process still works: ``python -m tests.faults.interrupts FILE TIMES``."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import importlib
import logging
import sys

import fairturn

log = logging.getLogger("tests.interrupts")


def main(file: str, times: int) -> None:
    # Without its locks, a process can report nothing but this.
    faulthandler.dump_traceback_later(30 + times / 2, exit=True)
    app = fairturn.App(f"sqlite:///{file}")
    log.addHandler(logging.NullHandler())
    log.propagate = False

    @app.task(queue="stubborn", timeout=0.02, retry=False)
    def stubborn() -> None:
        while True:
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module("fairturn_has_no_such_module")
            log.warning("still here")
            app.db.queue("stubborn").settings()
            sum(range(20_000))

    @app.task(queue="gentle", result=True)
    def gentle() -> str:
        importlib.import_module("colorsys")
        log.warning("here")
        return app.db.queue("gentle").settings().name

    async def work() -> None:
        db = app.async_db
        for task in (stubborn, gentle):
            await db.queue(task.queue).create()
        await stubborn.send_many_async([{}] * times)
        async with app.worker(concurrency=4, prefetch=0):
            while (await db.queue("stubborn").stats()).dead < times:
                await asyncio.sleep(0.02)
            for _ in range(8):
                sent = await gentle.send_async()
                assert (await gentle.wait_async(sent)).result == "gentle"
        await app.close_async()

    asyncio.run(work())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
