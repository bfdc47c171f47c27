"""Waiting for messages: the decisions (semantics §13). The hub does the waiting."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairturn.core import check, limits
from fairturn.core.errors import InvalidArgument, WaitTimeout
from fairturn.core.rows import OutcomeRow
from fairturn.core.values import RESULT_JSON, STATES, Duration, Outcome, decode, fraction
from fairturn.operations.call import Call, Core
from fairturn.operations.messages import which

FINISHED = ("d", "x")


def refuse_yours(own: bool) -> None:
    if not own:
        raise InvalidArgument(
            "wait() on your connection would wait for what it has not committed yet: commit, then "
            "call wait() of the queue or group without using()"
        )


@dataclass(eq=False)
class Wait:
    """One wait. Each check passes a row to ``look``, until there is an outcome."""

    queue: str
    id: int | None
    key: str | None
    what: str
    deadline: float | None
    partial: bool | float
    outcome: Outcome | None = None
    error: Exception | None = None
    _seen: bool = field(default=False)
    _state: str = "r"
    _first: tuple[int | None, str | None] = (None, None)

    @classmethod
    def of(
        cls,
        queue: str,
        id: int | None,
        key: str | None,
        timeout: Duration | None,
        partial: bool | float | None,
        own: bool,
    ) -> Wait:
        refuse_yours(own)
        what, id = which(id, key)
        if partial is None:  # the progress of a message that has none yet
            partial = True
        elif not isinstance(partial, bool):
            check.fraction(partial, "partial")
        seconds = None if timeout is None else check.microseconds(timeout, "timeout")
        deadline = None if seconds is None else time.monotonic() + seconds / limits.SECOND
        return cls(queue, id, key, what, deadline, partial)

    def look(self, found: OutcomeRow | None) -> bool:
        """True if the wait is over. ``found``: the row of the message, None: it is gone."""
        self.error = None  # an outage is over
        if found is None:
            self.outcome = Outcome("gone", self.id)
            return True
        self._state = found.state
        self.id, self.key = found.id, None  # from now on this message, even if another gets its key
        if not self._seen:
            self._seen, self._first = True, (found.progress, found.note)
        if found.state in FINISHED or self._further(found.progress, found.note):
            self.outcome = Outcome(
                STATES[found.state],
                found.id,
                decode(found.result, found.json & RESULT_JSON),
                found.error,
                fraction(found.progress),
                found.note,
            )
        return self.outcome is not None

    def _further(self, progress: int | None, note: str | None) -> bool:
        if self.partial is False:
            return False
        if self.partial is True:
            return (progress, note) != self._first
        return progress is not None and progress > self.partial * limits.PROGRESS

    def left(self) -> float | None:
        return None if self.deadline is None else self.deadline - time.monotonic()

    def over(self) -> bool:
        left = self.left()
        return left is not None and left <= 0

    def result(self) -> Outcome:
        """Return the outcome, or raise the error or WaitTimeout."""
        if self.error is not None:
            raise self.error
        if self.outcome is None:
            hint = (
                "its group has not been started" if self._state == "h" else "wait again, or longer"
            )
            raise WaitTimeout(
                f"{self.what} is not finished yet, it is {STATES[self._state]}: {hint}"
            )
        return self.outcome


def outcomes(core: Core, queue: str, waits: Sequence[Wait]) -> Call[list[OutcomeRow]]:
    """Read the rows of all these waits, with one query."""
    ids = [wait.id for wait in waits if wait.id is not None]
    keys = [wait.key for wait in waits if wait.key is not None]
    return Call(
        "wait", lambda: core.backend.outcomes(queue, ids, keys, core.now()), repeatable=True
    )


def outage(waits: Sequence[Wait], error: Exception) -> None:
    """The database is away. Those that are not over raise this if their time ends before it is
    back: nobody knows whether their messages are finished."""
    for wait in waits:
        if wait.outcome is None and wait.error is None:
            wait.error = error


def judge(waits: Sequence[Wait], rows: Sequence[OutcomeRow]) -> list[Wait]:
    """Pass each wait its row; return the waits that are over."""
    by_id = {row.id: row for row in rows}
    by_key = {row.key: row for row in rows}
    return [
        wait
        for wait in waits
        if wait.look(by_id.get(wait.id) if wait.id is not None else by_key.get(wait.key))
    ]
