"""One run of one entry: a new database, filled by one process and drained by another."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.workers.entries import ROOT, Command, Entry
from tests.servers import Postgres

SPARE = 60.0  # seconds for start and end, in addition to the cap
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Outcome:
    rate: float
    handled: int
    capped: bool
    client_cores: float
    server_cores: float
    distinct: int | None
    overlaps: int | None


def run(
    server: Postgres, entry: Entry, command: Command, messages: int, cap: float
) -> Outcome | str:
    """The figures, or an error."""
    name = f"bench_{entry.key.replace('-', '_')}"
    url = server.create_database(name)
    arguments = [entry.case, url, str(messages), str(cap)]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "NO_LOG_SUCCESS": "1",
    }
    try:
        filled = subprocess.run(
            [*command.words, "fill", *arguments],
            env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if filled.returncode != 0:
            return f"fill failed: {_last(filled.stderr)}"
        _settle(url)
        return _drain([*command.words, "drain", *arguments], environment, server.pid, cap)
    finally:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')  # type: ignore


def _settle(url: str) -> None:
    """Update the statistics, and avoid a checkpoint during the run."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def _drain(
    words: list[str], environment: dict[str, str], postmaster: int, cap: float
) -> Outcome | str:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        words, env=environment, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors: list[str] = []
    reader = threading.Thread(target=errors.extend, args=(process.stderr,))
    reader.start()
    watchdog = threading.Timer(cap + SPARE, process.kill)
    watchdog.start()
    before = used = 0.0
    figures: dict[str, Any] | None = None
    try:
        for line in process.stdout:
            if not line.startswith("{"):
                continue  # a rival's log
            said: dict[str, Any] = json.loads(line)
            if said.get("event") == "started":
                before = cpu_seconds(postmaster)
            else:
                used = cpu_seconds(postmaster) - before
                figures = said
                process.stdin.write("seen\n")
                process.stdin.flush()
        process.wait()
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        reader.join()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
    if figures is None:
        return f"drain failed: {_last(''.join(errors))}"
    seconds = figures["seconds"]
    return Outcome(
        rate=figures["handled"] / seconds,
        handled=figures["handled"],
        capped=figures["capped"],
        client_cores=figures["client_cpu"] / seconds,
        server_cores=used / seconds,
        distinct=figures.get("distinct"),
        overlaps=figures.get("overlaps"),
    )


def cpu_seconds(postmaster: int) -> float:
    """The CPU time of a PostgreSQL server so far, with its ended processes."""
    total = 0.0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            if int(entry) == postmaster:
                total += sum(map(int, fields[11:15]))
            elif int(fields[1]) == postmaster:
                total += sum(map(int, fields[11:13]))
    return total / TICKS


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"
