"""The hosts of a database URL: ``mysql://user@first:3306,second:3306/db``.

A new connection goes to the host that answered last. If it does not answer, the next one is tried,
and so on. PostgreSQL's library does this by itself; the drivers of MySQL know one host.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Host(NamedTuple):
    host: str
    port: int


def read_hosts(text: str) -> Hosts:
    """Read ``first:3306,second,[::1]:3307``; raise ValueError if one is wrong."""
    return Hosts([_read(one) for one in text.split(",")])


def _read(text: str) -> Host:
    parts = urlsplit(f"//{text}")
    return Host(parts.hostname or "localhost", parts.port or 3306)


class Hosts:
    """Some hosts, and which of them answered last."""

    def __init__(self, hosts: list[Host]) -> None:
        self.hosts = hosts
        self._answered = 0

    def _in_order(self) -> Iterator[tuple[int, Host]]:
        first = self._answered
        for n in range(first, first + len(self.hosts)):
            yield n % len(self.hosts), self.hosts[n % len(self.hosts)]

    def connect(self, connect: Callable[..., Any]) -> Any:
        """Return ``connect(host=…, port=…)`` of the first host that answers."""
        errors: list[tuple[Host, Exception]] = []
        for n, host in self._in_order():
            try:
                connection = connect(**host._asdict())
            except ImportError:
                raise
            except Exception as error:
                errors.append((host, error))
            else:
                self._answered = n
                return connection
        raise _error(errors)

    async def connect_async(self, connect: Callable[..., Awaitable[Any]]) -> Any:
        """The same with an async ``connect``."""
        errors: list[tuple[Host, Exception]] = []
        for n, host in self._in_order():
            try:
                connection = await connect(**host._asdict())
            except ImportError:
                raise
            except Exception as error:
                errors.append((host, error))
            else:
                self._answered = n
                return connection
        raise _error(errors)


def _error(errors: list[tuple[Host, Exception]]) -> Exception:
    """The error of a single host as it is; those of several in one text."""
    if len(errors) == 1:
        [(_, error)] = errors
        return error
    texts = [f"{host.host}:{host.port}: {error}" for host, error in errors]
    return ConnectionError("; ".join(texts))
