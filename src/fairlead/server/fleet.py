"""Several serving processes on one database, behind the same sockets.

The supervisor listens and its processes accept: a process that dies takes only its own connections
with it, and while it is replaced nobody is refused. Each process hears what the others count, so
that /metrics says the same whoever is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

from fairlead.server import listening
from fairlead.server.metrics import Metrics
from fairlead.worker.supervisor import Supervisor

SHARE = 1.0  # seconds between two looks at what the others count


class Fleet(Supervisor):
    stops = "stopping; a second signal leaves at once"
    aborts = "leaving at once"

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        processes: int,
        sockets: Sequence[socket.socket],
        *,
        grace: float,
        hello: Callable[[dict[str, Any]], None],
    ) -> None:
        fds = [one.fileno() for one in sockets]
        super().__init__(command, processes, grace=grace, hello=hello, sums=Metrics(), fds=fds)
        self._sockets = sockets

    def signalled(self) -> None:
        # Else new connections would be taken, and nobody would ever answer them.
        listening.close(self._sockets)
        super().signalled()

    async def run(self) -> int:
        sharing = asyncio.create_task(self._share())
        try:
            return await super().run()
        finally:
            sharing.cancel()
            await asyncio.gather(sharing, return_exceptions=True)
            listening.close(self._sockets)

    async def _share(self) -> None:
        while True:
            await asyncio.sleep(SHARE)
            ended = self.snapshots()[-1]
            for one in [*self.processes.values()]:
                if one.known:
                    others = [
                        other.snapshot
                        for other in self.processes.values()
                        if other is not one and other.snapshot is not None
                    ]
                    line = json.dumps({"others": [*others, ended]})
                    with contextlib.suppress(OSError):
                        one.writer.write(line.encode() + b"\n")
