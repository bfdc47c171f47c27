"""RabbitMQ as a destination: AMQP 0-9-1 with publisher confirms, mandatory, persistent.

    amqp://user:${RABBIT_PASSWORD}@host:5672/vhost?exchange=shop&routing_key=orders.{channel}

Without an exchange it is the default exchange, whose routing keys are names of queues. Without a
routing key it is the name of the Fairturn queue. Other options (``heartbeat``, ``cafile`` …) are
aiormq's. A message is handed over when RabbitMQ has confirmed it: then the durable queues that it
was routed to have it on disk. A message that is routed to no queue is not confirmed; it waits here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from urllib.parse import urlencode

from fairturn.relay.amqp.address import PLACEHOLDER, REPLIES, checked
from fairturn.relay.amqp.amqp_message import AmqpMessage, Unsendable, amqp_message
from fairturn.relay.amqp.connection import (
    BrokerConnection,
    Forbidden,
    Late,
    NotFound,
    OnItsWay,
    Precondition,
    Refused,
    Returned,
    Unopened,
    WrongLogin,
    said,
)
from fairturn.relay.destination import Later, Never, Outcome, Parcel

MOST = 500
CONNECT = 8.0  # seconds for a connection
CONFIRM = 20.0  # seconds without a confirm; a slow line has more, see connection.SLOWEST
_TOO_LARGE = re.compile(r"message size \d+ is larger than (?:configured )?max size (\d+)")
_TOPIC = "ACCESS_REFUSED - access to topic '"  # a routing key follows


class AmqpDestination:
    """``routing_key`` may contain {queue}, {channel} and {type} of the message. Several hand-overs
    may use it at the same time. They share one connection, which is made when it is needed and left
    after an error."""

    ahead = 0.0  # RabbitMQ has no delays
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
        self._broker = checked(url, exchange, key)
        self._url = url
        self._exchange = exchange
        self._key = key
        self._one_key = not PLACEHOLDER.search(key)  # for all messages
        self._connect_timeout = connect_timeout
        self._confirm_timeout = confirm_timeout
        self._connection: BrokerConnection | None = None
        self._opening = asyncio.Lock()
        where = {"exchange": exchange, "routing_key": key}
        shown = urlencode({name: value for name, value in where.items() if value}, safe="{}/")
        self.shown = f"{self._broker}?{shown}" if shown else self._broker

    async def hand_over(self, parcels: Sequence[Parcel], now_us: int) -> Sequence[Outcome]:
        outcomes: list[Outcome] = [None] * len(parcels)
        messages: dict[int, AmqpMessage] = {}
        for i, parcel in enumerate(parcels):
            try:
                one = amqp_message(parcel, self._key)
            except Unsendable as error:
                outcomes[i] = Never(str(error))
                continue
            if not self._exchange and any(key.startswith(REPLIES) for key in one.routing_keys):
                outcomes[i] = Never(
                    f"RabbitMQ uses routing keys that start with {REPLIES!r} for direct replies, "
                    f"and no queue has such a name: {one.routing_keys}"
                )
            else:
                messages[i] = one
        if messages:
            for i, outcome in (await self._publish(messages)).items():
                outcomes[i] = outcome
        return outcomes

    async def _publish(self, messages: dict[int, AmqpMessage]) -> dict[int, Outcome]:
        found: dict[int, Outcome] = {}
        connection = await self._connected()
        if isinstance(connection, Later):
            return dict.fromkeys(messages, connection)
        for i, one in list(messages.items()):
            if one.head > connection.frame_max:
                del messages[i]
                found[i] = Never(
                    f"its headers and properties take {one.head} bytes; this RabbitMQ accepts "
                    f"{connection.frame_max} (its frame_max)"
                )
        try:
            troubles = await connection.publish(
                self._exchange, list(messages.values()), self._confirm_timeout
            )
        except BaseException:  # cancelled: it is no longer known what was sent
            await self._leave(connection)
            raise
        found |= self._outcomes(messages, troubles)
        if any(error and not isinstance(error, (Refused, OnItsWay)) for error in troubles):
            await self._leave(connection)
        return found

    # --- the connection -------------------------------------------------------------------------
    async def _connected(self) -> BrokerConnection | Later:
        try:
            async with asyncio.timeout(self._connect_timeout), self._opening:
                if self._connection is None or not self._connection.usable:
                    if self._connection is not None:
                        await self._leave(self._connection)
                    self._connection = await BrokerConnection.open(self._url)
                return self._connection
        except TimeoutError:
            why = f"no answer within {self._connect_timeout:g} s: check the host and the network"
        except WrongLogin as error:
            why = f"it refuses the user or the password: correct the address ({said(error)})"
        except Unopened:
            why = (
                "it closes the connection immediately after the login: check that the virtual host "
                "exists, and that the user may use it"
            )
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            why = f"the connection was lost ({said(error)})"  # aiormq raises this for that, too
        except Exception as error:  # whatever it is, nothing was handed over
            what = f"{type(error).__name__}: {said(error)}"
            why = f"no connection: check that it runs on that host and port ({what})"
        return Later(f"RabbitMQ at {self._broker}: {why}", down=True)

    async def _leave(self, connection: BrokerConnection) -> None:
        if self._connection is connection:
            self._connection = None
        await connection.cut()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # --- outcomes -------------------------------------------------------------------------------
    def _outcomes(
        self, messages: dict[int, AmqpMessage], troubles: Sequence[Exception | None]
    ) -> dict[int, Outcome]:
        # If there is one routing key and no message was accepted, the next ones would fail, too.
        # If some were accepted, the route depends on the headers.
        down = self._one_key and all(isinstance(one, Refused) for one in troubles)
        texts = (said(one) for one in troubles if isinstance(one, Forbidden))
        topic = next((text for text in texts if text.startswith(_TOPIC)), None)
        most = min((_bound(one) for one in troubles if isinstance(one, Precondition)), default=None)
        found: dict[int, Outcome] = {}
        for (i, one), error in zip(messages.items(), troubles, strict=True):
            if error is None:
                found[i] = None
            elif most is not None and len(one.body) > most:
                found[i] = Never(
                    f"its body has {len(one.body)} bytes; RabbitMQ accepts {most:.0f} "
                    "(its max_message_size)"
                )
            elif most is not None and most < float("inf"):
                found[i] = Later("another message of its batch was too large; nothing is wrong")
            elif topic is not None and not any(_names(topic, key) for key in one.routing_keys):
                found[i] = Later("another message's routing key was forbidden; nothing is wrong")
            else:
                found[i] = self._later(error, one.routing_key, down)
        return found

    def _later(self, error: Exception, key: str, down: bool) -> Later:
        """The outcome of a message that is tried again. ``down``: if the broker refused it, all
        others are refused, too."""
        where = f"exchange {self._exchange!r}" if self._exchange else "the default exchange"
        text = said(error)
        if isinstance(error, OnItsWay):
            return Later(text)
        if isinstance(error, Returned):
            return Later(
                f"no queue is bound to {where} for the routing key {key!r}: declare or bind one "
                f"({text})",
                down,
            )
        if isinstance(error, Refused):
            return Later(
                f"RabbitMQ refused it (basic.nack): a queue behind {where} for the routing key "
                f"{key!r} is full, or not available",
                down,
            )
        down = True
        if isinstance(error, NotFound):
            why = f"there is no {where}: declare it, or name another one ({text})"
        elif isinstance(error, Forbidden) and text.startswith(_TOPIC):
            why = f"the user may not write to {where} with such a routing key: allow it ({text})"
            down = self._one_key and _names(text, self._key)
        elif isinstance(error, Forbidden):
            why = f"the user may not write to {where}: allow it ({text})"
        elif isinstance(error, Late):
            why = (
                f"{text}: it is slow or gone, or it blocks publishers because its memory or disk "
                "is full: check its alarms"
            )
        else:
            why = f"the connection was lost ({type(error).__name__}: {text})"
        return Later(f"RabbitMQ at {self._broker}: {why}", down)


def _bound(error: Exception) -> float:
    """The largest message that the broker accepts, if the error is about that."""
    match = _TOO_LARGE.search(str(error))
    return float(match[1]) if match else float("inf")


def _names(topic: str, key: str) -> bool:
    """Is this the routing key that the broker forbids? (It cuts a long text and appends "...".)"""
    words = f"{_TOPIC}{key}' in exchange "
    return topic.startswith(words) or (topic.endswith("...") and words.startswith(topic[:-3]))
