"""The program of a child process that runs handlers for a worker, one message at a time."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NamedTuple, cast

from fairturn.core.message import Message
from fairturn.core.rows import AnyMessageRow, MessageRow
from fairturn.observe import logs
from fairturn.operations.receives import KEEP
from fairturn.tasks.import_guard import importing
from fairturn.tasks.middleware import overriding
from fairturn.tasks.task import Task
from fairturn.tasks.verdicts import Verdict
from fairturn.worker.delivery import Delivery


# --- messages through the pipe ----------------------------------------------------------------
def request(task: Task[..., Any], queue: str, row: AnyMessageRow, max_attempts: int) -> bytes:
    values = [
        {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for value in (getattr(row, name) for name in MessageRow._fields)
    ]
    fields = {
        "module": task.__module__,
        "name": task.__qualname__,
        "queue": queue,
        "row": values,
        "max_attempts": max_attempts,
    }
    return json.dumps(fields).encode()


def verdict_bytes(verdict: Verdict) -> bytes:
    fields = {field.name: getattr(verdict, field.name) for field in dataclasses.fields(verdict)}
    if isinstance(verdict.at, datetime):
        fields["at"] = verdict.at.timestamp()
    if verdict.memo is KEEP:
        del fields["memo"]
    return json.dumps(fields, allow_nan=False).encode()


def read_answer(data: bytes) -> Verdict | TimeLeft:
    fields = json.loads(data)
    return TimeLeft(**fields) if "left" in fields else Verdict(**fields)


class TimeLeft(NamedTuple):
    """The seconds until the handler's deadline: sent when it starts, and when it asks for more."""

    left: float
    started: bool


# --- the process ------------------------------------------------------------------------------
class ChildWorker:
    """Stands for the worker in a child process, which has one message and no slots to share."""

    def __init__(self, app: Any, queue: str, max_attempts: int) -> None:
        self.app = app
        self.max_attempts = {queue: max_attempts}
        self.around = overriding(app.middleware, "handling")
        self.slots = self

    def call_soon(self, what: Callable[..., Any], *args: Any) -> None:
        what(*args)

    def slot_released(self) -> None:
        pass

    def request_slot(self, free: Callable[[], Any]) -> None:
        free()


class ChildDelivery(Delivery):
    """Sends the time left to the worker, which ends this process at the deadline."""

    __slots__ = ("send",)
    send: Callable[[bytes], None]

    def begin(self, send: Callable[[bytes], None]) -> None:
        self.send = send
        if self.task.timeout is not None:
            self.deadline = time.monotonic() + self.task.timeout
            self._send_time_left(started=True)

    def extend(self, more: float) -> None:
        super().extend(more)
        if self.deadline is not None:
            self._send_time_left(started=False)

    def _send_time_left(self, started: bool) -> None:
        assert self.deadline is not None
        left = TimeLeft(self.deadline - time.monotonic(), started)
        self.send(json.dumps(left._asdict()).encode())


def main(pipe: Connection, log_settings: logs.LogSettings | None = None) -> None:
    """Answer requests until the worker closes the pipe."""
    # Ctrl-C goes to all processes of a terminal, systemd's SIGTERM to all processes of a service;
    # but the worker decides when this process stops. Not SIG_IGN: programs that a handler starts
    # would inherit it, and could not be terminated.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _do_nothing)
    if log_settings is not None:
        logs.setup(*log_settings)
    requests: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        while True:
            try:
                requests.put(pipe.recv_bytes())
            except (EOFError, OSError):
                os._exit(0)  # the worker has ended: end immediately, even during a handler

    threading.Thread(target=read, daemon=True).start()
    while True:
        verdict = handle(json.loads(requests.get()), pipe.send_bytes)
        try:
            data = verdict_bytes(verdict)
        except (TypeError, ValueError) as error:
            data = verdict_bytes(Verdict("fail", error=f"not JSON: {error}"))
        pipe.send_bytes(data)


def _do_nothing(number: int, frame: Any) -> None:
    pass


def handle(request: dict[str, Any], send: Callable[[bytes], None]) -> Verdict:
    row = MessageRow._make(
        base64.b64decode(cast("dict[str, str]", value)["b64"]) if isinstance(value, dict) else value
        for value in request["row"]
    )
    try:
        task = find(request["module"], request["name"])
    except Exception as error:
        return Verdict("fail", error=f"the process cannot import its task: {error!r}")
    app: Any = task.app
    worker: Any = ChildWorker(app, request["queue"], request["max_attempts"])
    message: Any = Message(request["queue"], row)
    no_permit: Any = None
    delivery = ChildDelivery(worker, task, message, no_permit)
    delivery.begin(send)
    if not task.is_async:
        return delivery.call()

    async def run() -> Verdict:
        try:
            return await delivery.call_async()
        finally:
            await app.close_async()

    return asyncio.run(run())


def find(module: str, name: str) -> Task[..., Any]:
    """Import and return a task. Its module and name come from our worker, never from a message."""
    importing.set(True)
    found: Any = import_module(module)
    importing.set(False)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, Task):
        raise TypeError(f"{module}.{name} is {type(found).__name__}, not a task")
    return cast("Task[..., Any]", found)
