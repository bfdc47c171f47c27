"""What becomes of a message whose handler raised: the rules of retry=, Defer, Retry, GiveUp."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairturn
from fairturn import Backoff, Defer, GiveUp, Retry
from fairturn.tasks.task import TaskOptions
from fairturn.tasks.verdicts import RetryPolicy, Verdict, delay_of
from fairturn.worker.delivery import Delivery


def judge(
    rule: Any, error: BaseException, attempts: int = 1, queue: int = 5, said: int | None = None
) -> Verdict:
    """The verdict on an error, as a worker finds it: ``queue`` is the queue's max_attempts,
    ``said`` what the sender asked for."""

    class Worker:
        max_attempts = {"q": queue}  # noqa: RUF012

    class Home:
        middleware: list[fairturn.Middleware] = []  # noqa: RUF012

    home: Any = Home()
    worker: Any = Worker()
    nobody: Any = None
    task = fairturn.Task(home, lambda: None, "t", TaskOptions(retry=rule))
    message = task.with_options(**({} if said is None else {"max_attempts": said})).message()

    class Received:
        queue = "q"
        id = 1

    received: Any = Received()
    received.attempts, received.headers = attempts, message.headers or {}
    return Delivery(worker, task, received, nobody).verdict_on_error(error)


def test_without_a_rule_the_queue_decides() -> None:
    verdict = judge(None, ValueError("no"))
    assert (verdict.kind, verdict.error, verdict.delay) == ("fail", "ValueError: no", None)
    assert not verdict.final
    assert "ValueError: no" in verdict.details["traceback"]
    assert judge(None, ValueError(), attempts=5).final
    assert not judge(None, ValueError(), attempts=500, queue=0).final


def test_a_backoff_delays_and_ends() -> None:
    rule = Backoff(initial=2, factor=3, maximum=10, max_attempts=4, jitter=0)
    verdicts = [judge(rule, ValueError(), attempts=n) for n in (1, 2, 3, 4)]
    assert [v.kind for v in verdicts] == ["fail", "fail", "fail", "kill"]
    assert [v.delay for v in verdicts] == [2, 6, 10, None]
    assert [v.final for v in verdicts] == [False, False, False, True]


def test_a_backoff_may_be_more_patient_than_the_queue() -> None:
    assert not judge(Backoff(max_attempts=9), ValueError(), attempts=8, queue=2).final
    assert judge(Backoff(max_attempts=9), ValueError(), attempts=9, queue=2).final
    assert not judge(Backoff(max_attempts=0), ValueError(), attempts=99, queue=2).final
    assert judge(Backoff(), ValueError(), attempts=2, queue=2).final


@pytest.mark.parametrize(
    "rule", [None, Backoff(), Backoff(max_attempts=4), Backoff(max_attempts=0)]
)
@pytest.mark.parametrize("said", [2, 9])
def test_the_sender_has_the_last_word(rule: Backoff | None, said: int) -> None:
    assert not judge(rule, ValueError(), attempts=said - 1, said=said).final
    assert judge(rule, ValueError(), attempts=said, said=said).final
    assert not judge(rule, ValueError(), attempts=99, said=0).final


def test_false_means_no_retry() -> None:
    verdict = judge(False, ValueError("no"))
    assert (verdict.kind, verdict.final, verdict.error) == ("kill", True, "ValueError: no")


class Flaky(OSError):
    pass


RULES: dict[type[BaseException], Backoff | None] = {
    Exception: Backoff(initial=1, jitter=0),
    OSError: None,
    Flaky: Backoff(initial=7, max_attempts=3, jitter=0),
}


@pytest.mark.parametrize("order", [list(RULES), list(reversed(RULES))])
def test_the_most_special_type_counts_whatever_the_order(order: list[type]) -> None:
    rule = {kind: RULES[kind] for kind in order}
    assert judge(rule, ValueError()).delay == 1
    assert judge(rule, OSError()).kind == judge(rule, ConnectionError()).kind == "kill"
    assert judge(rule, Flaky(), attempts=1).delay == 7
    assert [judge(rule, Flaky(), attempts=n).kind for n in (2, 3)] == ["fail", "kill"]


def test_types_without_a_rule_go_as_the_queue_says() -> None:
    rule = {Flaky: Backoff(max_attempts=9)}
    assert judge(rule, ValueError(), attempts=4).delay is None
    assert not judge(rule, ValueError(), attempts=4).final
    assert judge(rule, ValueError(), attempts=5).final
    assert not judge(rule, Flaky(), attempts=8).final
    assert judge(rule, Flaky(), attempts=9).final


def test_a_small_number_of_one_type_does_not_bind_the_others() -> None:
    rule = {Flaky: Backoff(max_attempts=2)}
    assert judge(rule, Flaky(), attempts=2).final
    assert not judge(rule, ValueError(), attempts=2).final
    assert judge(rule, ValueError(), attempts=5).final


@given(
    st.integers(1, 2000),
    st.floats(0, 100),
    st.integers(1, 10),
    st.floats(0, 10_000),
    st.floats(0, 1),
    st.floats(0, 1, exclude_max=True),
)
def test_jitter_only_shortens_and_only_by_its_part(
    attempts: int, initial: float, factor: int, maximum: float, jitter: float, chance: float
) -> None:
    def delay(part: float) -> float:
        backoff = Backoff(initial=initial, factor=factor, maximum=maximum, jitter=part)
        return delay_of(backoff, attempts, lambda: chance)

    full = delay(0)
    assert full == pytest.approx(min(maximum, initial * factor ** min(attempts - 1, 63)))
    assert full * (1 - jitter) - 1e-9 <= delay(jitter) <= full


def test_durations_of_a_backoff_may_be_timedeltas() -> None:
    backoff = Backoff(initial=timedelta(minutes=1), maximum=timedelta(hours=1), jitter=0)
    assert [delay_of(backoff, n) for n in (1, 2, 99)] == [60, 120, 3600]


# --- what handlers raise --------------------------------------------------------------------------
def test_defer() -> None:
    verdict = judge(False, Defer(5, memo={"page": 2}))
    assert (verdict.kind, verdict.delay, verdict.memo) == ("defer", 5, {"page": 2})
    assert judge(None, Defer(timedelta(minutes=1))).delay == 60
    assert judge(None, Defer()).memo is fairturn.KEEP
    assert judge(None, Defer(at=99, memo=None)).memo is None
    assert judge(None, Defer(at=99)).at == 99
    assert not judge(None, Defer(1), attempts=99).final


def test_retry() -> None:
    verdict = judge(Backoff(initial=3, jitter=0), Retry("try again"))
    assert (verdict.kind, verdict.error, verdict.delay) == ("fail", "try again", 3)
    assert verdict.details is None  # it was asked for: no traceback
    assert judge(None, Retry()).delay is None
    assert judge(None, Retry(delay=timedelta(minutes=1))).delay == 60
    assert judge(Backoff(initial=3), Retry(delay=0)).delay == 0
    assert judge(None, Retry(), attempts=5).final
    assert judge(Backoff(max_attempts=2), Retry(delay=9), attempts=2).final


def test_give_up() -> None:
    verdict = judge(Backoff(max_attempts=9), GiveUp("hopeless"))
    assert (verdict.kind, verdict.error, verdict.final) == ("kill", "hopeless", True)
    assert judge(None, GiveUp()).error == "GiveUp"


def test_subclasses_of_what_handlers_raise() -> None:
    class Busy(Retry):
        pass

    assert judge({Retry: Backoff(initial=9, jitter=0)}, Busy()).delay == 9


def test_a_timeout_is_an_error_with_a_type_of_its_own() -> None:
    policy = RetryPolicy({fairturn.TaskTimeout: None}, "t")
    assert policy.for_error(fairturn.TaskTimeout("late")) is None
    assert issubclass(fairturn.TaskTimeout, TimeoutError)
