"""The application of test_both_ways.py: ``fairturn worker tests.clients.tasks_app:app``."""

from __future__ import annotations

import os

import fairturn
from fairturn import Context

app = fairturn.App(os.environ["CLIENTS_DATABASE"])


@app.task(queue="bw-greetings", name="greet")
def greet(context: Context, name: str, times: int = 1) -> None:
    """Answers by a message on another queue, which boto3 receives."""
    app.db.queue("bw-answers").send(
        {"text": f"Hello {name}" * times, "attempt": context.attempt},
        headers={"lang": context.message.headers["lang"], "times": times},
        channel=name,
    )
