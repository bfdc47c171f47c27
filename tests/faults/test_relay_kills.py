"""Relays and brokers killed under load: nothing is lost, and what comes twice is explained.

A message comes twice when a relay, or the broker's answer, dies between the hand-over and the ack:
never more often than it was delivered to a relay again, or sent again by boto3 itself. To a broker
that remembers (SQS FIFO, another Fairturn) nothing comes twice, and a channel's order stays.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from pathlib import Path

import pytest

import fairturn
from tests.faults.crew import FULL, fresh_url
from tests.faults.relay_crew import Broker, Crew, broker_of, unfinished
from tests.faults.sqs_crew import KINDS

MESSAGES = 10_000 if FULL else 400
KILLS = 30 if FULL else 2  # of relays …
EACH = 3 if FULL else 2  # … and of the broker at every so many of them
CHANNELS = 20
SECONDS = 600 if FULL else 90

PAIRS = (
    list(itertools.product(KINDS, ("sqs", "fifo", "moto", "rabbitmq", "fairturn")))
    if FULL
    else [("sqlite", "sqs"), ("postgresql", "fifo"), ("mysql", "rabbitmq"), ("sqlite", "fairturn")]
)


@pytest.mark.server
@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_nothing_is_lost(source: str, destination: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    print(f"seed {seed}")
    url = fresh_url(source, tmp_path)
    with fairturn.connect(url) as db, broker_of(destination, tmp_path) as broker:
        queue = db.queue("out")
        policy = fairturn.Policy(ordered=broker.ordered)
        queue.create(meta={"destination": broker.address}, max_attempts=0, policy=policy)
        crew = Crew(url, dice)
        try:
            began = time.monotonic()
            _load(queue, crew, broker, dice)
            deadline = time.monotonic() + SECONDS
            while unfinished(queue):
                assert time.monotonic() < deadline, f"{unfinished(queue)} are left, {queue.stats()}"
                time.sleep(0.1)
            took = time.monotonic() - began
        finally:
            crew.close()
        bodies = broker.bodies()
        stats = queue.stats()
    assert (stats.dead, stats.acked) == (0, MESSAGES)
    again = stats.delivered - stats.acked
    assert not crew.broken
    came = Counter(body["n"] for body in bodies)
    twice = sum(times - 1 for times in came.values())
    print(
        f"{source} to {destination}: {MESSAGES} messages, {crew.kills} relays and "
        f"{crew.kills // EACH} brokers killed, {took:.1f} s, "
        f"{again} delivered again, {twice} came twice"
    )
    assert set(came) == set(range(MESSAGES))
    assert twice <= (0 if broker.remembers else again + crew.kills // EACH * broker.resent)
    if broker.ordered:
        for channel in range(CHANNELS):
            of_it = [body["n"] for body in bodies if body["n"] % CHANNELS == channel]
            assert of_it == sorted(of_it)


def _load(queue: fairturn.Queue, crew: Crew, broker: Broker, dice: random.Random) -> None:
    """Send in portions, and kill in between when the relays have come to work on them."""
    portion = MESSAGES // KILLS
    for start in range(0, MESSAGES, portion):
        queue.send_many(
            fairturn.Send({"n": n}, channel=f"c{n % CHANNELS}", delay=dice.choice((0, 0, 0.5)))
            if not broker.ordered
            else fairturn.Send({"n": n}, channel=f"c{n % CHANNELS}")
            for n in range(start, min(start + portion, MESSAGES))
        )
        if crew.kills >= KILLS:
            continue
        acked = queue.stats().acked
        deadline = time.monotonic() + SECONDS
        while queue.stats().acked < acked + portion // 4:
            assert time.monotonic() < deadline, f"the relays do nothing: {queue.stats()}"
            time.sleep(dice.uniform(0, 0.01))
        crew.kill_one()
        if crew.kills % EACH == 0:
            broker.blow()
        broker.rest()
