"""The queues of a campaign, with the rules that its checker holds them to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import fairturn

LEASE = 3.0
TICK = 1.0  # seconds between two due times of the schedule
SCHEDULE = "campaign"
TASK = "campaign_task"
NARROW = "narrow"  # the channel of `limited` with a limit of its own


@dataclass(frozen=True)
class Rules:
    """One queue: how it is created, and what must be true of its deliveries."""

    settings: dict[str, Any] = field(default_factory=dict)
    most: int | None = None  # leases at once in the whole queue
    narrow: int | None = None  # leases at once in the channel NARROW
    ordered: bool = False
    dead_letter: str | None = None


QUEUES: dict[str, Rules] = {
    "plain": Rules({"max_attempts": 4, "backoff": 0.2}, dead_letter="plain-dead"),
    "plain-dead": Rules(),
    "limited": Rules(most=3, narrow=1),
    "ordered": Rules(ordered=True),
    "keyed": Rules(),
    "grouped": Rules(),
    "ticks": Rules(),
    "asks": Rules(),
    "watched": Rules({"events": True}),
    "tasks": Rules({"lease": LEASE * 2}),
    "sqs": Rules(),
    "relayed": Rules(),
}
# Those that the consumers serve. `tasks` has a worker, `relayed` a relay.
CONSUMED = [name for name in QUEUES if name not in ("tasks", "relayed")]


def make(db: fairturn.Database, centre: str) -> None:
    """All queues, empty; the schedule; two tables of the user's own. ``centre`` is the database to
    which the relay hands over."""
    with fairturn.connect(centre) as other:
        other.migrate()
        other.queue("in").create()
    db.migrate()
    for name, rules in sorted(QUEUES.items(), reverse=True):  # plain-dead before plain
        settings: dict[str, Any] = {"lease": LEASE, "max_attempts": 0, **rules.settings}
        if rules.dead_letter:
            settings["dead_letter"] = rules.dead_letter
        if name == "relayed":
            settings["meta"] = {"destination": f"{centre}#in"}
        if rules.ordered:
            settings["policy"] = fairturn.Policy(ordered=True)
        queue = db.queue(name)
        queue.create(**settings)
        if rules.most is not None:
            queue.set_limit(max_concurrency=rules.most)
        if rules.narrow is not None:
            queue.channel(NARROW).set_policy(max_concurrency=rules.narrow)
    db.schedule(SCHEDULE).set(
        "ticks", {"v": "tick"}, every=TICK, missed="backfill", overlap="allow"
    )
    driver = db.target.open()
    try:
        cursor = driver.connection.cursor()
        # ledger: what was sent in the user's transaction. effect: what was acked in it.
        cursor.execute("CREATE TABLE ledger (v VARCHAR(100))")
        cursor.execute("CREATE TABLE effect (v VARCHAR(100))")
    finally:
        driver.close()


def unfinished(db: fairturn.Database) -> dict[str, int]:
    """Messages that are not finished yet, by queue."""
    return {
        name: waiting
        for name, stats in db.stats().queues.items()
        if (waiting := stats.ready + stats.scheduled + stats.leased + stats.held)
    }
