"""Several server processes on one database and the same sockets.

The supervisor listens and its processes accept. A process that dies loses only its own connections,
and no new connection is refused while it is replaced. Each process gets the counters of the others,
so that /metrics shows the same in every process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

from fairturn.server import listen_sockets
from fairturn.server.http.metrics import Metrics
from fairturn.supervision.supervisor import Supervisor

SHARE = 1.0  # seconds between two exchanges of counters


class Fleet(Supervisor):
    stops = "stopping; a second signal stops immediately"
    aborts = "stopping immediately"

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
        # Else the kernel would still accept connections, which no process would answer.
        listen_sockets.close(self._sockets)
        super().signalled()

    async def run(self) -> int:
        sharing = asyncio.create_task(self._share())
        try:
            return await super().run()
        finally:
            sharing.cancel()
            await asyncio.gather(sharing, return_exceptions=True)
            listen_sockets.close(self._sockets)

    async def _share(self) -> None:
        while True:
            await asyncio.sleep(SHARE)
            *_, ended = self.snapshots()
            for one in [*self.processes.values()]:
                if one.loaded:
                    others = [
                        other.snapshot
                        for other in self.processes.values()
                        if other is not one and other.snapshot is not None
                    ]
                    line = json.dumps({"others": [*others, ended]})
                    with contextlib.suppress(OSError):
                        one.writer.write(line.encode() + b"\n")
