"""Waiting for what becomes of messages: the decisions, without the waiting (semantics §13)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead import limits
from fairlead.backends.base import Row, Rows
from fairlead.errors import InvalidArgument, WaitTimeout
from fairlead.operations import check
from fairlead.operations.call import Call, Core
from fairlead.operations.queues import which
from fairlead.values import RESULT_JSON, STATES, Duration, Outcome, decode, fraction

FINISHED = ("d", "x")


def refuse_yours(own: bool) -> None:
    if not own:
        raise InvalidArgument(
            "wait() on your connection would wait for what it has not committed yet: commit, "
            "then wait on the queue or the group itself"
        )


@dataclass(eq=False)
class Wait:
    """One wait: fed with the rows of each look until it has its outcome."""

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
        if partial is None:  # the progress of one that has told none yet
            partial = True
        elif not isinstance(partial, bool):
            check.fraction(partial, "partial")
        seconds = None if timeout is None else check.microseconds(timeout, "timeout")
        deadline = None if seconds is None else time.monotonic() + seconds / limits.SECOND
        return cls(queue, id, key, what, deadline, partial)

    def look(self, found: Row | None) -> bool:
        """True if this look ended it."""
        if found is None:
            self.outcome = Outcome("gone", self.id)
            return True
        id, _, state, json, result, error, progress, note = found
        self._state = state
        self.id, self.key = id, None  # from now on this message, whoever gets its key next
        if not self._seen:
            self._seen, self._first = True, (progress, note)
        if state in FINISHED or self._further(progress, note):
            self.outcome = Outcome(
                STATES[state],
                id,
                decode(result, json & RESULT_JSON),
                error,
                fraction(progress),
                note,
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
        """The outcome; or raise what went wrong, or that it took too long."""
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


def outcomes(core: Core, queue: str, waits: Sequence[Wait]) -> Call[Rows]:
    """The rows of all these waits, in one look."""
    ids = [wait.id for wait in waits if wait.id is not None]
    keys = [wait.key for wait in waits if wait.key is not None]
    return Call(
        "wait", lambda: core.backend.outcomes(queue, ids, keys, core.now()), repeatable=True
    )


def judge(waits: Sequence[Wait], rows: Rows) -> list[Wait]:
    """Show every wait its row; those that it ended."""
    by_id = {row[0]: row for row in rows}
    by_key = {row[1]: row for row in rows if row[1] is not None}
    return [
        wait
        for wait in waits
        if wait.look(by_id.get(wait.id) if wait.id is not None else by_key.get(wait.key))
    ]
