"""One connection to RabbitMQ, with one channel that has publisher confirms.

It uses aiormq, not aio-pika (which is built on it), for one reason: if the broker no longer reads,
we must be able to cut the socket. A normal close waits for minutes until the buffer is sent.
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

from fairturn.relay.amqp.amqp_message import AmqpMessage

FAREWELL = 2.0  # seconds for a normal close
ENDING = 1.0  # seconds in which tasks notice that the connection is gone
SLOWEST = 100_000  # bytes per second of the slowest line that does not count as dead

Returned = exceptions.PublishError
Refused = exceptions.DeliveryError
NotFound = exceptions.ChannelNotFoundEntity
Forbidden = exceptions.ChannelAccessRefused
Precondition = exceptions.ChannelPreconditionFailed
Unopened = exceptions.InvalidFrameError  # the broker closed the connection during its opening
WrongLogin = (exceptions.ProbableAuthenticationError, exceptions.AuthenticationError)


class Late(Exception):
    """The message was not confirmed in time."""


class Gone(Exception):
    """The connection ended before this message was confirmed."""


class OnItsWay(Exception):
    """Another hand-over is publishing the same message."""


class _Transport(TransportFactory):
    """aiormq's transport, which also keeps the socket."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None

    async def create(
        self, url: URL, **kwargs: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        usual: TransportFactory = TCPTransportFactory()
        if url.scheme == "amqps":
            usual = TLSTransportFactory()
            # Otherwise a close waits half a minute for the answer of a silent broker.
            kwargs["ssl_shutdown_timeout"] = ENDING
        reader, self._writer = await usual.create(url, **kwargs)
        return reader, self._writer

    def cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


class BrokerConnection:
    """Made by ``open``. After any error except a returned or refused message it must be cut."""

    def __init__(self, transport: _Transport, connection: Connection, channel: Channel) -> None:
        self._transport = transport
        self._connection = connection
        self._channel = channel
        # The bytes of unconfirmed messages, by name (RabbitMQ returns a message by its name).
        self._flying: dict[str, int] = {}
        self._heard = 0.0  # when RabbitMQ last confirmed, returned or refused a message
        self._ended = asyncio.Event()
        self._why: Exception | None = None  # the first error that ended it
        for one in cast("tuple[Any, ...]", (connection, channel)):
            one.closing.add_done_callback(self._end)

    @classmethod
    async def open(cls, url: str) -> BrokerConnection:
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
        """The bytes of the largest frame that the broker accepts. A message's properties are one
        frame."""
        return self._connection.connection_tune.frame_max or 2**32

    def _end(self, closing: asyncio.Future[Any]) -> None:
        error = None if closing.cancelled() else closing.exception()
        if self._why is None and isinstance(error, Exception):
            self._why = error
        self._ended.set()

    async def publish(
        self, exchange: str, messages: Sequence[AmqpMessage], seconds: float
    ) -> list[Exception | None]:
        """Publish all in order, then wait for all confirms. It returns the error of each message;
        None: RabbitMQ has confirmed it."""
        tasks: dict[int, asyncio.Task[Any]] = {}
        if not self._flying:
            self._heard = asyncio.get_running_loop().time()  # RabbitMQ had nothing to confirm
        for i, one in enumerate(messages):
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
        for i in range(len(messages)):
            if i not in tasks:
                found.append(OnItsWay("another hand-over is publishing it"))
            elif late and tasks[i] in left:
                found.append(Late(f"no confirm within {seconds:g} s, and 10 s per MB"))
            else:
                found.append(self._trouble(tasks[i]))
        return found

    async def _one(self, exchange: str, message: AmqpMessage) -> object:
        try:
            return await self._channel.basic_publish(
                message.body,
                exchange=exchange,
                routing_key=message.routing_key,
                properties=message.properties,
                mandatory=True,
                wait=False,
            )
        finally:
            self._heard = asyncio.get_running_loop().time()
            del self._flying[message.name]

    async def _settled(self, tasks: list[asyncio.Task[Any]], seconds: float) -> None:
        """Wait until all are done, the connection has ended, or it is too late. (Some tasks that
        wait for a dead connection would not notice it.)

        A line may be slow. It is too late if nothing was confirmed for ``seconds`` and the time
        that the largest unconfirmed message may need; and in any case (one message may hang while
        others are confirmed) after ``seconds`` and the time that all messages that are unconfirmed
        now may need. A caller that cannot wait so long cancels this; what was confirmed meanwhile
        is then sent again."""
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
                    timeout=min(left, seconds),  # the largest message may be confirmed by then
                    return_when=asyncio.FIRST_COMPLETED,
                )
            if ended.done():
                # Confirms that arrived before the end still have to reach their tasks.
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
        # The first error is the cause; errors after the end of the connection are others.
        if self._why is not None:
            return self._why
        return error if isinstance(error, Exception) else Gone("the connection ended")

    async def cut(self) -> None:
        """End it immediately."""
        self._transport.cut()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(ENDING):
                await self._connection.close(exceptions.ConnectionClosed(0, "cut"))

    async def close(self) -> None:
        """End it normally, if the broker answers."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(FAREWELL):
                await self._connection.close(exceptions.ConnectionClosed(0, "done"))
        await self.cut()


def said(error: BaseException) -> str:
    """The text of an error of the broker or the library."""
    words = ", ".join(str(one) for one in error.args if one not in (None, ""))
    return words or type(error).__name__
