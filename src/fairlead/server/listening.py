"""The sockets a server listens on: bound once, and handed on to its processes."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from ipaddress import ip_address

from fairlead.errors import FairleadError, InvalidArgument
from fairlead.server.config import Settings

VARIABLE = "FAIRLEAD_LISTENERS"  # the numbers of sockets that are inherited
BACKLOG = 2048


class CannotListen(FairleadError):
    """The address is taken, or not ours."""


def listeners(settings: Settings) -> list[socket.socket]:
    """Bind every address that ``listen`` means: localhost is two, and clients try either."""
    host, port = settings.listen, settings.port
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except (OSError, UnicodeError) as error:
        raise InvalidArgument(f"listen: {host!r} is no address of this machine: {error}") from None
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    _refuse_strangers(settings, [str(address[0]) for _, address in addresses])
    bound: list[socket.socket] = []
    problem: OSError | None = None
    for family, address in addresses:
        try:
            bound.append(_bind(family, address[0], port))
        except OSError as error:  # this machine may have no IPv6, and the name both
            problem = error
            if len(addresses) == 1 or error.errno != errno.EADDRNOTAVAIL:
                break
            continue
        port = bound[0].getsockname()[1]  # 0 was "any": the others get the same
    if not bound or (problem is not None and problem.errno != errno.EADDRNOTAVAIL):
        close(bound)
        raise CannotListen(
            f"cannot listen on {host}:{settings.port}: {problem and problem.strerror}. Is another "
            "server running there? Choose another port with --port (or FAIRLEAD_SERVE_PORT=9325), "
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


def _refuse_strangers(settings: Settings, addresses: Sequence[str]) -> None:
    """Without keys, everybody who can connect can read and delete everything."""
    if len(settings.keys) or all(_loopback(address) for address in addresses):
        return
    raise InvalidArgument(
        f"no access keys are configured, and other machines can reach {settings.listen}: anybody "
        "there could read and delete every message. Configure a key (FAIRLEAD_KEY_MINE_ID and "
        "FAIRLEAD_KEY_MINE_SECRET, or [keys.ID] in the --config file), or serve this machine only "
        "with --listen 127.0.0.1"
    )


def _loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


def inherited() -> list[socket.socket] | None:
    """The sockets that our supervisor listens on; None: nobody handed us any."""
    told = os.environ.pop(VARIABLE, None)
    if told is None:
        return None
    found = [socket.socket(fileno=int(number)) for number in told.split(",")]
    for one in found:
        one.set_inheritable(False)
        one.setblocking(False)
    return found


def close(sockets: Sequence[socket.socket]) -> None:
    for one in sockets:
        one.close()


def address(settings: Settings, sockets: Sequence[socket.socket]) -> str:
    """Where a client on this machine finds us."""
    host, port = sockets[0].getsockname()[:2]
    if ip_address(host.partition("%")[0]).is_unspecified:
        host = "127.0.0.1" if sockets[0].family == socket.AF_INET else "::1"
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
