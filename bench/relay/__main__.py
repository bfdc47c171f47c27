"""How fast the relay hands over: to SQS (Fairturn's server, moto's), RabbitMQ, another Fairturn.

python -m bench.relay [--messages 20000] [--rounds 3] [--waiting 1000000] [--source postgresql] [--only sqs,rabbitmq]
    [--ordered 1]  # in so many ordered channels
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fairturn
from bench.sqs.__main__ import _served
from fairturn.relay import Relay
from fairturn.relay.sqs.clients import client_for
from tests import rabbit, servers
from tests.faults.sqs_crew import Server

NAMES = ("sqs", "moto", "rabbitmq", "fairturn")
SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}  # fsync stays on
MOTO_SHARE = 10  # moto gets this part of the messages: it would take too long
YEAR = 365 * 86_400
BODY = {"order": 4711, "text": "x" * 80}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.relay")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--waiting", type=int, default=0, help="messages in the queue that are due next year"
    )
    parser.add_argument("--source", choices=("sqlite", "postgresql", "mysql"), default="postgresql")
    parser.add_argument("--ordered", type=int, default=0, help="in so many ordered channels")
    parser.add_argument("--only", help=f"some of {','.join(NAMES)}")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(NAMES)
    os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any")
    rates: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(_source(options.source, directory, options.ordered > 0))
        places = {name: stack.enter_context(_place(name, directory)) for name in names}
        _wait_for_next_year(url, options.waiting)
        for turn in range(options.rounds):
            for name, address in places.items():
                count = options.messages // (MOTO_SHARE if name == "moto" else 1)
                rate = asyncio.run(_hand_over(url, address, count, options.ordered))
                rates.setdefault(name, []).append(rate)
                print(f"round {turn + 1}: {name}: {rate:,.0f}/s", file=sys.stderr)
        idle = asyncio.run(_idle(url))
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores shared by relay, databases and brokers; source "
        f"{options.source}, fsync on; {options.waiting:,} messages waiting for next year; medians of {options.rounds}; "
        f"load {os.getloadavg()[0]:.1f}\n"
    )
    print("| destination | messages/s | slowest to fastest |\n|---|--:|--:|")
    for name, found in rates.items():
        print(
            f"| {name} | {statistics.median(found):,.0f} | {min(found):,.0f} to {max(found):,.0f} |"
        )
    print(f"\nidle: {idle * 100:.1f} % of a core in the relay's process")


@contextlib.contextmanager
def _source(kind: str, directory: Path, ordered: bool) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        if kind == "sqlite":
            url = f"sqlite:///{directory}/source.db"
        else:
            server: Any = (
                servers.Postgres(settings=SETTINGS) if kind == "postgresql" else servers.Mysql()
            )
            url = stack.enter_context(server).create_database("source")
        with fairturn.connect(url) as db:
            db.migrate()
            db.queue("out").create(max_attempts=0, policy=fairturn.Policy(ordered=ordered))
        yield url


@contextlib.contextmanager
def _place(name: str, directory: Path) -> Iterator[str]:
    """Start a broker of that kind: its address."""
    if name == "sqs":
        url = f"sqlite:///{directory}/sqs.db"
        with fairturn.connect(url) as db:
            db.queue("in").create()
        with Server(url) as server:
            yield f"sqs:http://127.0.0.1:{server.port}/000000000000/in"
    elif name == "moto":
        with _served("moto", 0) as port:
            client_for(f"http://127.0.0.1:{port}/123456789012/in").create_queue(QueueName="in")
            yield f"sqs:http://127.0.0.1:{port}/123456789012/in"
    elif name == "rabbitmq":
        with rabbit.Rabbit() as broker:
            asyncio.run(_declare(broker.url))
            yield f"{broker.url}?routing_key=in"
    else:
        with servers.Postgres(settings=SETTINGS) as server:
            url = server.create_database("centre")
            with fairturn.connect(url) as db:
                db.migrate()
                db.queue("in").create()
            yield f"{url}#in"


async def _declare(url: str) -> None:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("in", durable=True)


def _wait_for_next_year(url: str, count: int) -> None:
    with fairturn.connect(url) as db:
        for start in range(0, count, 10_000):
            db.queue("out").send_many(
                fairturn.Send(BODY, delay=YEAR + n)
                for n in range(start, min(start + 10_000, count))
            )


async def _hand_over(url: str, address: str, count: int, channels: int) -> float:
    """Messages per second, from the start of the relay to the last ack."""
    from fairturn.relay.addresses import open_destination

    db = fairturn.connect_async(url)
    queue = db.queue("out")
    for start in range(0, count, 5_000):
        await queue.send_many(
            fairturn.Send(BODY, channel=str(n % channels) if channels else "")
            for n in range(start, min(start + 5_000, count))
        )
    acked = (await queue.stats()).acked
    began = time.perf_counter()
    async with Relay(db, {"out": open_destination(address, "out")}, schedules=False) as relay:
        while not relay.routes or relay.routes["out"].counts.handed < count:
            await asyncio.sleep(0.005)
            if relay.routes and relay.routes["out"].down:
                raise RuntimeError(relay.routes["out"].down)
        took = time.perf_counter() - began
    assert (await queue.stats()).acked == acked + count
    await db.close()
    return count / took


async def _idle(url: str) -> float:
    """The part of a core that an idle relay uses."""
    from tests.relay.places import Place

    db = fairturn.connect_async(url)
    async with Relay(db, {"out": Place(ahead=900)}, schedules=False):
        await asyncio.sleep(2)
        began = time.process_time()
        await asyncio.sleep(5)
        used = time.process_time() - began
    await db.close()
    return used / 5


if __name__ == "__main__":
    main()
