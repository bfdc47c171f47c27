"""A party of a race: one connection, one thread, and a log of what it did and committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from fairturn.backends.base import ConsumerState, Receive, Received, Reschedule
from fairturn.backends.steps import Op
from fairturn.backends.verbs import ACK, RELEASE, Fail, Lease, Verb
from fairturn.core.errors import FairturnError
from fairturn.core.rows import SendRow
from fairturn.core.settings import Policy, policy_row
from fairturn.drivers.run import run
from fairturn.execution.retries import ATTEMPTS
from tests.races.databases import Database, busy_file

if TYPE_CHECKING:
    from tests.races.world import World

Step = Callable[[], Any]
Event = tuple[str, int, int]  # what happened, to which message, in which delivery
Leases = Sequence[Lease] | Callable[[], Sequence[Lease]]


def item(
    channel: str = "",
    key: str | None = None,
    conflict: str = "e",
    priority: int = 0,
    delay: int = 0,
    body: bytes = b"x",
    lease: int | None = None,
    group: str | None = None,
    once: str | None = None,
    once_us: int | None = None,
) -> SendRow:
    return SendRow(
        channel,
        body,
        0,
        rank=-priority,
        delay_us=delay,
        key=key,
        on_conflict=conflict,
        lease_us=lease,
        group=group,
        once=once,
        once_us=once_us,
    )


def _sent(outcomes: list[tuple[int, str]]) -> list[Event]:
    if any(outcome in "em" for _, outcome in outcomes):
        return []  # a conflict or a full channel: nothing was sent
    return [("sent", id, 0) for id, outcome in outcomes if outcome == "s"]


class Session:
    world: World

    def __init__(self, database: Database, name: str) -> None:
        self.name = name
        self.database = database
        self.backend: Any = database.backend
        self.driver: Any = database.open()
        self.number = database.number(self.driver)
        self._thread = None if database.name == "sqlite" else ThreadPoolExecutor(1, name)
        if self._thread is not None:
            self._thread.submit(int).result()  # the thread starts with its first task
        self._redo: Step | None = None
        self.running: Future[Any] | None = None
        self.held: set[str] = set()
        self._stops = False
        self.reset()

    def reset(self) -> None:
        self.pending: list[Event] = []
        self.in_transaction = False
        self.failed = False
        self.errors: list[BaseException] = []
        self.retries = 0
        self.met: list[BaseException] = []  # the locks that made it try again
        self.results: list[Any] = []
        self.consumer = ConsumerState()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        self.driver.close()

    # --- the schedule's side -----------------------------------------------------------------
    def hold(self, names: Sequence[str]) -> None:
        """Stop at these points, each the first time it is reached."""
        if names or self._stops:
            self.database.hold(self.driver, names)
        self._stops = bool(names)
        self.held = set(names)

    def go_on(self) -> str:
        """From the stop point where it stands, which it will not stop at again; its name."""
        name = self.database.standing(self.driver, self.held)
        self.database.let_go(self.driver, [name])
        self.held.discard(name)
        return name

    def let_go(self) -> None:
        self.database.let_go(self.driver, self.held)
        self.held = set()

    def start(self, step: Step) -> None:
        """Run a step; it is over when ``running`` is None again, see ``look``."""
        assert self.running is None
        if self._thread is None:
            self._redo = step
            self.try_again()
        else:
            self.running = self._thread.submit(self._guarded, step)

    def try_again(self) -> None:
        """SQLite: the step that met the rival's lock, once more."""
        if self._redo is None:
            return
        self.running = Future()
        try:
            value = self._guarded(self._redo)
        except BaseException as error:
            if not busy_file(error):
                raise
        else:
            self.running.set_result(value)
            self._redo = None

    def look(self) -> bool:
        """Has the running step ended?"""
        if self.running is None or not self.running.done():
            return False
        self.running.result()
        self.running = None
        return True

    def _guarded(self, step: Step) -> None:
        self.world.trace.append(f"{self.name}{len(self.results)}")
        try:
            self.results.append(step())
            self.world.trace.append(f"/{self.name}{len(self.results) - 1}")
        except BaseException as error:
            code = self.driver.code(error)
            if self._thread is None and code is not None and code.startswith("SQLITE_BUSY"):
                raise
            if code is None and not isinstance(error, FairturnError):
                raise
            self.errors.append(error)
            self.results.append(error)
            self.failed = True

    # --- transactions ------------------------------------------------------------------------
    def begin(self) -> None:
        self.driver.begin(True)
        self.in_transaction = True

    def commit(self) -> None:
        self.in_transaction = False
        if self.failed:
            self.driver.rollback()
            return
        self.driver.commit()
        self.world.log += self.pending

    def rollback(self) -> None:
        self.in_transaction = False
        self.driver.rollback()

    def call(self, make: Callable[[], Op[Any]], note: Callable[[Any], list[Event]]) -> Any:
        """An operation: in the open transaction, or alone on a connection of our own, where a
        deadlock or the like is met by doing it again, as the library does."""
        if self.failed:
            return None
        if self.in_transaction:
            value = run(make(), self.driver, own=False)
            self.pending += note(value)
            return value
        while True:
            try:
                value = run(make(), self.driver, own=True)
            except BaseException as error:
                code = self.driver.code(error)
                if self._thread is None or code is None:
                    raise
                if self.backend.translate(code, str(error)) != "busy" or self.retries >= ATTEMPTS:
                    raise
                self.retries += 1
                self.met.append(error)
            else:
                self.world.log += note(value)
                return value

    # --- steps -------------------------------------------------------------------------------
    def receive(
        self,
        n: int = 1,
        *,
        acks: Leases = (),
        now: int | None = None,
        lease: int | None = None,
        permit: int | None = None,
        clock: bool = False,
    ) -> Step:
        """``clock``: by the database's clock, as consumers do outside of tests; only then may
        PostgreSQL take its short ways."""

        def step() -> list[Lease]:
            carried = tuple(acks() if callable(acks) else acks)
            args = Receive(n, lease_us=lease, permit=permit, acks=carried)
            at = None if clock else self.world.now if now is None else now

            def note(received: Received) -> list[Event]:
                acked = [("acked", *one) for one in carried if one.id not in received.lost]
                return [*acked, *(("delivered", row.id, row.token) for row in received.rows)]

            received = self.call(
                lambda: self.backend.receive(self.world.queue, args, self.consumer, at), note
            )
            rows = [] if received is None else received.rows
            self.world.bodies |= {Lease(row.id, row.token): bytes(row.body) for row in rows}
            return [Lease(row.id, row.token) for row in rows]

        return step

    def ack(self, leases: Leases) -> Step:
        return self._verb("acked", ACK, leases)

    def release(self, leases: Leases) -> Step:
        return self._verb("released", RELEASE, leases)

    def fail(self, leases: Leases) -> Step:
        return self._verb("failed", Fail("no", 0), leases)

    def _verb(self, counter: str, verb: Verb, leases: Leases) -> Step:
        def step() -> list[int]:
            some = list(leases() if callable(leases) else leases)
            applied = self.call(
                lambda: self.backend.apply_verb(
                    self.world.queue, verb, some, False, self.world.now
                ),
                lambda applied: [(counter, *one) for one in some if one.id not in applied.lost],
            )
            return [] if applied is None else applied.lost

        return step

    def send(self, *items: tuple[Any, ...]) -> Step:
        def step() -> list[tuple[int, str]]:
            return self.call(
                lambda: self.backend.send(self.world.queue, items, self.world.now),
                _sent,
            )

        return step

    def reschedule(self, id: int, priority: int) -> Step:
        return self.do("reschedule", id, None, Reschedule(rank=-priority))

    def cancel(self, id: int, force: bool = False) -> Step:
        def step() -> str:
            return self.call(
                lambda: self.backend.cancel(self.world.queue, id, None, force, self.world.now),
                lambda outcome: [("cancelled", id, 0)] if outcome == "c" else [],
            )

        return step

    def do(self, name: str, *args: Any) -> Step:
        """Any other operation, by name; the queue goes first and the clock last."""
        return lambda: self.call(
            lambda: getattr(self.backend, name)(self.world.queue, *args, self.world.now),
            lambda _: [],
        )

    def policy(self, channel: str = "", **columns: Any) -> Step:
        row = policy_row(Policy())._replace(**columns)
        return self.do("policy_set", channel, row)

    def extend_permit(self, permit: int, ttl: int, now: int) -> Step:
        return lambda: self.call(
            lambda: self.backend.permit_extend(permit, ttl, now),
            lambda alive: [("permit", permit, 0)] if alive else [],
        )
