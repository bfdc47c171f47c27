"""The proxy of the fault tests does what it says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.faults.proxy import Proxy

SECONDS = 60


class Echo:
    """A server that sends everything back, and notes when a client will send no more."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        connection, _ = self.socket.accept()
        with connection:
            try:
                while data := connection.recv(1000):
                    connection.sendall(data)
            except OSError:
                return
            self.ended.set()

    def __enter__(self) -> Echo:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self.socket.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        yield server


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.socket.getsockname()[1]) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), SECONDS) as client:
        client.sendall(b"hello")
        assert client.recv(1000) == b"hello"
        yield client


def test_a_reset_is_not_an_end(proxy: Proxy, client: socket.socket, echo: Echo) -> None:
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1000)
    assert not echo.ended.is_set()


def test_half_of_the_connection_is_closed_for_the_server(
    proxy: Proxy, client: socket.socket, echo: Echo
) -> None:
    proxy.half_close("server")
    assert echo.ended.wait(SECONDS)
    assert client.recv(1000) == b""  # the server has left


def test_half_of_the_connection_is_closed_for_the_client(
    proxy: Proxy, client: socket.socket, echo: Echo
) -> None:
    proxy.half_close("client")
    assert client.recv(1000) == b""
    assert not echo.ended.is_set()  # it hears nothing of it
    client.close()


def test_a_slow_network_loses_nothing(proxy: Proxy, client: socket.socket, echo: Echo) -> None:
    proxy.slow_down(0.01)
    client.sendall(b"again")
    assert client.recv(1000) == b"again"
