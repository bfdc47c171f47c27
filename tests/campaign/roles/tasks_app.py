"""The application of the campaign's worker: ``fairturn worker
tests.campaign.roles.tasks_app:app``."""

from __future__ import annotations

import os
import time
from pathlib import Path

import fairturn
from tests.campaign.history import Writer
from tests.campaign.world import TASK

app = fairturn.App(os.environ["CAMPAIGN_URL"])
_writer: list[Writer] = []


def history() -> Writer:
    if not _writer:
        _writer.append(Writer(Path(os.environ["CAMPAIGN_HISTORY"]), os.environ["CAMPAIGN_NAME"]))
    return _writer[0]


@app.task(queue="tasks", name=TASK)
def campaign_task(ctx: fairturn.Context, v: str) -> None:
    """Its effect and its ack are one transaction."""
    message = ctx.message
    about = {"queue": "tasks", "id": message.id, "number": message.deliveries, "value": v}
    op = history().begin("task", **about)
    told = False
    try:
        with ctx.transaction() as connection:
            connection.cursor().execute(f"INSERT INTO effect (v) VALUES ('{v}')")
            time.sleep(0.01 if hash(v) % 20 else 0.3)
            told = True
    except BaseException as error:
        history().end(op, "fail" if isinstance(error, fairturn.LeaseLost) else "info", error)
        raise
    history().end(op, "ok" if told else "info")
