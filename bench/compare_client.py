"""One tree's side of `bench.compare`: measures the cases it is asked for, on its own database.

The package's name is an argument, so that these cases can measure an older tree, too. It reads lines
`case seconds` from stdin. It answers each with messages per second, and CPU microseconds per message
of all processes: this one, its SQS server, and the database server.
"""

from __future__ import annotations

import asyncio
import http.client
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BODY = b"x" * 200
# What a case yields: a number of messages that it has done, or one of these.
MEASURE, PAUSE = -1, -2  # what follows is measured; what follows prepares the next messages


class Cases:
    def __init__(self, package: str, url: str, port: int) -> None:
        self.package = importlib.import_module(package)
        self.name, self.url, self.port = package, url, port
        self.db = self.package.connect(url)
        self.db.migrate()
        self.numbers = iter(range(10**9))
        self.server: subprocess.Popen[bytes] | None = None

    def queue(self, messages: int = 0, channels: int = 1, **policy: Any) -> Any:
        """A fresh queue with messages in it."""
        queue = self.db.queue(f"q{next(self.numbers)}")
        queue.create(policy=self.package.Policy(**policy))
        send = self.package.Send
        for start in range(0, messages, 5_000):
            some = range(start, min(start + 5_000, messages))
            queue.send_many([send(BODY, channel=f"c{n % channels}") for n in some])
        return queue

    # --- the cases ------------------------------------------------------------------------------
    def send_one(self) -> Iterator[int]:
        queue = self.queue()
        yield MEASURE
        while True:
            for _ in range(20):
                queue.send(BODY, channel="c0")
            yield 20

    def send_keyed(self) -> Iterator[int]:
        queue = self.queue()
        yield MEASURE
        while True:
            for _ in range(20):
                queue.send({"n": 1}, key=f"k{next(self.numbers)}", on_conflict="ignore")
            yield 20

    def send_many_1000(self) -> Iterator[int]:
        queue = self.queue()
        items = [self.package.Send(BODY, channel="c0") for _ in range(1000)]
        yield MEASURE
        while True:
            queue.send_many(items)
            yield 1000

    def _receives(
        self, batch: int, channels: int = 1, carry: bool = False, **policy: Any
    ) -> Iterator[int]:
        """``carry``: each receive carries the acks of the messages before it."""
        while True:
            queue = self.queue(20_000 if batch > 1 else 3_000, channels, **policy)
            yield MEASURE
            before: Any = ()
            while messages := queue.receive(batch, ack=before):
                for message in messages:
                    _ = message.body
                if carry:
                    before = messages
                else:
                    queue.ack(messages)
                yield len(messages)
            yield PAUSE
            queue.drop()
            while self.db.maintain(50_000).more:
                pass

    def receive_ack_1(self) -> Iterator[int]:
        return self._receives(1)

    def receive_ack_10(self) -> Iterator[int]:
        return self._receives(10)

    def receive_ack_100(self) -> Iterator[int]:
        return self._receives(100)

    def receive_carrying_100(self) -> Iterator[int]:
        return self._receives(100, carry=True)

    def channels_1000(self) -> Iterator[int]:
        return self._receives(100, channels=1000)

    def limited_1000(self) -> Iterator[int]:
        return self._receives(100, channels=1000, carry=True, max_concurrency=1)

    def tasks(self) -> Iterator[int]:
        """A worker runs tasks that do nothing, until none is left."""
        app = self.package.App(self.url)
        total = 2_000
        ended = threading.Event()
        left = [0]

        @app.task(queue="bench-tasks")
        async def noop(n: int) -> None:
            left[0] -= 1
            if not left[0]:
                ended.set()

        async def drain() -> None:
            async with app.worker(concurrency=50):
                await asyncio.get_running_loop().run_in_executor(None, ended.wait)

        app.db.queue("bench-tasks").create()
        while True:
            left[0] = total
            ended.clear()
            noop.send_many([{"n": n} for n in range(total)])
            yield MEASURE
            asyncio.run(drain())
            yield total
            yield PAUSE

    def sqs(self) -> Iterator[int]:
        """One client calls SendMessage, ReceiveMessage and DeleteMessage over HTTP."""
        command = [sys.executable, "-m", self.name, "serve", "--db", self.url]
        self.server = subprocess.Popen(
            [*command, "--port", str(self.port), "--log", "json"], stderr=subprocess.DEVNULL
        )
        host = http.client.HTTPConnection("127.0.0.1", self.port)
        while True:
            try:
                host.connect()
                break
            except ConnectionRefusedError:
                if self.server.poll() is not None:
                    raise SystemExit(f"this server ended: {' '.join(command)}") from None
                time.sleep(0.05)

        def ask(action: str, **given: Any) -> Any:
            headers = {
                "Content-Type": "application/x-amz-json-1.0",
                "X-Amz-Target": f"AmazonSQS.{action}",
            }
            host.request("POST", "/", json.dumps(given), headers)
            return json.loads(host.getresponse().read() or b"{}")

        url = ask("CreateQueue", QueueName=f"sqs{next(self.numbers)}")["QueueUrl"]
        yield MEASURE
        while True:
            for _ in range(10):
                ask("SendMessage", QueueUrl=url, MessageBody="x" * 200)
                [message] = ask("ReceiveMessage", QueueUrl=url)["Messages"]
                ask("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            yield 10

    def close(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait()
        self.db.close()


CASES = (
    *("send_one", "send_keyed", "send_many_1000", "receive_ack_1", "receive_ack_10"),
    *("receive_ack_100", "receive_carrying_100", "channels_1000", "limited_1000", "tasks", "sqs"),
)


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process and its children so far, also of children that have ended."""
    # The kernel's number for the CPU clock of a process, as clock_getcpuclockid() computes it.
    used = time.clock_gettime((~pid << 3) | 2)
    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    used += (int(stat[13]) + int(stat[14])) / os.sysconf("SC_CLK_TCK")  # cutime, cstime
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            used += cpu_seconds(int(child))
        except OSError:
            continue  # it has ended meanwhile
    return used


def measure(case: Iterator[int], seconds: float, server: int) -> tuple[float, float]:
    """Messages per second, and CPU microseconds per message."""

    def clocks() -> tuple[float, float]:
        used = cpu_seconds(os.getpid()) + (cpu_seconds(server) if server else 0.0)
        return time.perf_counter(), used

    done, spent, used = 0, 0.0, 0.0
    started = clocks()
    for step in case:
        if step == MEASURE:
            started = clocks()
            continue
        done += max(step, 0)
        over = spent + time.perf_counter() - started[0] >= seconds
        if step == PAUSE or over:
            ended = clocks()
            spent, used = spent + ended[0] - started[0], used + ended[1] - started[1]
            if over:
                break
    return done / spent, used / done * 1_000_000


def main() -> None:
    package, url, port, server = sys.argv[1:]
    cases = Cases(package, url, int(port))
    started: dict[str, Iterator[int]] = {}
    print(Path(cases.package.__file__).parent, flush=True)
    for line in sys.stdin:
        name, seconds = line.split()
        if name not in started:
            started[name] = getattr(cases, name)()
            measure(started[name], 0.05, 0)  # warm: plans, imports, connections
        print(*measure(started[name], float(seconds), int(server)), flush=True)
    cases.close()


if __name__ == "__main__":
    main()
