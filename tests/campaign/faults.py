"""The faults: each one begins, lasts a while, and is healed when its function returns."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass

from tests.campaign.cast import Actor, Cast
from tests.campaign.site import Site
from tests.campaign.world import LEASE


@dataclass
class Scene:
    site: Site
    cast: Cast
    dice: random.Random

    def one_of(self, *prefixes: str) -> Actor:
        return self.dice.choice(self.cast.named(*prefixes))

    def last(self, least: float, most: float) -> None:
        time.sleep(self.dice.uniform(least, most))


# --- processes ----------------------------------------------------------------------------------
def _kill(scene: Scene, *prefixes: str) -> None:
    actor = scene.one_of(*prefixes)
    actor.kill()
    scene.last(0, 0.5)
    actor.start()


def _freeze(scene: Scene, *prefixes: str) -> None:
    """For longer than a lease: what it holds goes to others, and then it wakes up."""
    actor = scene.one_of(*prefixes)
    actor.signal(signal.SIGSTOP)
    try:
        scene.last(LEASE, LEASE * 1.6)
    finally:
        actor.signal(signal.SIGCONT)


def kill_consumer(scene: Scene) -> None:
    _kill(scene, "consumer", "async")


def kill_producer(scene: Scene) -> None:
    _kill(scene, "producer", "ordered", "transactional")


def freeze_consumer(scene: Scene) -> None:
    _freeze(scene, "consumer", "async")
