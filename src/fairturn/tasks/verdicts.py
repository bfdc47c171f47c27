"""Verdicts: what to do with a message after its handler. Decided here, carried out elsewhere."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from fairturn.core.errors import InvalidArgument
from fairturn.core.settings import QUEUE_SETTINGS, Backoff
from fairturn.core.values import Duration, Moment
from fairturn.operations.receives import KEEP

Kind = Literal["ack", "complete", "fail", "kill", "defer", "release", "settled", "lost"]
Retries = Backoff | None
RetryRule = Retries | Mapping[type[BaseException], Retries]
TRACEBACK_CHARS = 20_000


class Signal(Exception):
    """Raised by a handler to decide what happens to its message."""


class Defer(Signal):
    """Run the message again later. This is no failure; attempts start at 0 again. ``memo`` is saved
    work: kept when omitted, cleared by None."""

    def __init__(
        self, delay: Duration | None = None, *, at: Moment | None = None, memo: Any = KEEP
    ) -> None:
        super().__init__("deferred")
        self.delay, self.at, self.memo = delay, at, memo


class Retry(Signal):
    """The run failed: try again, after ``delay`` seconds or as the task's ``retry`` says."""

    def __init__(self, error: str = "asked for a retry", *, delay: Duration | None = None) -> None:
        super().__init__(error)
        self.delay = delay


class GiveUp(Signal):
    """The message can never succeed: it is dead now, even if attempts are left."""


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: Kind
    result: Any = None
    error: str = ""
    details: Any = None  # for the failure log: {"traceback": …}
    delay: float | None = None  # of fail; None: the queue's back-off decides
    at: Moment | None = None
    memo: Any = KEEP
    final: bool = False  # the message is dead after this
    acked: bool = False  # of ack: the handler has acked it already, in its own transaction


ACK = Verdict("ack")
RELEASE = Verdict("release")
SETTLED = Verdict("settled")  # acked and committed in the context's transaction()


def seconds(value: Duration) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def delay_of(backoff: Backoff, attempts: int, chance: Callable[[], float] = random.random) -> float:
    """Return the seconds from failed attempt number ``attempts`` to the next one."""
    most = seconds(backoff.maximum)
    # Bound the exponent: it must not overflow after a thousand attempts.
    wait = min(most, seconds(backoff.initial) * backoff.factor ** min(attempts - 1, 63))
    return wait * (1 - backoff.jitter * chance())


def _generality(rule: tuple[type[BaseException], Retries]) -> int:
    kind, _ = rule
    return -len(kind.__mro__)


class RetryPolicy:
    """A task's ``retry=``: one back-off, or one per type of exception; None means no retry."""

    def __init__(self, rule: RetryRule | Literal[False], task: str) -> None:
        self.rules: list[tuple[type[BaseException], Retries]] = []
        self.default: Retries | Literal[True] = True  # True: the queue's settings decide
        self.max_attempts: int | None = None
        if isinstance(rule, Backoff):
            self.default = check_backoff(rule, task)
            self.max_attempts = rule.max_attempts
        elif rule is False:
            self.default = None
        elif isinstance(rule, Mapping):
            for kind, backoff in rule.items():
                if backoff is not None:
                    check_backoff(backoff, task)
                self.rules.append((kind, backoff))
            # The message itself needs the highest of these numbers. Errors without a rule use the
            # queue's setting, which is not known here: assume its default.
            given = [b.max_attempts for _, b in self.rules if b and b.max_attempts is not None]
            most = 0 if 0 in given else max([QUEUE_SETTINGS["max_attempts"].default, *given])
            self.max_attempts = most if given else None
            # The most derived type first, so that the order of the mapping does not matter.
            self.rules.sort(key=_generality)
        elif rule is not None:
            raise InvalidArgument(
                f"{task}: retry= takes a fairturn.Backoff(…), a mapping of exception types to "
                f"back-offs (None: no retry), or False, not {rule!r}"
            )

    def for_error(self, error: BaseException) -> Retries | Literal[True]:
        for kind, backoff in self.rules:
            if isinstance(error, kind):
                return backoff
        return self.default

    def judge(
        self, error: BaseException, attempts: int, max_attempts: int, default_max_attempts: int
    ) -> Verdict:
        """Return the verdict on failed attempt number ``attempts``. The database lets no message
        have more than ``max_attempts``; ``default_max_attempts`` is the limit for errors without a
        rule. 0: no limit."""
        text, details = describe(error)
        if isinstance(error, Defer):
            delay = None if error.delay is None else seconds(error.delay)
            return Verdict("defer", delay=delay, at=error.at, memo=error.memo)
        if isinstance(error, GiveUp):
            return Verdict("kill", error=text, final=True)
        backoff = self.for_error(error)
        if backoff is None:
            return Verdict("kill", error=text, details=details, final=True)
        # A single back-off's number is the message's own, unless the sender set another.
        own = max_attempts if not self.rules else None if backoff is True else backoff.max_attempts
        limit = default_max_attempts if own is None else own
        bounds = [bound for bound in (max_attempts, limit) if bound]
        final = bool(bounds) and attempts >= min(bounds)
        # Leave the queue's own rule to the database: its settings may have changed meanwhile.
        if final and (backoff is not True or self.rules):
            return Verdict("kill", error=text, details=details, final=True)
        delay = None if backoff is True else delay_of(backoff, attempts)
        if isinstance(error, Retry) and error.delay is not None:
            delay = seconds(error.delay)
        return Verdict("fail", error=text, details=details, delay=delay, final=final)


def check_backoff(backoff: Any, task: str) -> Backoff:
    if not isinstance(backoff, Backoff):
        raise InvalidArgument(f"{task}: retry= takes a fairturn.Backoff(…), not {backoff!r}")
    if seconds(backoff.initial) < 0 or seconds(backoff.maximum) < 0 or backoff.factor < 1:
        raise InvalidArgument(f"{task}: a back-off's delays must not be negative or shrink")
    if not 0 <= backoff.jitter <= 1:
        raise InvalidArgument(f"{task}: jitter is a part of the delay, from 0 to 1")
    if backoff.max_attempts is not None and backoff.max_attempts < 0:
        raise InvalidArgument(f"{task}: max_attempts must not be negative (0: no limit)")
    return backoff


def describe(error: BaseException) -> tuple[str, Any]:
    """Describe an exception: (one line, details for the failure log)."""
    if isinstance(error, Signal):
        return _writable(str(error) or type(error).__name__), None
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    lines = "".join(traceback.format_exception(error))
    return _writable(text), {"traceback": _writable(lines[-TRACEBACK_CHARS:])}


def _writable(text: str) -> str:
    """Escape what a log, a terminal or a database may refuse: NUL and lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
