"""The SQS server beside moto's: one process each, the same raw HTTP load over loopback.

python -m bench.sqs [--requests 20000] [--connections 64] [--rounds 3] [--waiting 1000000] [--only sqlite,moto]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fairturn
from bench.sqs.load import Result, drive, request
from tests import servers

NAMES = ("sqlite", "postgresql", "mysql", "moto")
PHASES = ("SendMessage", "ReceiveMessage(10)", "DeleteMessageBatch(10)")
BODY = "x" * 100
SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}  # fsync stays on
MOTO_SHARE = 10  # moto gets this part of the requests: it would take too long


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.sqs")
    parser.add_argument("--requests", type=int, default=20_000, help="sends; receives are a tenth")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--waiting", type=int, default=0, help="messages that wait in the queue")
    parser.add_argument("--only", help=f"some of {','.join(NAMES)}")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [n for n in NAMES if n != "mysql"]
    if unknown := set(names) - set(NAMES):
        parser.error(f"--only knows {', '.join(NAMES)}, not {', '.join(sorted(unknown))}")
    figures: dict[tuple[str, str], list[Result]] = {}
    with contextlib.ExitStack() as stack:
        ports = {name: stack.enter_context(_served(name, options.waiting)) for name in names}
        for turn in range(options.rounds):
            for name, port in ports.items():
                share = MOTO_SHARE if name == "moto" else 1
                queue = f"bench{turn}" if name == "moto" or not options.waiting else "bench"
                count = options.requests // share
                results = asyncio.run(_round(port, queue, count, options.connections))
                for phase, result in zip(PHASES, results, strict=True):
                    figures.setdefault((phase, name), []).append(result)
                    said = f"{result.rate:,.0f}/s" if not result.refused else result.refused[0]
                    print(f"round {turn + 1}: {name}, {phase}: {said}", file=sys.stderr)
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores shared by server, database and load; "
        f"{options.connections} connections, bodies of {len(BODY)} bytes, {options.waiting:,} messages waiting; "
        f"medians of {options.rounds}; load {os.getloadavg()[0]:.1f}\n"
    )
    print("| requests/s | " + " | ".join(names) + " |")
    print("|---|" + "--:|" * len(names))
    for phase in PHASES:
        rates = {name: statistics.median(r.rate for r in figures[phase, name]) for name in names}
        cells: list[str] = []
        for name in names:
            slow = statistics.median(r.percentile(0.95) for r in figures[phase, name]) * 1000
            times = (
                f" ({rates[name] / rates['moto']:.1f}x)"
                if "moto" in rates and name != "moto"
                else ""
            )
            cells.append(f"{rates[name]:,.0f}{times}, p95 {slow:.0f} ms")
        print(f"| {phase} | " + " | ".join(cells) + " |")


async def _round(port: int, queue: str, count: int, connections: int) -> list[Result]:
    host = f"127.0.0.1:{port}"
    answers: list[dict[str, Any]] = []

    def keep(status: int, body: bytes) -> None:
        if status == 200:
            answers.append(json.loads(body))

    async def call(action: str, requests: list[bytes]) -> Result:
        supply = iter(requests)
        return await drive(port, min(connections, len(requests)), lambda: next(supply, None), keep)

    made = await call("CreateQueue", [request("CreateQueue", {"QueueName": queue}, host)])
    if made.refused:
        raise SystemExit(made.refused[0].decode())
    url = answers.pop()["QueueUrl"]
    send = request("SendMessage", {"QueueUrl": url, "MessageBody": BODY}, host)
    sent = await call("SendMessage", [send] * count)
    answers.clear()
    receive = request("ReceiveMessage", {"QueueUrl": url, "MaxNumberOfMessages": 10}, host)
    received = await call("ReceiveMessage", [receive] * (count // 10))
    deletes: list[bytes] = []
    for answer in answers:
        messages = answer.get("Messages", [])
        entries = [
            {"Id": str(i), "ReceiptHandle": one["ReceiptHandle"]} for i, one in enumerate(messages)
        ]
        if entries:
            deletes.append(
                request("DeleteMessageBatch", {"QueueUrl": url, "Entries": entries}, host)
            )
    deleted = await call("DeleteMessageBatch", deletes)
    return [sent, received, deleted]


@contextlib.contextmanager
def _served(name: str, waiting: int) -> Iterator[int]:
    port = servers.free_port()
    with contextlib.ExitStack() as stack:
        if name == "moto":
            words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        else:
            words = [sys.executable, "-m", "fairturn", "serve", "--port", str(port), "--no-access-log",
                     "--db", _database(name, stack, waiting)]  # fmt: skip
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            _await(port, process)
            yield port
        finally:
            process.terminate()
            process.wait()


def _database(name: str, stack: contextlib.ExitStack, waiting: int) -> str:
    if name == "sqlite":
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = f"sqlite:///{Path(folder) / 'bench.db'}"
    elif name == "postgresql":
        url = stack.enter_context(servers.Postgres(settings=SETTINGS)).create_database("bench")
    else:
        url = stack.enter_context(servers.Mysql()).create_database("bench")
    with fairturn.connect(url) as db:
        db.migrate()
        if waiting:
            queue = db.queue("bench")
            queue.create(max_attempts=0, max_body=1 << 22)
            for _ in range(0, waiting, 10_000):
                queue.send_many([BODY] * 10_000)
            db.maintain()
    return url


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            assert process.stderr is not None
            raise SystemExit(process.stderr.read().decode()[-500:])
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5),
        ):
            return
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on {port}")


if __name__ == "__main__":
    main()
