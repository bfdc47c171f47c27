"""The application of test_celery.py, as Celery's documentation of its SQS broker has it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from celery import Celery

NOTES = Path(os.environ["CLIENTS_NOTES"])
HOST = os.environ["CLIENTS_URL"].removeprefix("http://")
KEY, SECRET = (
    quote(os.environ[name], safe="") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
)

app = Celery("clients", broker=f"sqs://{KEY}:{SECRET}@{HOST}")
app.conf.update(
    broker_transport_options={
        "region": os.environ["AWS_REGION"],
        "is_secure": False,
        "queue_name_prefix": "celery-",
        "visibility_timeout": 600,
        "wait_time_seconds": 20,
        "polling_interval": 0.1,
        "fetch_message_attributes": {
            "MessageSystemAttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        },
    },
    worker_enable_remote_control=False,  # it needs fan-out, which is not a matter of SQS
    task_default_queue="tasks",
    task_acks_late=True,
)


def note(what: str, value: Any = None) -> None:
    """What was done, in one write: lines of several processes do not mix."""
    line = json.dumps({"what": what, "value": value, "at": time.time()}) + "\n"
    with open(NOTES, "ab", buffering=0) as file:
        file.write(line.encode())


@app.task
def add(a: int, b: int) -> None:
    note("add", a + b)


@app.task(bind=True, max_retries=3)
def moody(self: Any, name: str) -> None:
    """Fails twice; each retry is a message of its own."""
    note("moody", [name, self.request.retries])
    if self.request.retries < 2:
        raise self.retry(countdown=1)


@app.task(autoretry_for=(ValueError,), max_retries=1, default_retry_delay=0)
def hopeless() -> None:
    note("hopeless")
    raise ValueError("never")


@app.task
def later(asked: float) -> None:
    note("later", asked)


@app.task
def ordered(number: int) -> None:
    note("ordered", number)
