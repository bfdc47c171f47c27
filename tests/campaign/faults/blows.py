"""The blows: each one begins, lasts a while, and is healed when its function returns."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.campaign.cast import ROOT, Actor, Cast
from tests.campaign.faults import migrating, sessions
from tests.campaign.site import Site
from tests.campaign.world import LEASE
from tests.faults.proxy import Hole, Proxy
from tests.server_process import descendants

DATABASE = "database server"  # among the kills


@dataclass
class Scene:
    site: Site
    cast: Cast
    dice: random.Random
    kills: list[str] = field(default_factory=list)  # who was killed with kill -9

    def one_of(self, *prefixes: str) -> Actor:
        return self.dice.choice(self.cast.named(*prefixes))

    def last(self, least: float, most: float) -> None:
        time.sleep(self.dice.uniform(least, most))


# --- processes ----------------------------------------------------------------------------------
def _kill(scene: Scene, *prefixes: str) -> None:
    actor = scene.one_of(*prefixes)
    with actor.busy:
        actor.kill()
        scene.kills.append(actor.name.rpartition("-")[0])
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


def kill_worker(scene: Scene) -> None:
    _kill(scene, "worker")


def kill_server(scene: Scene) -> None:
    _kill(scene, "server")


def kill_coordinator(scene: Scene) -> None:
    _kill(scene, "groups", "asker", "ticker", "watcher", "sqs")


def kill_relay(scene: Scene) -> None:
    _kill(scene, "relay")


def freeze_worker(scene: Scene) -> None:
    _freeze(scene, "worker")


def freeze_server(scene: Scene) -> None:
    _freeze(scene, "server")


# --- the database -------------------------------------------------------------------------------
def hold_write_lock(scene: Scene) -> None:
    """SQLite has one writer: another program is it, for a while."""
    with contextlib.closing(_sqlite(scene)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        scene.last(0.5, 7)
        connection.execute("ROLLBACK")


def _sqlite(scene: Scene) -> sqlite3.Connection:
    return sqlite3.connect(scene.site.url.removeprefix("sqlite:///"), timeout=30)


def kill_database(scene: Scene) -> None:
    scene.site.server.kill9()
    scene.kills.append(DATABASE)
    scene.last(0, 1)
    scene.site.server.start()


def freeze_database(scene: Scene) -> None:
    pids = descendants(scene.site.server.pid)
    signal_all(pids, signal.SIGSTOP)
    try:
        scene.last(1, 5)
    finally:
        signal_all(pids, signal.SIGCONT)


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def terminate_sessions(scene: Scene) -> None:
    """Some sessions, again and again, whatever they do."""
    with sessions.Administrator(scene.site, scene.dice) as administrator:
        for _ in range(scene.dice.randint(3, 10)):
            administrator.terminate(scene.dice)
            scene.last(0.05, 0.3)


def exhaust_connections(scene: Scene) -> None:
    """The connections are cut, and the server gives most of them no new one."""
    with sessions.Hog(scene.site, scene.dice) as hog:
        for _ in range(scene.dice.randint(5, 20)):
            for proxy in scene.site.proxies:
                proxy.cut()
            scene.last(0.05, 0.2)
            hog.more()


# --- the network --------------------------------------------------------------------------------
def _proxy(scene: Scene) -> Proxy:
    return scene.dice.choice(scene.site.proxies)


def cut(scene: Scene) -> None:
    for _ in range(scene.dice.randint(1, 5)):
        _proxy(scene).cut()
        scene.last(0.1, 0.6)


def reset(scene: Scene) -> None:
    for _ in range(scene.dice.randint(1, 5)):
        _proxy(scene).reset()
        scene.last(0.1, 0.6)


def half_close(scene: Scene) -> None:
    for _ in range(scene.dice.randint(1, 3)):
        _proxy(scene).half_close(scene.dice.choice(["client", "server"]))
        scene.last(0.3, 1)


def stall(scene: Scene) -> None:
    """What is sent arrives later, after the client may have given up."""
    _hole(scene, "hold")


def lose(scene: Scene) -> None:
    """What is sent never arrives, and the connections stay as they are: they are cut at the end, as
    a firewall does that has forgotten them."""
    _hole(scene, "lose").cut()


def _hole(scene: Scene, hole: Hole) -> Proxy:
    proxy = _proxy(scene)
    proxy.open_hole(hole)
    try:
        scene.last(1, LEASE * 2)
    finally:
        proxy.heal()
    return proxy


def slow(scene: Scene) -> None:
    proxy = _proxy(scene)
    proxy.slow_down(scene.dice.uniform(0.02, 0.2))
    try:
        scene.last(2, 5)
    finally:
        proxy.slow_down(0)


# --- the disk -----------------------------------------------------------------------------------
def fill_disk(scene: Scene) -> None:
    disk = scene.site.disk
    assert disk is not None
    if scene.site.kind == "sqlite":
        # Its log keeps the space that it once had, and would need none for a long time.
        with contextlib.closing(_sqlite(scene)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    disk.fill()
    try:
        scene.last(1, 4)
    finally:
        disk.free()
    if scene.site.server is not None:
        scene.site.back()


# --- clocks -------------------------------------------------------------------------------------
def move_clock(scene: Scene) -> None:
    """Of one client. The database's clock decides, so nothing follows from it."""
    name = scene.one_of("").name
    scene.cast.clocks.move(name, scene.dice.choice([-1, 1]) * scene.dice.randint(600, 6 * 3600))
    try:
        scene.last(1, LEASE * 1.5)
    finally:
        scene.cast.clocks.move(name, 0)


# --- migrations ---------------------------------------------------------------------------------
def kill_migration(scene: Scene) -> None:
    _migrate(scene, lambda: None)


def kill_migrating_database(scene: Scene) -> None:
    _migrate(scene, lambda: kill_database(scene))


def _migrate(scene: Scene, strike: Callable[[], None]) -> None:
    """Another installation, in a database beside, killed on its way several times; then it is
    completed, and has to work."""
    url = scene.site.create_database("beside")
    for _ in range(scene.dice.randint(1, 3)):
        words = [sys.executable, "-m", "tests.campaign.faults.migrating", url]
        process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            scene.last(0.3, 1.2)  # it starts in the first part of that
            strike()
        finally:
            process.kill()
            process.wait()
            scene.kills.append("migration")
    migrating.works(url)


# --- a fault of the library, to test the campaign -------------------------------------------------
def steal(scene: Scene) -> None:
    """A message that was sent disappears, and nobody has finished it."""
    with scene.site.connect() as db:
        queue = db.queue("plain")
        queue.pause()  # so that one waits there
        try:
            while not (waiting := queue.peek(1, state="ready")):
                scene.last(0.01, 0.02)
            queue.cancel(id=waiting[0].id)
        finally:
            queue.resume()
