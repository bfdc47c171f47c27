"""One connection to RabbitMQ with one channel of publisher confirms: opened, used, cut.

aiormq (what aio-pika is built on) rather than aio-pika, for one reason: who wants to leave a broker
that does not read any more must be able to cut the socket. A polite close waits for minutes until
what is buffered is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, cast

from aiormq import exceptions, spec
from aiormq.channel import Channel
from aiormq.connection import (
    Connection,
    TCPTransportFactory,
    TLSTransportFactory,
    TransportFactory,
)
from yarl import URL

from fairlead.relay.amqp_letters import Letter

FAREWELL = 2.0  # seconds for a polite close
ENDING = 1.0  # seconds for tasks to notice that the connection is gone
SLOWEST = 100_000  # bytes per second of a line that is slow, but not dead

Returned = exceptions.PublishError
Refused = exceptions.DeliveryError
NotFound = exceptions.ChannelNotFoundEntity
Forbidden = exceptions.ChannelAccessRefused
Precondition = exceptions.ChannelPreconditionFailed
Unopened = exceptions.InvalidFrameError  # of aiormq: the broker closed what was being opened
WrongLogin = (exceptions.ProbableAuthenticationError, exceptions.AuthenticationError)


class Late(Exception):
    """It was not confirmed in time."""


class Gone(Exception):
    """The connection went before this message was confirmed."""


class OnItsWay(Exception):
    """The same message is being published by another hand-over."""


class _Transport(TransportFactory):
    """aiormq's own, of which we keep the socket."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None

    async def create(
        self, url: URL, **kwargs: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        usual: TransportFactory = TCPTransportFactory()
        if url.scheme == "amqps":
            usual = TLSTransportFactory()
            # Who leaves does not wait half a minute for a silent peer's farewell.
            kwargs["ssl_shutdown_timeout"] = ENDING
        reader, self._writer = await usual.create(url, **kwargs)
        return reader, self._writer

    def cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


class Wire:
    """Use ``Wire.open``. After any trouble but a returned or a refused message it must be cut."""

    def __init__(self, transport: _Transport, connection: Connection, channel: Channel) -> None:
        self._transport = transport
        self._connection = connection
        self._channel = channel
        # Names of messages (RabbitMQ returns by name), and their bytes.
        self._flying: dict[str, int] = {}
        self._heard = 0.0  # when RabbitMQ last told of a message what became of it
        self._ended = asyncio.Event()
        self._why: Exception | None = None  # it ended, as the first who noticed was told
        for one in cast("tuple[Any, ...]", (connection, channel)):
            one.closing.add_done_callback(self._end)

    @classmethod
    async def open(cls, url: str) -> Wire:
        transport = _Transport()
        connection = Connection(URL(url), transport_factory=transport)
        try:
            await cast("Any", connection).connect()
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        except BaseException:
            transport.cut()
            raise
        return cls(transport, connection, cast("Channel", channel))

    @property
    def usable(self) -> bool:
        return not self._ended.is_set() and self._connection.is_opened

    @property
    def frame_max(self) -> int:
        """The largest frame that the broker takes; the properties of a message are one."""
        return self._connection.connection_tune.frame_max or 2**32

    def _end(self, closing: asyncio.Future[Any]) -> None:
        error = None if closing.cancelled() else closing.exception()
        if self._why is None and isinstance(error, Exception):
            self._why = error
        self._ended.set()

    async def publish(
        self, exchange: str, letters: Sequence[Letter], seconds: float
    ) -> list[Exception | None]:
        """Publish all in order, then wait for all confirms. None for a letter: RabbitMQ has it."""
        tasks: dict[int, asyncio.Task[Any]] = {}
        if not self._flying:
            self._heard = asyncio.get_running_loop().time()  # there was nothing to be told
        for i, one in enumerate(letters):
            if one.name not in self._flying:
                self._flying[one.name] = len(one.body) + one.head
                tasks[i] = asyncio.create_task(self._one(exchange, one))
        left: list[asyncio.Task[Any]] = []
        try:
            if tasks:
                await self._settled(list(tasks.values()), seconds)
        finally:
            left = [task for task in tasks.values() if not task.done()]
            late = bool(left) and not self._ended.is_set()
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=ENDING)
        found: list[Exception | None] = []
        for i in range(len(letters)):
            if i not in tasks:
                found.append(OnItsWay("another hand-over has it in hand"))
            elif late and tasks[i] in left:
                found.append(Late(f"no confirm within {seconds:g} s, and 10 s per MB"))
            else:
                found.append(self._trouble(tasks[i]))
        return found

    async def _one(self, exchange: str, letter: Letter) -> object:
        try:
            return await self._channel.basic_publish(
                letter.body,
                exchange=exchange,
                routing_key=letter.routing_key,
                properties=letter.properties,
                mandatory=True,
                wait=False,
            )
        finally:
            self._heard = asyncio.get_running_loop().time()
            del self._flying[letter.name]

    async def _settled(self, tasks: list[asyncio.Task[Any]], seconds: float) -> None:
        """Until all are done, the connection is gone, or it is too late. (Some who wait for a dead
        writer would not notice that it is dead.)

        A line may be slow: too late is when nothing was confirmed for so many seconds, and what the
        largest message on its way may need; but in any case (one message may hang while others go)
        after so many seconds and what all that is on its way now may need. Who cannot wait so long
        cancels us, and what was confirmed meanwhile is sent once more."""
        loop = asyncio.get_running_loop()
        last = loop.time() + seconds + sum(self._flying.values()) / SLOWEST
        ended = asyncio.create_task(self._ended.wait())
        confirmed = asyncio.gather(*tasks, return_exceptions=True)
        try:
            while not (confirmed.done() or ended.done()):
                silent = self._heard + seconds + max(self._flying.values(), default=0) / SLOWEST
                left = min(last, silent) - loop.time()
                if left <= 0:
                    break
                await asyncio.wait(
                    [confirmed, ended],
                    timeout=min(left, seconds),  # meanwhile the largest may have arrived
                    return_when=asyncio.FIRST_COMPLETED,
                )
            if ended.done():
                # What was confirmed before it went has still to be told.
                await asyncio.wait(tasks, timeout=ENDING)
        finally:
            ended.cancel()

    def _trouble(self, task: asyncio.Task[Any]) -> Exception | None:
        if not task.done() or task.cancelled():
            return self._why or Gone("the connection ended")
        error = task.exception()
        if error is None:
            confirmed = isinstance(task.result(), spec.Basic.Ack)
            return None if confirmed else Gone("the answer was no confirm")
        if isinstance(error, Refused):  # or returned
            return error
        # The first reason is the true one; who comes after the end is told something else.
        if self._why is not None:
            return self._why
        return error if isinstance(error, Exception) else Gone("the connection ended")

    async def cut(self) -> None:
        """Leave at once."""
        self._transport.cut()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(ENDING):
                await self._connection.close(exceptions.ConnectionClosed(0, "cut"))

    async def close(self) -> None:
        """Leave politely, if the broker answers."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(FAREWELL):
                await self._connection.close(exceptions.ConnectionClosed(0, "done"))
        await self.cut()


def said(error: BaseException) -> str:
    """The broker's words, or the library's."""
    words = ", ".join(str(one) for one in error.args if one not in (None, ""))
    return words or type(error).__name__
