"""A group's handle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from fairlead.aio.running import AsyncRunner
from fairlead.errors import WaitTimeout
from fairlead.operations import check, groups, sending, waiting
from fairlead.operations.call import Core
from fairlead.operations.groups import Opening
from fairlead.polling import Deadline, Pace, rest
from fairlead.sync.waking import ALL
from fairlead.values import Duration, GroupStatus, Send, Sent


class AsyncGroup:
    """Messages that belong together: held until ``start()``; when the last of them is finished,
    the end work is sent. A handle: making one does no I/O, the first send or start makes the
    group."""

    def __init__(self, core: Core, runner: AsyncRunner, opening: Opening) -> None:
        self.core = core
        self.runner = runner
        self.opening = opening
        self.name = opening.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    async def send(self, body: Any, **options: Any) -> Sent:
        """Send a member to the group's queue; the options are those of Queue.send()."""
        return (await self.send_many([Send(body, **options)]))[0]

    async def send_many(self, messages: Iterable[Any]) -> list[Sent]:
        """Send many members at once (``Send`` objects, or bodies)."""
        rows = sending.encode_many(messages)
        return await self.runner.run(groups.send_many(self.core, self.opening, rows))

    async def start(self) -> bool:
        """Let the members run; False if they already do, or the group has closed. Send them first:
        a group that is started empty is complete at once."""
        return await self.runner.run(groups.start(self.core, self.opening))

    async def cancel(self) -> bool:
        """Delete the members, also those being worked on (their leases are lost), and send the
        abort work; False if there is no such group."""
        return await self.runner.run(groups.cancel(self.core, self.name))

    async def status(self) -> GroupStatus | None:
        """How far it is, or how it ended; None if there is no such group."""
        return await self.runner.run(groups.status(self.core, self.name))

    async def wait(self, timeout: Duration | None = None) -> GroupStatus | None:
        """Wait until it has closed and say how it ended; None if there is no such group. After
        ``timeout`` seconds it raises WaitTimeout."""
        waiting.refuse_yours(self.runner.own)
        deadline, pace = Deadline(check.optional_microseconds(timeout, "timeout")), Pace()
        ticket = await self.core.waker.ticket(self.opening.queue or ALL)
        try:
            while True:
                began = time.monotonic()
                await self.runner.run(groups.settle(self.core))
                status = await self.status()
                if status is None or status.closed:
                    return status
                if deadline.over():
                    raise WaitTimeout(groups.unfinished(status))
                # Looking counts its members, which may be a million.
                await asyncio.sleep(deadline.within(rest(time.monotonic() - began)))
                await ticket.wait(deadline.within(pace.next(ticket.live)))
        finally:
            await ticket.leave()

    def using(self, connection: Any) -> AsyncGroup:
        """The same group on your connection, in your transaction."""
        return AsyncGroup(self.core, self.runner.using(connection), self.opening)
