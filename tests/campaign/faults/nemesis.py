"""One seeded generator chooses a fault, does it, heals it, and lets the campaign rest."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from tests.campaign.cast import Cast
from tests.campaign.checks.set_back import BACKUP, RESTORE
from tests.campaign.faults import backups, blows, failovers
from tests.campaign.history import Writer
from tests.campaign.site import Site


@dataclass(frozen=True)
class Fault:
    name: str
    do: Callable[[blows.Scene], None]
    kinds: tuple[str, ...] = ("sqlite", "postgresql", "mysql", "patroni", "galera")
    needs: Callable[[blows.Scene], str | None] = lambda _: None  # why it cannot be had


def _disk(scene: blows.Scene) -> str | None:
    return None if scene.site.disk else "mounts are not allowed here"


RESTORE_WANTED = "CAMPAIGN_RESTORE"
SINGLE = ("postgresql", "mysql")
SERVERS = (*SINGLE, "patroni", "galera")
FAULTS = [
    Fault("kill consumer", blows.kill_consumer),
    Fault("kill producer", blows.kill_producer),
    Fault("kill worker", blows.kill_worker),
    Fault("kill relay", blows.kill_relay),
    Fault("kill SQS server", blows.kill_server),
    Fault("kill coordinator", blows.kill_coordinator),
    Fault("freeze consumer", blows.freeze_consumer),
    Fault("freeze worker", blows.freeze_worker),
    Fault("freeze SQS server", blows.freeze_server),
    Fault("write lock held", blows.hold_write_lock, ("sqlite",)),
    Fault("kill database", blows.kill_database, SINGLE),
    Fault("freeze database", blows.freeze_database, SINGLE),
    Fault("terminate sessions", blows.terminate_sessions, SERVERS),
    Fault("exhaust connections", blows.exhaust_connections, SERVERS),
    Fault("cut connections", blows.cut, SERVERS),
    Fault("reset connections", blows.reset, SERVERS),
    Fault("half-close connections", blows.half_close, SERVERS),
    Fault("stall the network", blows.stall, SERVERS),
    Fault("lose packets", blows.lose, SERVERS),
    Fault("slow network", blows.slow, SERVERS),
    Fault("full disk", blows.fill_disk, ("sqlite", *SINGLE), needs=_disk),
    # SQLite has no clock of its own: the client's clock is the database's.
    Fault("clock of a client", blows.move_clock, SERVERS, needs=lambda s: s.cast.clocks.missing),
    Fault("kill migration", blows.kill_migration),
    Fault("kill migrating database", blows.kill_migrating_database, SINGLE),
    Fault("switch over database", failovers.switch_over, ("patroni",)),
    Fault("kill leading database", failovers.kill_leader, ("patroni",)),
    Fault("kill PostgreSQL of database", failovers.kill_leading_postgres, ("patroni",)),
    Fault("kill standby database", failovers.kill_standby, ("patroni",)),
    Fault("freeze leading database", failovers.freeze_leader, ("patroni",)),
    Fault("kill node of database", failovers.kill_node, ("galera",)),
    Fault("freeze node of database", failovers.freeze_node, ("galera",)),
]


COMPANY = [fault for fault in FAULTS if fault.name.startswith(("kill", "freeze"))]
COMPANY = [fault for fault in COMPANY if fault.name.endswith(("consumer", "producer", "worker"))]


class Nemesis:
    def __init__(self, site: Site, cast: Cast, history: Writer, seed: int) -> None:
        self._dice = random.Random(f"nemesis {seed}")
        self._scene = blows.Scene(site, cast, self._dice)
        self._history = history
        self._backups = backups.Backups(site, cast)
        self.restores = bool(os.environ.get(RESTORE_WANTED)) and site.kind in backups.KINDS
        self.times: Counter[str] = Counter()
        self.left_out: dict[str, str] = {}
        self._faults: list[Fault] = []
        thief = [Fault("a thief", blows.steal)] if "CAMPAIGN_THIEF" in os.environ else []
        for fault in [*FAULTS, *thief]:
            if site.kind not in fault.kinds:
                continue
            why = fault.needs(self._scene)
            if why is None:
                self._faults.append(fault)
            else:
                self.left_out[fault.name] = why

    @property
    def planned(self) -> list[str]:
        return [fault.name for fault in self._faults]

    @property
    def kills(self) -> Counter[str]:
        """Who was killed with kill -9, and how often."""
        return Counter(self._scene.kills)

    def _do(self, fault: Fault, scene: blows.Scene) -> None:
        op = self._history.begin("fault", fault=fault.name)
        fault.do(scene)
        self._history.end(op, "ok")
        self.times[fault.name] += 1

    def _back_up(self) -> None:
        op = self._history.begin("fault", fault=BACKUP)
        self._history.end(op, "ok", taken_at=self._backups.take())

    def _put_back(self) -> None:
        op = self._history.begin("fault", fault=RESTORE)
        self._history.end(op, "ok", **asdict(self._backups.put_back()))

    @contextlib.contextmanager
    def _meanwhile(self, fault: Fault | None) -> Iterator[None]:
        """Do this one in a thread, at the same time."""
        if fault is None:
            yield
            return
        # Dice of its own: two threads must not take turns at one in an order that nobody knows.
        dice = random.Random(self._dice.random())
        scene = blows.Scene(self._scene.site, self._scene.cast, dice, self._scene.kills)
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(self._do, fault, scene)
            yield
            done.result()

    def run(self, seconds: float) -> None:
        """Fault after fault. Each is done once before any is done twice: a short campaign has as
        many kinds as possible."""
        end = time.monotonic() + seconds
        deck: list[Fault] = []
        # One backup after a third of the time, put back after two thirds.
        plan = [(end - seconds / 3, self._put_back), (end - seconds * 2 / 3, self._back_up)]
        while time.monotonic() < end:
            if self.restores and plan and time.monotonic() > plan[-1][0]:
                plan.pop()[1]()
                self._scene.cast.revive()
                continue
            if not deck:
                deck = self._dice.sample(self._faults, len(self._faults))
                deck.sort(key=lambda fault: fault.name == "a thief")  # it comes first
            fault = deck.pop()
            # A quarter of the faults has company: a process dies while something else is wrong.
            company = self._dice.choice(COMPANY) if self._dice.random() < 0.25 else None
            with self._meanwhile(company if company in self._faults else None):
                self._do(fault, self._scene)
            self._scene.cast.revive()
            # A quarter of the time is quiet, so that the work goes on between the faults.
            time.sleep(self._dice.uniform(0.3, 1.5))
