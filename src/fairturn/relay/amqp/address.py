"""Addresses of RabbitMQ: ``amqp://…?exchange=…&routing_key=…``. Nothing here needs aiormq."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fairturn.relay.destination import DestinationError

if TYPE_CHECKING:
    from fairturn.relay.amqp.destination import AmqpDestination

PORTS = {"amqp": 5672, "amqps": 5671}
REPLIES = "amq.rabbitmq.reply-to."  # such routing keys of the default exchange name no queue
PLACEHOLDER = re.compile(r"\{(queue|channel|type)\}")
_OURS = ("exchange", "routing_key")
_AIORMQS = (
    *("heartbeat", "name", "timeout", "auth", "cafile", "capath", "cadata"),
    *("certfile", "keyfile", "no_verify_ssl"),
)
_EXCHANGE = re.compile(r"[a-zA-Z0-9_.:@#,/+ -]{0,127}")  # aiormq sends no other names


def destination_for(address: str, queue: str) -> AmqpDestination:
    """The destination that an address means for a queue."""
    url, ours = _split(address)
    exchange, key = ours.get("exchange", ""), ours.get("routing_key")
    try:
        import aiormq  # noqa: F401  # pyright: ignore[reportUnusedImport]

        from fairturn.relay.amqp.destination import AmqpDestination
    except ImportError:
        raise DestinationError(
            "a relay to RabbitMQ needs aiormq, which is not installed: pip install aiormq"
        ) from None
    return AmqpDestination(url, exchange=exchange, routing_key=key, queue=queue)


def check_address(address: str) -> None:
    """Raise if it is no address of RabbitMQ."""
    url, ours = _split(address)
    checked(url, ours.get("exchange", ""), ours.get("routing_key", ""))


def _split(address: str) -> tuple[str, dict[str, str]]:
    """The broker's URL for aiormq, and our own options."""
    try:
        parts = urlsplit(address)
    except ValueError as error:  # its text may contain the password
        raise DestinationError(f"this is no address: {type(error).__name__}") from None
    query = parse_qsl(parts.query, keep_blank_values=True)
    for name, _ in query:
        if name not in _OURS + _AIORMQS:
            raise DestinationError(
                f"an address of RabbitMQ has no option {name!r}: it may have {', '.join(_OURS)}, "
                f"and for the connection {', '.join(_AIORMQS)}"
            )
    rest = urlencode([(name, value) for name, value in query if name not in _OURS])
    ours = {name: value for name, value in query if name in _OURS}
    return parts._replace(query=rest).geturl(), ours


def checked(url: str, exchange: str, key: str) -> str:
    """The broker's URL without a password and options. Raises if any argument cannot be used."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError as error:  # its text may contain the password, as if it were a port
        raise DestinationError(
            f"the address of RabbitMQ is no URL ({type(error).__name__}): check its port, and "
            "write the special characters of a password as %XX"
        ) from None
    if scheme not in PORTS or not host:
        raise DestinationError("the address of RabbitMQ must be amqp://user:password@host/vhost")
    if parts.password == "" or (parts.password and not parts.username):
        raise DestinationError(
            "the address of RabbitMQ has an empty user or password. In a shell, put the address "
            "into single quotes: in double quotes, the shell replaces the relay's variables"
        )
    if not _EXCHANGE.fullmatch(exchange):
        raise DestinationError(
            f"exchange {exchange!r} cannot be used: a name may have up to 127 characters, which "
            "are letters from a to z, digits, spaces, and any of - _ . : @ # , / +"
        )
    if not exchange and key.startswith(REPLIES):
        raise DestinationError(f"routing_key {key!r} cannot be used: no queue has such a name")
    if re.search(r"[{}]", PLACEHOLDER.sub("", key)):
        raise DestinationError(
            f"routing_key {key!r} may contain {{queue}}, {{channel}} and {{type}}, and no other "
            "braces"
        )
    user = f"{quote(parts.username, safe='')}@" if parts.username else ""
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{user}{host}:{port or PORTS[scheme]}{parts.path or '/'}"
