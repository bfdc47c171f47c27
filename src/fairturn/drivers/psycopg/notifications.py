"""Listen to PostgreSQL's NOTIFY on a connection of our own (psycopg 3)."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from fairturn.drivers.psycopg.common import arguments, shut


def _arrived(connection: Any) -> list[str]:
    """Return the queues of the notifications that have arrived; do not wait for more."""
    try:
        connection.pgconn.consume_input()
    except psycopg.OperationalError as error:
        raise ConnectionError(str(error)) from error
    names: list[str] = []
    while (notify := connection.pgconn.notifies()) is not None:
        names.append(notify.extra.decode())
    return names


def _listen(channel: str) -> sql.Composed:
    return sql.SQL("LISTEN {}").format(sql.Identifier(channel))


class PsycopgListening:
    """Blocks in select() on the socket, and on a pipe by which it can be interrupted."""

    def __init__(self, url: str, timeout: float, channel: str) -> None:
        try:
            opening = arguments(timeout, prepare=True)
            self._connection = psycopg.connect(url, **opening)
            time_limit = threading.Timer(opening["connect_timeout"], shut, [self._connection])
            time_limit.start()
            try:
                self._connection.execute(_listen(channel))
            except BaseException:
                self._connection.close()
                raise
            finally:
                time_limit.cancel()
        except psycopg.Error as error:  # also: a standby refuses LISTEN
            raise ConnectionError(str(error)) from error
        self.pid = self._connection.info.backend_pid
        self._reads, self._writes = os.pipe()
        self._lock = threading.Lock()
        self._closed = False

    def wait(self) -> list[str]:
        names = _arrived(self._connection)
        if not names:
            ready, _, _ = select.select([self._connection.fileno(), self._reads], [], [])
            if self._connection.fileno() in ready:
                names = _arrived(self._connection)
        return names

    def interrupt(self) -> None:
        """End wait(). Another thread may call this at any time, also after the end."""
        with self._lock:
            if not self._closed:  # the number of a closed pipe may belong to another file
                os.write(self._writes, b"x")

    def __enter__(self) -> PsycopgListening:
        return self

    def __exit__(self, *_: Any) -> None:
        self._connection.close()
        with self._lock:
            self._closed = True
            os.close(self._reads)
            os.close(self._writes)


class AsyncPsycopgListening:
    """The event loop watches the socket. It calls ``notified`` with the names of the queues, and
    ``broke`` when the connection is lost."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self.pid = connection.info.backend_pid
        self._socket = -1

    @classmethod
    async def open(cls, url: str, timeout: float, channel: str) -> AsyncPsycopgListening:
        try:
            opening = arguments(timeout, prepare=True)
            connection = await psycopg.AsyncConnection.connect(url, **opening)
            loop = asyncio.get_running_loop()
            time_limit = loop.call_later(opening["connect_timeout"], shut, connection)
            try:
                await connection.execute(_listen(channel))
            except BaseException:
                await connection.close()
                raise
            finally:
                time_limit.cancel()
        except psycopg.Error as error:  # also: a standby refuses LISTEN
            raise ConnectionError(str(error)) from error
        return cls(connection)

    def start(self, notified: Callable[[list[str]], None], broke: Callable[[], None]) -> None:
        def readable() -> None:
            try:
                names = _arrived(self._connection)
            except ConnectionError:
                self._forget()
                broke()
            else:
                notified(names)

        self._socket = self._connection.fileno()
        asyncio.get_running_loop().add_reader(self._socket, readable)

    def _forget(self) -> None:
        if self._socket >= 0:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket = -1

    async def close(self) -> None:
        self._forget()
        await self._connection.close()
