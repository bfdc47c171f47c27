"""How many functions and files of ours one message passes, for docs/architecture.md.

    python tools/walk.py [-v] [URL]        SQLite in memory unless a URL is given

Distinct functions are counted, not calls; import time and set-up are left out.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fairturn
from fairturn.server.auth.callers import Callers
from fairturn.server.auth.keys import Keys
from fairturn.server.http.bounds import Bounds
from fairturn.server.http.door import Door
from fairturn.server.http.metrics import Metrics
from fairturn.server.http.pages import Pages
from fairturn.server.sqs.request import Options
from fairturn.server.sqs.service import Sqs

SOURCE = str(Path(fairturn.__file__).parent)
Walk = dict[tuple[str, str], None]  # (file, function), in the order of the first visit


@contextmanager
def walked() -> Iterator[Walk]:
    walk: Walk = {}

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        ours = code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<")
        if event == "call" and ours:
            walk[code.co_filename[len(SOURCE) + 1 :], code.co_qualname] = None

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def show(title: str, walk: Walk, verbose: bool) -> None:
    files = {file for file, _ in walk}
    print(f"{title:<40} {len(walk):>4} functions in {len(files):>3} files")
    if verbose:
        for file, function in walk:
            print(f"    {file:<45} {function}")


def queue_walks(url: str) -> Iterator[tuple[str, Walk]]:
    with fairturn.connect(url) as db:
        db.migrate()
        queue = db.queue("walk")
        queue.create()
        queue.send(1)
        for message in queue.receive():
            message.ack()
        with walked() as walk:
            queue.send({"n": 1}, channel="a")
        yield "send", walk
        with walked() as walk:
            [message] = queue.receive()
        yield "receive", walk
        with walked() as walk:
            message.ack()
        yield "ack", walk


def task_walk(url: str) -> Iterator[tuple[str, Walk]]:
    """From its send until the database has stored its ack. The task is a coroutine function: the
    profiler would not see a handler's thread, which runs already."""
    app = fairturn.App(url)
    stored = asyncio.Event()

    @app.task(queue="walk-tasks")
    async def work(n: int) -> None:
        pass

    async def once(n: int) -> None:
        stored.clear()
        await work.send_async(n)
        await stored.wait()

    async def run() -> Walk:
        async with app.worker() as worker:
            acked = worker.settler.acked

            def noted(messages: Sequence[Any], lost: Sequence[Any]) -> None:
                acked(messages, lost)
                stored.set()

            worker.settler.acked = noted
            await once(0)
            await once(1)
            with walked() as walk:
                await once(2)
            return walk

    app.db.migrate()
    app.db.queue("walk-tasks").create()
    yield "a task, from its send to its ack", asyncio.run(run())
    app.close()


async def _ask(door: Door, action: str, **members: Any) -> None:
    body = json.dumps(members).encode()
    headers = {"host": "localhost", "content-type": "application/x-amz-json-1.0"}
    headers |= {"x-amz-target": f"AmazonSQS.{action}", "content-length": str(len(body))}
    scope = {
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "scheme": "http",
        "server": ("localhost", 80),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    status = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    await door(scope, receive, send)
    assert status == 200, status


def sqs_walk(url: str) -> Iterator[tuple[str, Walk]]:
    """SendMessage through the ASGI application, without a socket."""

    async def run() -> Walk:
        db = fairturn.connect_async(url)
        options = Options()
        sqs = Sqs(db, options)
        pages, callers = Pages(db.clock, list), Callers(Keys(()), options)
        door = Door(sqs, callers, pages, Metrics(lambda: 0), Bounds())
        await sqs.start()
        try:
            await _ask(door, "CreateQueue", QueueName="walk-sqs")
            queue = {"QueueUrl": "http://localhost/000000000000/walk-sqs", "MessageBody": "x"}
            await _ask(door, "SendMessage", **queue)
            with walked() as walk:
                await _ask(door, "SendMessage", **queue)
            return walk
        finally:
            await sqs.close()
            await db.close()

    yield "SendMessage of the SQS server", asyncio.run(run())


def main(arguments: list[str]) -> None:
    verbose = "-v" in arguments
    [url] = [one for one in arguments if not one.startswith("-")] or ["sqlite://"]
    walks: list[Callable[[str], Iterator[tuple[str, Walk]]]] = [queue_walks]
    if url != "sqlite://":
        walks += [task_walk, sqs_walk]
    for walk in walks:
        for title, found in walk(url):
            show(title, found, verbose)


if __name__ == "__main__":
    main(sys.argv[1:])
