"""RabbitMQ as a destination: AMQP 0-9-1 with publisher confirms, mandatory, persistent.

    amqp://user:${RABBIT_PASSWORD}@host:5672/vhost?exchange=shop&routing_key=orders.{channel}

Without an exchange it is the default one, whose routing keys are names of queues; without a routing
key it is the name of Fairlead's queue. What else is in the query (``heartbeat``, ``cafile`` …) is
aiormq's. A message counts as handed over when RabbitMQ has confirmed it: then it is on the disk of
the durable queues it was routed to. One that no queue would get is not confirmed, it waits here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fairlead.relay.destination import DestinationError, Later, Never, Outcome, Parcel

if TYPE_CHECKING:
    from fairlead.relay.amqp_letters import Letter
    from fairlead.relay.amqp_wire import Wire

SCHEMES = ("amqp", "amqps")
PORTS = {"amqp": 5672, "amqps": 5671}
MOST = 500
CONNECT = 8.0  # seconds for a connection
CONFIRM = 20.0  # seconds without a confirm; a slow line has more, see amqp_wire.SLOWEST
REPLIES = "amq.rabbitmq.reply-to."  # in the default exchange: not a queue, but one who asks
_OURS = ("exchange", "routing_key")
# What aiormq understands.
_THEIRS = (
    *("heartbeat", "name", "timeout", "auth", "cafile", "capath", "cadata"),
    *("certfile", "keyfile", "no_verify_ssl"),
)
_PLACEHOLDERS = re.compile(r"\{(?:queue|channel|type)\}")
_EXCHANGE = re.compile(r"[a-zA-Z0-9_.:@#,/+ -]{0,127}")  # all that the library sends
_TOO_LARGE = re.compile(r"message size \d+ is larger than (?:configured )?max size (\d+)")
_TOPIC = "ACCESS_REFUSED - access to topic '"  # what follows is a routing key


def destination_for(address: str, queue: str) -> AmqpDestination:
    """The destination that ``amqp://…?exchange=…&routing_key=…`` means for a queue."""
    url, ours = _read(address)
    exchange, key = ours.get("exchange", ""), ours.get("routing_key")
    return AmqpDestination(url, exchange=exchange, routing_key=key, queue=queue)


def check_address(address: str) -> None:
    """Raise if it cannot be one."""
    url, ours = _read(address)
    _checked(url, ours.get("exchange", ""), ours.get("routing_key", ""))


def _read(address: str) -> tuple[str, dict[str, str]]:
    """The broker's URL, and what of the address is ours."""
    try:
        parts = urlsplit(address)
    except ValueError as error:  # it may hold the password
        raise DestinationError(f"this is no address: {type(error).__name__}") from None
    query = parse_qsl(parts.query, keep_blank_values=True)
    for name, _ in query:
        if name not in _OURS + _THEIRS:
            raise DestinationError(
                f"an address of RabbitMQ has no {name!r}: it may have {', '.join(_OURS)}, and "
                f"for the connection {', '.join(_THEIRS)}"
            )
    rest = urlencode([pair for pair in query if pair[0] not in _OURS])
    ours = {name: value for name, value in query if name in _OURS}
    return parts._replace(query=rest).geturl(), ours


class AmqpDestination:
    """``routing_key`` may hold {queue}, {channel} and {type}, which are the message's. It may be
    used by several hand-overs at once; they share one connection, made when it is needed and left
    after any trouble."""

    ahead = 0.0  # RabbitMQ keeps no delays
    most = MOST

    def __init__(
        self,
        url: str,
        *,
        exchange: str = "",
        routing_key: str | None = None,
        queue: str = "",
        connect_timeout: float = CONNECT,
        confirm_timeout: float = CONFIRM,
    ) -> None:
        key = (queue or "{queue}") if routing_key is None else routing_key
        self._host = _checked(url, exchange, key)
        _needed()
        self._url = url
        self._exchange = exchange
        self._key = key
        self._fixed = not _PLACEHOLDERS.search(key)  # one key for all
        self._connect_timeout = connect_timeout
        self._confirm_timeout = confirm_timeout
        self._wire: Wire | None = None
        self._opening = asyncio.Lock()
        where = {"exchange": exchange, "routing_key": key}
        shown = urlencode({name: value for name, value in where.items() if value}, safe="{}/")
        self.shown = f"{self._host}?{shown}" if shown else self._host

    def __repr__(self) -> str:
        return f"<AmqpDestination {self.shown}>"

    async def hand_over(self, parcels: Sequence[Parcel], now_us: int) -> Sequence[Outcome]:
        from fairlead.relay.amqp_letters import Unsendable, letter

        outcomes: list[Outcome] = [None] * len(parcels)
        letters: dict[int, Letter] = {}
        for i, parcel in enumerate(parcels):
            try:
                one = letter(parcel, self._key)
            except Unsendable as error:
                outcomes[i] = Never(str(error))
                continue
            if not self._exchange and any(key.startswith(REPLIES) for key in one.routing_keys):
                outcomes[i] = Never(
                    f"RabbitMQ keeps routing keys that start with {REPLIES!r} for answers to those "
                    f"who wait for one, and has no queues of such names: {one.routing_keys}"
                )
            else:
                letters[i] = one
        if letters:
            for i, outcome in (await self._deliver(letters)).items():
                outcomes[i] = outcome
        return outcomes

    async def _deliver(self, letters: dict[int, Letter]) -> dict[int, Outcome]:
        found: dict[int, Outcome] = {}
        wire = await self._connected()
        if isinstance(wire, Later):
            return dict.fromkeys(letters, wire)
        for i, one in list(letters.items()):
            if one.head > wire.frame_max:
                del letters[i]
                found[i] = Never(
                    f"its headers and properties take {one.head} bytes; this RabbitMQ accepts "
                    f"{wire.frame_max} (its frame_max)"
                )
        try:
            troubles = await wire.publish(
                self._exchange, list(letters.values()), self._confirm_timeout
            )
        except BaseException:  # we are cancelled: what was sent is not known any more
            await self._leave(wire)
            raise
        found |= self._judged(letters, troubles)
        if any(self._ends(error) for error in troubles):
            await self._leave(wire)
        return found

    # --- the connection -------------------------------------------------------------------------
    async def _connected(self) -> Wire | Later:
        from fairlead.relay.amqp_wire import Unopened, Wire, WrongLogin, said

        try:
            async with asyncio.timeout(self._connect_timeout), self._opening:
                if self._wire is None or not self._wire.usable:
                    if self._wire is not None:
                        await self._leave(self._wire)
                    self._wire = await Wire.open(self._url)
                return self._wire
        except TimeoutError:
            why = f"no answer within {self._connect_timeout:g} s: look at the host and the network"
        except WrongLogin as error:
            why = f"it refuses the user or the password: correct the address ({said(error)})"
        except Unopened:
            why = (
                "it closes the connection as soon as we are in: is there such a virtual host, and "
                "may the user enter it?"
            )
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            why = f"the connection was lost ({said(error)})"  # aiormq's way to say so
        except Exception as error:  # whatever it is, nothing was handed over
            what = f"{type(error).__name__}: {said(error)}"
            why = f"no connection: does it run there, on that port? ({what})"
        return Later(f"RabbitMQ at {self._host}: {why}", down=True)

    async def _leave(self, wire: Wire) -> None:
        if self._wire is wire:
            self._wire = None
        await wire.cut()

    async def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    # --- what became of them --------------------------------------------------------------------
    def _judged(
        self, letters: dict[int, Letter], troubles: Sequence[Exception | None]
    ) -> dict[int, Outcome]:
        from fairlead.relay.amqp_wire import Forbidden, Precondition, Refused, said

        # With one routing key none is taken, unless some are: a route may depend on headers, too.
        shut = self._fixed and all(isinstance(one, Refused) for one in troubles)
        texts = (said(one) for one in troubles if isinstance(one, Forbidden))
        topic = next((text for text in texts if text.startswith(_TOPIC)), None)
        most = min((_bound(one) for one in troubles if isinstance(one, Precondition)), default=None)
        found: dict[int, Outcome] = {}
        for (i, letter), error in zip(letters.items(), troubles, strict=True):
            if error is None:
                found[i] = None
            elif most is not None and len(letter.body) > most:
                found[i] = Never(
                    f"its body has {len(letter.body)} bytes; this RabbitMQ accepts {most:.0f} "
                    "(its max_message_size)"
                )
            elif most is not None and most < float("inf"):
                found[i] = Later("another message of its batch was too large; nothing is wrong")
            elif topic is not None and not any(_names(topic, key) for key in letter.routing_keys):
                found[i] = Later("another message's routing key was forbidden; nothing is wrong")
            else:
                found[i] = self._later(error, letter, shut)
        return found

    def _later(self, error: Exception, letter: Letter, shut: bool) -> Later:
        from fairlead.relay import amqp_wire as wire

        where = f"exchange {self._exchange!r}" if self._exchange else "the default exchange"
        text = wire.said(error)
        if isinstance(error, wire.Returned):
            return Later(
                f"no queue is bound to {where} for the routing key {letter.routing_key!r}: "
                f"declare or bind one ({text})",
                down=shut,
            )
        if isinstance(error, wire.Refused):
            return Later(
                f"RabbitMQ refused it (basic.nack): a queue behind {where} for the routing key "
                f"{letter.routing_key!r} is full, or not available",
                down=shut,
            )
        if isinstance(error, wire.OnItsWay):
            return Later(text)
        down = True
        if isinstance(error, wire.NotFound):
            why = f"there is no {where}: declare it, or name another one ({text})"
        elif isinstance(error, wire.Forbidden) and text.startswith(_TOPIC):
            why = f"the user may not write to {where} with such a routing key: allow it ({text})"
            down = self._fixed and _names(text, self._key)
        elif isinstance(error, wire.Forbidden):
            why = f"the user may not write to {where}: allow it ({text})"
        elif isinstance(error, wire.Late):
            why = (
                f"{text}: it is slow, away, or blocks publishers because of its memory or its "
                "disk: look at its alarms"
            )
        else:
            why = f"the connection was lost ({type(error).__name__}: {text})"
        return Later(f"RabbitMQ at {self._host}: {why}", down=down)

    def _ends(self, error: Exception | None) -> bool:
        """Does this trouble end the connection?"""
        from fairlead.relay import amqp_wire as wire

        return error is not None and not isinstance(error, (wire.Refused, wire.OnItsWay))


def _bound(error: Exception) -> float:
    """The size that the broker takes, if its words are about that."""
    words = _TOO_LARGE.search(str(error))
    return float(words[1]) if words else float("inf")


def _names(topic: str, key: str) -> bool:
    """Is it this routing key that the broker forbids? (It cuts a long text, and marks it.)"""
    words = f"{_TOPIC}{key}' in exchange "
    return topic.startswith(words) or (topic.endswith("...") and words.startswith(topic[:-3]))


def _checked(url: str, exchange: str, key: str) -> str:
    """The broker for people and logs: without a password. Raises if it cannot be used."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError as error:  # it may hold the password, which urlsplit takes for a port
        raise DestinationError(
            f"the address of RabbitMQ is no URL ({type(error).__name__}): look at its port, and "
            "write the special characters of a password as %XX"
        ) from None
    if scheme not in SCHEMES or not host:
        raise DestinationError("the address of RabbitMQ must be amqp://user:password@host/vhost")
    if parts.password == "" or (parts.password and not parts.username):
        raise DestinationError(
            "the address of RabbitMQ has an empty user or password. In a shell, put it into single "
            "quotes: in double ones a variable of the relay is taken from the shell"
        )
    if not _EXCHANGE.fullmatch(exchange):
        raise DestinationError(
            f"exchange {exchange!r} cannot be used: a name may have up to 127 characters, which "
            "are letters from a to z, digits, spaces, and any of - _ . : @ # , / +"
        )
    if not exchange and key.startswith(REPLIES):
        raise DestinationError(f"routing_key {key!r} cannot be used: no queue has such a name")
    if re.search(r"[{}]", _PLACEHOLDERS.sub("", key)):
        raise DestinationError(
            f"routing_key {key!r} may hold {{queue}}, {{channel}} and {{type}}, and no other braces"
        )
    user = f"{quote(parts.username, safe='')}@" if parts.username else ""
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{user}{host}:{port or PORTS[scheme]}{parts.path or '/'}"


def _needed() -> None:
    try:
        import aiormq  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        raise DestinationError(
            "a relay to RabbitMQ needs a package: install Fairlead with its extra amqp"
        ) from None
