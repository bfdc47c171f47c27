"""A RabbitMQ that is killed, hangs, or is asked too much: what was confirmed is there, and the same
destination works again afterwards. A broker of their own, for these tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fairturn.core.sends import Send
from fairturn.relay.amqp.address import destination_for
from fairturn.relay.amqp.destination import AmqpDestination
from fairturn.relay.destination import Later, Never, Outcome
from tests import rabbit, servers
from tests.conftest import _sockets
from tests.relay.harbour import NOW, Goods, goods, hand_over_all, harbour, later, names, quiet

pytestmark = pytest.mark.server

__all__ = ["goods", "quiet"]  # fixtures
MAX = 300_000  # bytes of a message's body, for this broker
CLERK = {"vhost": "/", "user": "clerk", "configure": "", "write": "^amq.default$", "read": ""}
MASTER = {"vhost": "/", "user": rabbit.USER, "configure": ".*", "write": ".*", "read": ".*"}
USERS = {
    "vhosts": [{"name": "/"}],
    "users": [
        {"name": one["user"], "password": rabbit.PASSWORD, "tags": ""} for one in (CLERK, MASTER)
    ],
    "permissions": [CLERK, MASTER],
}


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The certificate of 127.0.0.1, with its key beside it, and the port where it is shown."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "cert.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    path.with_name("key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path, servers.free_port()


@pytest.fixture(scope="module")
def broker(tls: tuple[Path, int]) -> Iterator[rabbit.Rabbit]:
    certificate, port = tls
    settings = {
        "max_message_size": str(MAX),
        "load_definitions": "users.json",
        "listeners.ssl.1": f"127.0.0.1:{port}",
        "ssl_options.cacertfile": "cert.pem",
        "ssl_options.certfile": "cert.pem",
        "ssl_options.keyfile": "key.pem",
    }
    found = rabbit.Rabbit(settings=settings)
    files = {name: certificate.with_name(name).read_bytes() for name in ("cert.pem", "key.pem")}
    for name, content in [*files.items(), ("users.json", json.dumps(USERS).encode())]:
        copy = found.directory / name  # where the broker's user may read it
        copy.write_bytes(content)
        copy.chmod(0o644)
    with found:
        yield found


async def lasting_queue(broker: rabbit.Rabbit, name: str) -> None:
    """RabbitMQ forgets a durable queue, and all in it, if it is killed right after it was told of
    it: of 36 queues that were 0.3 s old, 2 were gone."""
    async with harbour(broker.url) as side:
        await side.queue(name)
    await asyncio.to_thread(broker.restart)


@pytest.mark.deep
async def test_a_confirmed_message_outlives_the_broker(broker: rabbit.Rabbit, goods: Goods) -> None:
    destination = AmqpDestination(broker.url, routing_key="kept")
    await lasting_queue(broker, "kept")
    before, meanwhile, after = goods.parcels(1500), goods.parcels(3), goods.parcels(3)
    assert await hand_over_all(destination, before) == [None] * 1500
    await asyncio.to_thread(broker.kill9)
    for outcome in await destination.hand_over(meanwhile, NOW):
        later(outcome, "127.0.0.1", down=True)
    await asyncio.to_thread(broker.start)
    assert await destination.hand_over(meanwhile, NOW) == [None] * 3
    await asyncio.to_thread(broker.restart)  # as its operator would
    assert await destination.hand_over(after, NOW) == [None] * 3
    await destination.close()
    sent = [parcel.identity for parcel in [*before, *meanwhile, *after]]
    assert sorted(await names(broker.url, "kept")) == sorted(sent)


@pytest.mark.deep
async def test_killed_in_the_middle_nothing_that_was_confirmed_is_lost(
    broker: rabbit.Rabbit, goods: Goods
) -> None:
    destination = AmqpDestination(broker.url, routing_key="cut")
    await lasting_queue(broker, "cut")
    parcels = goods.parcels(5000)
    batches = iter([parcels[i : i + 500] for i in range(0, 5000, 500)])
    outcomes: dict[str, Outcome] = {}
    some_are_there = asyncio.Event()

    async def fly() -> None:
        for batch in batches:
            found = await destination.hand_over(batch, NOW)
            outcomes.update(zip([one.identity for one in batch], found, strict=True))
            some_are_there.set()

    flights = [asyncio.create_task(fly()) for _ in range(2)]
    await some_are_there.wait()
    os.kill(broker.pid, signal.SIGKILL)
    await asyncio.gather(*flights)
    await asyncio.to_thread(broker.kill9)  # its helpers, too
    away = [parcel for parcel in parcels if outcomes[parcel.identity] is not None]
    assert 0 < len(away) < 5000
    for outcome in outcomes.values():
        if outcome is not None:
            later(outcome, "RabbitMQ at amqp://harbour@127.0.0.1", down=True)
    await asyncio.to_thread(broker.start)
    assert await hand_over_all(destination, away) == [None] * len(away)
    await destination.close()
    came = await names(broker.url, "cut")
    assert set(came) == {parcel.identity for parcel in parcels}
    # Twice at most, and only what had no confirm.
    twice = {name: times for name, times in Counter(came).items() if times > 1}
    assert set(twice) <= {parcel.identity for parcel in away}
    assert set(twice.values()) <= {2}


@pytest.mark.parametrize(
    "sends",
    [
        pytest.param([Send(1)] * 3, id="little"),
        pytest.param([Send("x" * 200_000)] * 100, id="more than a socket takes"),
    ],
)
async def test_a_broker_that_hangs_is_left(
    broker: rabbit.Rabbit, goods: Goods, sends: list[Send]
) -> None:
    async with harbour(broker.url) as side:
        await side.queue("hung")
    sockets = _sockets()
    destination = AmqpDestination(broker.url, routing_key="hung")
    assert await destination.hand_over([goods.parcel()], NOW) == [None]
    parcels = goods.parcels(sends)
    broker.freeze()
    destination._confirm_timeout = 0.5
    try:
        for outcome in await destination.hand_over(parcels, NOW):
            later(outcome, "no confirm within 0.5 s", "alarms", down=True)
        assert _sockets() <= sockets  # although it has not read what we sent
    finally:
        broker.thaw()
    await destination.close()
    again = AmqpDestination(broker.url, routing_key="hung")
    assert await again.hand_over(parcels, NOW) == [None] * len(parcels)
    await again.close()
    assert {parcel.identity for parcel in parcels} < set(await names(broker.url, "hung"))


async def test_a_cancelled_hand_over_leaves_nothing_behind(
    broker: rabbit.Rabbit, goods: Goods
) -> None:
    async with harbour(broker.url) as side:
        await side.queue("left")
    destination = AmqpDestination(broker.url, routing_key="left")
    assert await destination.hand_over([goods.parcel()], NOW) == [None]
    parcels = goods.parcels(5)
    broker.freeze()
    try:
        flight = asyncio.create_task(destination.hand_over(parcels, NOW))
        await asyncio.sleep(0)  # it has begun
        flight.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flight
    finally:
        broker.thaw()
    assert await destination.hand_over(parcels, NOW) == [None] * 5
    await destination.close()
    assert {parcel.identity for parcel in parcels} < set(await names(broker.url, "left"))


@contextlib.asynccontextmanager
async def slow_line(url: str, chunk: int, pause: float) -> AsyncIterator[str]:
    """The broker's URL, at the other end of a line that takes so many bytes, then rests."""
    lines: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rest: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(chunk):
                writer.write(data)
                await writer.drain()
                if rest:
                    await asyncio.sleep(pause)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        for one in (carry(reader, there[1], True), carry(there[0], writer, False)):
            lines.add(asyncio.create_task(one))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=chunk)
    try:
        yield url.replace(str(urlsplit(url).port), str(server.sockets[0].getsockname()[1]))
    finally:
        server.close()
        await asyncio.wait(lines)


@pytest.mark.deep
@pytest.mark.parametrize(
    "sends",
    [
        pytest.param([Send(b"x" * MAX), Send(1)], id="one large"),
        pytest.param([Send(b"x" * 15_000) for _ in range(20)], id="some"),
    ],
)
async def test_a_slow_line_is_not_a_dead_one(
    broker: rabbit.Rabbit, goods: Goods, sends: list[Send]
) -> None:
    """They need 7 s, and no more than 5 s pass between two confirms; or there is one only."""
    async with harbour(broker.url) as side:
        queue = await side.queue()
    async with slow_line(broker.url, 10_000, 0.25) as url:
        destination = AmqpDestination(url, routing_key=queue.name, confirm_timeout=5)
        parcels = goods.parcels(sends)
        half = len(parcels) // 2
        some = await asyncio.gather(
            destination.hand_over(parcels[:half], NOW), destination.hand_over(parcels[half:], NOW)
        )
        await destination.close()
    assert [*some[0], *some[1]] == [None] * len(parcels)
    assert len(await names(broker.url, queue.name)) == len(parcels)


async def test_a_message_too_large_for_the_broker_is_dead_and_stops_no_other(
    broker: rabbit.Rabbit, goods: Goods
) -> None:
    async with harbour(broker.url) as side:
        await side.queue("large")
    destination = AmqpDestination(broker.url, routing_key="large")
    sends = [Send("x" * 1000) for _ in range(20)]
    sends.insert(10, Send(b"x" * (MAX + 1)))
    sends.insert(11, Send(b"x" * MAX))
    todo = goods.parcels(sends)
    dead: list[str] = []
    for _ in range(2):  # the first time it takes others with it, which are told to come again
        outcomes = await destination.hand_over(todo, NOW)
        dead += [outcome.reason for outcome in outcomes if isinstance(outcome, Never)]
        todo = [
            one for one, outcome in zip(todo, outcomes, strict=True) if isinstance(outcome, Later)
        ]
        assert not any(isinstance(outcome, Later) and outcome.down for outcome in outcomes)
    await destination.close()
    assert todo == []
    [reason] = dead
    assert f"{MAX + 1} bytes" in reason
    assert f"accepts {MAX} " in reason
    assert len(set(await names(broker.url, "large"))) == 21


async def test_tls(broker: rabbit.Rabbit, goods: Goods, tls: tuple[Path, int]) -> None:
    certificate, port = tls
    async with harbour(broker.url) as side:
        await side.queue("sealed")
    url = f"amqps://{rabbit.USER}:{rabbit.PASSWORD}@127.0.0.1:{port}/"
    destination = destination_for(f"{url}?cafile={certificate}&routing_key=sealed", "goods")
    parcels = goods.parcels([Send("x" * 10_000) for _ in range(300)])
    assert await destination.hand_over(parcels, NOW) == [None] * 300
    await destination.close()
    strangers = destination_for(url, "goods")
    [outcome] = await strangers.hand_over([goods.parcel()], NOW)
    later(outcome, "CERTIFICATE_VERIFY_FAILED", down=True)
    await strangers.close()
    assert len(await names(broker.url, "sealed")) == 300


async def test_a_peer_that_is_silent_after_the_tls_handshake_is_left(
    goods: Goods, tls: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for its goodbye: TLS would do so for as long as this says."""
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", 3600.0)
    certificate, _ = tls
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    left = threading.Event()

    def shake_hands(listener: socket.socket) -> None:
        with listener.accept()[0] as one, context.wrap_socket(one, server_side=True):
            left.wait()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = asyncio.create_task(asyncio.to_thread(shake_hands, listener))
        url = f"amqps://127.0.0.1:{listener.getsockname()[1]}/?cafile={certificate}"
        destination = AmqpDestination(url, connect_timeout=1)
        try:
            [outcome] = await destination.hand_over([goods.parcel()], NOW)
        finally:
            left.set()
            await silent
        await destination.close()
    later(outcome, "no answer within 1 s", down=True)


async def test_a_user_who_may_write_only(broker: rabbit.Rabbit, goods: Goods) -> None:
    """As docs/relay-rabbitmq.md proposes it; and what the others are told."""
    async with harbour(broker.url) as side:
        await side.queue("allowed")
    url = broker.url.replace(rabbit.USER, "clerk")
    allowed = AmqpDestination(url, routing_key="allowed")
    assert await allowed.hand_over(goods.parcels(3), NOW) == [None] * 3
    await allowed.close()
    forbidden = AmqpDestination(url, exchange="amq.fanout")
    for outcome in await forbidden.hand_over(goods.parcels(3), NOW):
        later(outcome, "may not write to exchange 'amq.fanout'", "ACCESS_REFUSED", down=True)
    await forbidden.close()
