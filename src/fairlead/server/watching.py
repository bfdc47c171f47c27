"""Notices that the client of a long poll has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

PATIENCE = 0.05  # seconds after which a receive is a poll, whose client is watched

Receive = Callable[[], Awaitable[Mapping[str, Any]]]  # of ASGI


class Watch:
    """Cancels the task that makes it when its client goes away, so that the message it waits for
    goes to somebody who is there.

    Most receives are answered before they are worth a task of their own: hence the timer."""

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._receive = receive
        self._poll = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(PATIENCE, self._begin)
        self._task: asyncio.Task[None] | None = None

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._look())

    async def _look(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._poll is not None:
            self.gone = True
            self._poll.cancel()

    def forgive(self) -> None:
        if self._poll is not None:
            self._poll.uncancel()

    def end(self) -> None:
        self._poll = None
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
