"""Where a server listens, and where it does not without keys."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairturn.core.errors import InvalidArgument
from fairturn.server import listen_sockets
from fairturn.server.auth.keys import AccessKey, Keys
from fairturn.server.config import Settings

KEYS = Keys([AccessKey("AKID", "secret")])


@contextmanager
def bound(**settings: Any) -> Iterator[tuple[Settings, list[socket.socket]]]:
    chosen = Settings(**{"port": 0, **settings})
    sockets = listen_sockets.listeners(chosen)
    try:
        yield chosen, sockets
    finally:
        listen_sockets.close(sockets)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_is_served_without_keys(address: str) -> None:
    if address == "::1" and not _has_ipv6():
        pytest.skip("there is no IPv6")
    with bound(listen=address) as (settings, sockets):
        ports = {one.getsockname()[1] for one in sockets}
        assert len(ports) == 1
        url = listen_sockets.address(settings, sockets)
        assert url.startswith("http://")
        assert url.endswith(f":{ports.pop()}")


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_others_are_served_with_keys_only(address: str) -> None:
    with pytest.raises(InvalidArgument) as refused, bound(listen=address):
        pass
    for fix in ("FAIRTURN_KEY_MINE_ID", "[keys.ID]", "--listen 127.0.0.1"):
        assert fix in str(refused.value)


def test_with_keys_everybody_is_served() -> None:
    with bound(listen="0.0.0.0", keys=KEYS) as (settings, sockets):
        port = sockets[0].getsockname()[1]
        assert listen_sockets.address(settings, sockets) == f"http://127.0.0.1:{port}"


def test_over_tls_the_address_says_so() -> None:
    with bound(tls_cert="a", tls_key="b") as (settings, sockets):
        assert listen_sockets.address(settings, sockets).startswith("https://127.0.0.1:")


def test_a_port_that_is_taken() -> None:
    with (
        bound() as (_, sockets),
        pytest.raises(listen_sockets.CannotListen, match="Choose another port with --port"),
        bound(port=sockets[0].getsockname()[1]),
    ):
        pass


@pytest.mark.parametrize("address", ["no.such.host.invalid", "1.2.3.4", "a..b", "x" * 300])
def test_an_address_that_is_not_ours(address: str) -> None:
    with (
        pytest.raises((InvalidArgument, listen_sockets.CannotListen)),
        bound(listen=address, keys=KEYS),
    ):
        pass


def test_sockets_are_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(listen_sockets.VARIABLE, raising=False)
    assert listen_sockets.inherited() is None
    with bound() as (_, sockets):
        copy = sockets[0].dup()
        monkeypatch.setenv(listen_sockets.VARIABLE, str(copy.fileno()))
        (found,) = listen_sockets.inherited() or []
        assert found.getsockname() == sockets[0].getsockname()
        copy.detach()
        found.close()
    assert listen_sockets.inherited() is None  # nobody else shall take them for theirs
