"""A TCP proxy that cuts, resets, slows down, or becomes a black hole: connections stay open, and
nothing comes through."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
from typing import Literal

Hole = Literal["lose", "hold"]


class Proxy:
    """``with Proxy(port) as proxy``: ``proxy.url(url)`` leads through it.

    In a hole that *loses*, what is sent disappears, and so does all that is ever sent on the
    connections that lost something: they are never closed, as when a firewall forgets them. A hole
    that *holds* delivers everything when it heals, as when a cable is plugged in again. New
    connections are accepted in both, and nobody answers."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._loop = asyncio.new_event_loop()
        self._clear = asyncio.Event()
        self._clear.set()
        self._hole: Hole | None = None
        self._word: bytes | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}  # client: server
        self._delay = 0.0
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.port = 0
        self.accepted = 0  # connections so far
        self.lost = 0  # of them, those that have said the word

    def url(self, url: str) -> str:
        return re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{self.port}", url)

    def open_hole(self, hole: Hole) -> None:
        self._loop.call_soon_threadsafe(self._set, hole)

    def lose_from(self, word: bytes) -> None:
        """A connection that says this is lost from there on; others are not."""
        self._word = word

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._set, None)

    def cut(self) -> None:
        """Close all connections, whatever is on its way in them; new ones are let through."""
        self._loop.call_soon_threadsafe(self._cut)

    def reset(self) -> None:
        """Both ends of all connections get a RST; what is on its way is gone."""
        self._loop.call_soon_threadsafe(self._reset)

    def half_close(self, end: Literal["client", "server"]) -> None:
        """This end hears that nothing more will come; it can still send."""
        self._loop.call_soon_threadsafe(self._half_close, end)

    def slow_down(self, seconds: float) -> None:
        """Every piece of data takes so much longer; 0 as before."""
        self._delay = seconds

    def _reset(self) -> None:
        for pair in list(self._ends.items()):
            for writer in pair:
                raw = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()

    def _half_close(self, end: str) -> None:
        for client, server in list(self._ends.items()):
            with contextlib.suppress(OSError, RuntimeError):
                (client if end == "client" else server).write_eof()

    def _cut(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def _set(self, hole: Hole | None) -> None:
        self._hole = hole
        (self._clear.clear if hole else self._clear.set)()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        task.add_done_callback(self._tasks.discard)
        there = None
        # Both ends may go at any time; the other one then goes too.
        with contextlib.suppress(OSError, asyncio.CancelledError):
            there = await asyncio.open_connection("127.0.0.1", self._to)
            self._ends[writer] = there[1]
            ways = [self._pump(reader, there[1]), self._pump(there[0], writer)]
            _, rest = await asyncio.wait(
                [asyncio.ensure_future(way) for way in ways],
                return_when=asyncio.FIRST_COMPLETED,
            )
            for way in rest:
                way.cancel()
        self._ends.pop(writer, None)
        for end in (writer, there and there[1]):
            if end is not None:
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # An end that was reset, or half closed, takes nothing more.
        with contextlib.suppress(OSError, RuntimeError):
            await self._pass_on(reader, writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lost = False
        while data := await reader.read(65536):
            said = self._word is not None and self._word in data
            self.lost += said
            lost = lost or self._hole == "lose" or said
            if not lost:
                await self._clear.wait()
                if self._delay:
                    await asyncio.sleep(self._delay)
                writer.write(data)
                await writer.drain()

    def __enter__(self) -> Proxy:
        self._thread.start()

        async def listen() -> asyncio.Server:
            return await asyncio.start_server(self._accept, "127.0.0.1", 0)

        self._server = asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        async def leave() -> None:
            self._server.close()
            self._cut()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(leave(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
