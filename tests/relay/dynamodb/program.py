"""A drain as a process: ``python -m tests.relay.dynamodb.program '{…}'``.

``die_at``: the step at which it kills itself. ``gate``: it says "found" when it has found
something, and goes on when it is told to. ``rounds``: it polls until it is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import boto3

from fairturn.relay.dynamodb import DynamoStore
from tests.relay.dynamodb.original import Original


def main(told: dict[str, Any]) -> None:
    gates = iter([told.get("gate", False)])

    def on_step(step: str, job_ids: Sequence[str]) -> None:
        if step == told.get("die_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        if step == "found" and next(gates, False):
            print("found", flush=True)
            sys.stdin.readline()

    now = told.get("now")
    clock = time.time if now is None else lambda: now
    clients = boto3.client("dynamodb", **told["dynamodb"]), boto3.client("sqs", **told["sqs"])
    if told["subject"] == "ours":
        claim = told.get("claim", 120.0)
        drain: Any = DynamoStore(*clients, clock=clock, on_step=on_step, claim=claim)
    else:
        drain = Original(*clients, clock=clock, on_step=on_step)
    drain.drain(told["queue"])
    while told.get("rounds"):
        drain.drain(told["queue"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
