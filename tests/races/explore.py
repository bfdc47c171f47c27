"""Every order of the steps of two parties, and of the stop points inside them.

A schedule is a list of moves. A party that waits for a lock is parked: it cannot be moved, and
goes on by itself as soon as its rival's moves let it. One that stands at a stop point can be moved,
which lets it go on from there. All schedules are found by playing one, and coming back to every
place where another party could have moved instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any

from tests.races.databases import BLOCKED, STOPPED, Database
from tests.races.session import Session, Step
from tests.races.world import World

TICK = 0.002  # between two looks at a step that neither ends nor waits for a lock
GIVE_UP = 60.0
played: Counter[str] = Counter()  # schedules per title and database, for the summary

Scene = Callable[[World], tuple[Sequence[Step], Sequence[Step], Callable[[], None]]]


class Lab:
    """A database and the three sessions of a race."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.home, self.a, self.b = (Session(database, name) for name in ("home", "a", "b"))

    def close(self) -> None:
        for session in (self.home, self.a, self.b):
            session.close()
        self.database.close()

    def explore(
        self,
        title: str,
        scene: Scene,
        *,
        stops_a: Sequence[str] = (),
        stops_b: Sequence[str] = (),
        retries: bool = False,
        drain: bool = True,
    ) -> int:
        """Play every schedule of a scene and check each; how many there were.

        ``scene`` gets a fresh world and returns the steps of both parties and a check of its own.
        """
        todo: list[tuple[str, ...]] = [()]
        count = 0
        reached: set[str] = set()
        drained: set[tuple[Any, ...]] = set()  # many schedules leave the same rows behind
        while todo:
            prefix = todo.pop()
            world = World(self.home, self.a, self.b)
            steps_a, steps_b, check = scene(world)
            self.a.hold(stops_a)
            self.b.hold(stops_b)
            play = Play(self.a, self.b, steps_a, steps_b, prefix)
            try:
                play.run()
            finally:
                self._end()
            count += 1
            reached |= play.stopped
            try:
                if not retries:
                    assert self.a.retries == self.b.retries == 0, "a deadlock of our own making"
                world.check()
                check()
                if drain and not (world.purged or world.dropped or world.outcome in drained):
                    drained.add(world.outcome)
                    world.drain()
            except AssertionError as error:
                raise AssertionError(
                    f"{title} on {self.database.name}, schedule {' '.join(play.moves)}: {error}\n"
                    f"stops: {play.passed}\n"
                    f"a: {self.a.results}\nb: {self.b.results}\nlog: {world.log}"
                ) from error
            for i in range(len(prefix), len(play.moves)):
                for other in play.choices[i]:
                    if other != play.moves[i]:
                        todo.append((*play.moves[:i], other))
        if stops_a:
            assert "a" in reached, f"{title}: a reached none of {stops_a}"
        if stops_b:
            assert "b" in reached, f"{title}: b reached none of {stops_b}"
        played[f"{title} ({self.database.name})"] += count
        print(f"{title}: {count} schedules on {self.database.name}")
        return count

    def _end(self) -> None:
        """Leave no session stopped, running or in a transaction, whatever happened."""
        for session in (self.a, self.b):
            session.let_go()
        for session in (self.a, self.b):
            if session.running is not None:
                wait([session.running], timeout=GIVE_UP)
                session.running = None
            session._redo = None
            session.driver.rollback()


class Play:
    """One schedule."""

    def __init__(
        self,
        a: Session,
        b: Session,
        steps_a: Sequence[Step],
        steps_b: Sequence[Step],
        prefix: Sequence[str],
    ) -> None:
        self.sessions = {"a": a, "b": b}
        self.left = {"a": list(steps_a), "b": list(steps_b)}
        self.prefix = prefix
        self.moves: list[str] = []
        self.choices: list[list[str]] = []
        self.at_stop: set[str] = set()
        self.stopped: set[str] = set()  # who stood at a stop point at all
        self.passed: list[str] = []  # the stop points in the order in which they were left

    def run(self) -> None:
        while self._unfinished():
            movable = self._movable()
            if not movable:
                self._wait_for_one()
                continue
            i = len(self.moves)
            move = movable[0]
            if i < len(self.prefix):
                move = self.prefix[i]
                if move not in movable:
                    self._wait_for_one()
                    continue
            self.moves.append(move)
            self.choices.append(movable)
            self._move(move)
            self._settle()

    def _unfinished(self) -> bool:
        return any(self.left.values()) or any(s.running for s in self.sessions.values())

    def _movable(self) -> list[str]:
        return [
            name
            for name, session in self.sessions.items()
            if name in self.at_stop or (session.running is None and self.left[name])
        ]

    def _move(self, name: str) -> None:
        session = self.sessions[name]
        if name in self.at_stop:
            self.at_stop.discard(name)
            self.passed.append(f"{name}:{session.go_on()}")
        else:
            session.start(self.left[name].pop(0))

    def _settle(self) -> None:
        """Until every running step has ended or waits."""
        database = self.sessions["a"].database
        if database.name == "sqlite":
            for session in self.sessions.values():
                if session.running is not None and not session.look():
                    session.try_again()
                    session.look()
            return
        while True:
            running = {name: s for name, s in self.sessions.items() if s.running and not s.look()}
            if not running:
                return
            waiting = database.waiting({s.number: s.held for s in running.values()})
            self.at_stop = {name for name, s in running.items() if waiting.get(s.number) == STOPPED}
            self.stopped |= self.at_stop
            free = [s.running for s in running.values() if s.number not in waiting]
            if not free:
                assert set(waiting.values()) <= {BLOCKED, STOPPED}
                return
            wait(free, timeout=TICK, return_when=FIRST_COMPLETED)

    def _wait_for_one(self) -> None:
        """Nobody can be moved: a deadlock, which the server resolves."""
        running = [s.running for s in self.sessions.values() if s.running is not None]
        done, _ = wait(running, timeout=GIVE_UP, return_when=FIRST_COMPLETED)
        assert done, f"stuck after {' '.join(self.moves)}"
        self._settle()
