"""The sockets on which a server listens: bound once, and inherited by its processes."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from ipaddress import ip_address

from fairturn.core.errors import FairturnError, InvalidArgument
from fairturn.server.config import Settings

VARIABLE = "FAIRTURN_LISTENERS"  # the numbers of the inherited sockets
BACKLOG = 2048


class CannotListen(FairturnError):
    """The address is in use, or does not belong to this machine."""


def listeners(settings: Settings) -> list[socket.socket]:
    """Bind every address of ``listen``: localhost has two, and clients may try either."""
    host, port = settings.listen, settings.port
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except (OSError, UnicodeError) as error:
        text = f"listen: {host!r} is not an address of this machine: {error}"
        raise InvalidArgument(text) from None
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    _check_exposure(settings, [str(name) for _, (name, *_) in addresses])
    bound: list[socket.socket] = []
    problem: OSError | None = None
    for family, (name, *_) in addresses:
        try:
            bound.append(_bind(family, name, port))
        except OSError as error:  # the name may have an IPv6 address where the machine has no IPv6
            problem = error
            if len(addresses) == 1 or error.errno != errno.EADDRNOTAVAIL:
                break
            continue
        _, port, *_ = bound[0].getsockname()  # if it was 0, the next addresses get the same port
    if not bound or (problem is not None and problem.errno != errno.EADDRNOTAVAIL):
        close(bound)
        raise CannotListen(
            f"cannot listen on {host}:{settings.port}: {problem and problem.strerror}. Is another "
            "server running there? Choose another port with --port (or FAIRTURN_SERVE_PORT=9325), "
            "or another address with --listen"
        )
    return bound


def _bind(family: int, host: str | int, port: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound


def _check_exposure(settings: Settings, addresses: Sequence[str]) -> None:
    """Refuse addresses that other machines can reach, unless there are access keys."""
    if len(settings.keys) or all(_loopback(address) for address in addresses):
        return
    raise InvalidArgument(
        f"no access keys are configured, and other machines can reach {settings.listen}: they "
        "could read and delete every message. Configure a key (FAIRTURN_KEY_MINE_ID and "
        "FAIRTURN_KEY_MINE_SECRET, or [keys.ID] in the --config file), or serve this machine only "
        "with --listen 127.0.0.1"
    )


def _loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


def inherited() -> list[socket.socket] | None:
    """Return the sockets inherited from the supervisor; None without a supervisor."""
    numbers = os.environ.pop(VARIABLE, None)
    if numbers is None:
        return None
    found = [socket.socket(fileno=int(number)) for number in numbers.split(",")]
    for one in found:
        one.set_inheritable(False)
        one.setblocking(False)
    return found


def close(sockets: Sequence[socket.socket]) -> None:
    for one in sockets:
        one.close()


def address(settings: Settings, sockets: Sequence[socket.socket]) -> str:
    """Return the URL for a client on this machine."""
    host, port, *_ = sockets[0].getsockname()
    if ip_address(host.partition("%")[0]).is_unspecified:
        host = "127.0.0.1" if sockets[0].family == socket.AF_INET else "::1"
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
