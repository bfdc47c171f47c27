"""``fairturn serve`` as a program, and SDK clients of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

SECONDS = 60.0  # for anything to happen, on a busy machine


class Program:
    def __init__(self, *words: str, environment: dict[str, str] | None = None) -> None:
        clean = {key: v for key, v in os.environ.items() if not key.startswith("FAIRTURN_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fairturn", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**clean, **(environment or {})},
        )
        self._texts = {"out": "", "err": ""}
        self._threads = [
            threading.Thread(target=self._read, args=(name, stream))
            for name, stream in (("out", self.process.stdout), ("err", self.process.stderr))
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, name: str, stream: Any) -> None:
        for line in stream:
            self._texts[name] += line

    @property
    def out(self) -> str:
        return self._texts["out"]

    @property
    def err(self) -> str:
        return self._texts["err"]

    def until(self, pattern: str, times: int = 1) -> list[str]:
        """Wait until it has logged this so many times."""
        wait_for(
            lambda: len(re.findall(pattern, self.err)) >= times or self.process.poll() is not None,
            lambda: f"no {pattern!r} x {times} in:\n{self.out}\n{self.err}",
        )
        found = re.findall(pattern, self.err)
        assert len(found) >= times, f"it ended:\n{self.out}\n{self.err}"
        return found

    @property
    def url(self) -> str:
        return self.until(r"serving SQS on (https?://\S+?),")[0]

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.err.splitlines()]

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Its exit code, once it has left by itself."""
        code = self.process.wait(SECONDS)
        self._finish()
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._finish()

    def _finish(self) -> None:
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def wait_for(met: Callable[[], bool], why: Callable[[], str] = lambda: "it did not happen") -> None:
    deadline = time.monotonic() + SECONDS
    while not met():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


@contextlib.contextmanager
def program(*words: str, environment: dict[str, str] | None = None) -> Iterator[Program]:
    found = Program(*words, environment=environment)
    try:
        yield found
    finally:
        found.kill()


@contextlib.contextmanager
def serve(
    database: str, *words: str, environment: dict[str, str] | None = None
) -> Iterator[Program]:
    """A server that serves, on a port of its own."""
    command = ("serve", "--db", database, "--port", "0", *words)
    with program(*command, environment=environment) as found:
        assert found.url
        yield found


@contextlib.contextmanager
def sdk(url: str, id: str = "any", secret: str = "any", **more: Any) -> Iterator[Any]:
    client = boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=id,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=SECONDS),
        **more,
    )
    try:
        yield client
    finally:
        client.close()


def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/served.db"
