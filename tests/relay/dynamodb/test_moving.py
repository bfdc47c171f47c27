"""On to a SQL database: the loop of docs/relay-dynamodb.md."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import fairturn
from fairturn.relay.dynamodb import DynamoStore
from fairturn.relay.sqs import Waiter
from tests.docs.pages import ROOT, blocks
from tests.relay.dynamodb.stage import Stage


class Died(Exception):
    pass


def loop(queue: str) -> str:
    """As the page has it, for another queue."""
    page = ROOT / "docs" / "relay-dynamodb.md"
    [block] = [one.text for one in blocks(page) if "while page :=" in one.text]
    start, end = block.index("while page :="), block.index("print(")
    return block[start:end].replace('"reminders"', repr(queue))


def test_a_claim_that_a_dead_drain_left_floods_nobody(stage: Stage, tmp_path: Path) -> None:
    stage.now = time.time()
    stage.put(600, "near")
    stage.put(5000, "far")

    def die(step: str, job_ids: Sequence[str]) -> None:
        if step == "claimed":
            raise Died

    with pytest.raises(Died):
        DynamoStore(stage.dynamodb, stage.sqs, claim=2, on_step=die).drain(stage.queue)
    with fairturn.connect(f"sqlite:///{tmp_path}/jobs.db") as db:
        db.migrate()
        waiter, store = Waiter(stage.sqs, db), DynamoStore(stage.dynamodb, stage.sqs)
        names = {"store": store, "waiter": waiter, "url": stage.url, "time": time}
        exec(loop(stage.queue), names)
        assert waiter.count(QueueUrl=stage.url) == 1
    assert stage.arrived() == {"near": 1}
    assert not stage.table()
