"""The end of a campaign: heal, let everything be finished, and ask the database what it knows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import fairturn
from fairturn.core.values import COUNTERS
from tests.campaign import world
from tests.campaign.cast import Cast
from tests.campaign.history import Writer

SECONDS = 180.0  # for the drain, on a busy machine


def until_empty(db: fairturn.Database, cast: Cast) -> dict[str, int]:
    """Consumers that only ack work until nothing is left; what is left if they do not manage."""
    for name in ("drain-1", "drain-2"):
        cast.add_role("consumer", name, ways={"ack": 1}, queues=[q for q in world.CONSUMED])
    deadline = time.monotonic() + SECONDS
    left = world.unfinished(db)
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        cast.revive()
        left = world.unfinished(db)
    return left


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
