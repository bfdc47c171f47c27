"""One process of a campaign: ``python -m tests.campaign.roles.role '{"role": …}'``. It repeats its
step until it is told to stop (a file) or its parent is gone."""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import fairturn
from tests.campaign.history import Writer

MODULES = {
    "producer": "producers",
    "transactional": "producers",
    "ordered": "producers",
    "consumer": "consumers",
    "hoarder": "consumers",
    "async": "async_consumer",
    "groups": "coordination",
    "asker": "coordination",
    "ticker": "coordination",
    "watcher": "watcher",
    "sqs": "sqs_client",
}


@dataclass(frozen=True)
class Spec:
    """What a process is told at its start."""

    role: str
    name: str
    url: str
    directory: str
    seed: str
    options: dict[str, Any]


class Role(Protocol):
    def step(self) -> None: ...


class Stage:
    """What every role needs: the database, its history, its dice, and when to stop."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.directory = Path(spec.directory)
        self.dice = random.Random(spec.seed)
        self.history = Writer(self.directory, spec.name)
        self.db = fairturn.connect(spec.url, pool_size=3)
        self._parent = os.getppid()
        self._count = 0

    def value(self) -> str:
        """A new value: the process and a number."""
        self._count += 1
        return f"{self.history.process}-{self._count}"

    def stopped(self) -> bool:
        told = (self.directory / f"stop-{self.spec.name}").exists()
        return told or os.getppid() != self._parent

    def pause(self, least: float, most: float) -> None:
        """The pace of the work."""
        time.sleep(self.dice.uniform(least, most))


def main(text: str) -> None:
    logging.basicConfig(level="WARNING")
    spec = Spec(**json.loads(text))
    stage = Stage(spec)
    module = importlib.import_module(f"tests.campaign.roles.{MODULES[spec.role]}")
    stage.history.note("starts", seed=spec.seed)
    role: Role = module.ROLES[spec.role](stage)
    while not stage.stopped():
        role.step()
    close = getattr(role, "close", None)
    if close is not None:
        close()
    stage.db.close()
    stage.history.note("leaves")


if __name__ == "__main__":
    main(sys.argv[1])
