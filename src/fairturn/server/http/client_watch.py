"""Notices that the client of a long poll has disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

PATIENCE = 0.05  # seconds after which a receive counts as a poll, and its client is watched

Receive = Callable[[], Awaitable[Mapping[str, Any]]]  # of ASGI


class ClientWatch:
    """Cancels the current task when its client disconnects, so that the next message goes to
    another client.

    Most receives are answered quickly: a timer saves them the cost of a task for the watch."""

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._receive = receive
        self._poll = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(PATIENCE, self._start)
        self._task: asyncio.Task[None] | None = None

    def _start(self) -> None:
        self._task = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._poll is not None:
            self.gone = True
            self._poll.cancel()

    def uncancel(self) -> None:
        if self._poll is not None:
            self._poll.uncancel()

    def end(self) -> None:
        self._poll = None
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
