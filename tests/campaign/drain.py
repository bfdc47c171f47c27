"""The end of a campaign: heal, let everything be finished, and ask the database what it knows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import fairturn
from fairturn.core.values import COUNTERS
from tests.campaign import world
from tests.campaign.cast import Cast
from tests.campaign.history import Writer, read

SECONDS = 180.0  # for the drain, on a busy machine


def until_empty(db: fairturn.Database, cast: Cast, writer: Writer) -> dict[str, int]:
    """Consumers that only ack work until nothing is left; what is left if they do not manage."""
    for group in surely(db.groups):
        if group.state == "open":  # who made it was killed, or stopped, before it could start it
            with writer.call("start", queue="grouped", group=group.name, channel=""):
                surely(db.group(group.name, "grouped").start)
    for name in ("drain-1", "drain-2"):
        cast.add_role("consumer", name, drains=True)
    deadline = time.monotonic() + SECONDS
    left = world.unfinished(db)
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        cast.revive()
        left = world.unfinished(db)
    return left


def until_read(db: fairturn.Database, cast: Cast, writer: Writer) -> None:
    """Until the watcher has read the last event."""
    end = [
        event.cursor for event in surely(lambda: list(db.events("watched", after="", timeout=0)))
    ]
    writer.note("all events", count=len(end))
    deadline = time.monotonic() + SECONDS
    while end and time.monotonic() < deadline:
        mine = {path.stem for path in cast.directory.glob("watcher-1.*.history")}
        noted = [op for op in read(cast.directory, mine) if op.kind == "event"]
        if noted and noted[-1].about["cursor"] == end[-1]:
            return
        time.sleep(0.5)
        cast.revive()


def ask(db: fairturn.Database, history: Writer) -> None:
    """Write down what the database says at the end."""
    for name, stats in db.stats().queues.items():
        totals = {counter: getattr(stats, counter) for counter in COUNTERS}
        left = stats.ready + stats.scheduled + stats.leased + stats.held
        history.note("stats", queue=name, unfinished=left, totals=totals)
    schedule = db.schedule(world.SCHEDULE).get()
    last = schedule.last_at if schedule is not None else None
    history.note("schedule", last_at=last and last.isoformat())
    driver = db.target.open()
    try:
        for kind, table in (("ledger", "ledger"), ("effects", "effect")):
            cursor = driver.connection.cursor()
            cursor.execute(f"SELECT v FROM {table}")
            rows: list[Any] = list(cursor.fetchall())
            history.note(kind, values=[row[0] for row in rows])
    finally:
        driver.close()


def ask_centre(url: str, history: Writer) -> None:
    """What the relay has handed over."""
    values: list[str] = []
    with fairturn.connect(url) as db:
        after = 0
        while page := db.queue("in").peek(1000, after=after):
            values += [message.body["v"] for message in page]
            after = page[-1].id
    history.note("handed over", values=values)


def surely(act: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Repeat what may be done twice until the database answers."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return act()
        except fairturn.DatabaseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
