"""Every failure mode of shoryuken-waiter, on our drain and on its own algorithm.

Where the original fails, it must fail: a test that it passes would not show anything. moto keeps no
promise about two requests at the same time, so what needs that is asked of dynalite alone.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from tests.faults.crew import FULL
from tests.relay.dynamodb.stage import CLAIM, KEYS, THROTTLED, Stage, answer, lose
from tests.server.serve_programs import SECONDS


def both(why: str | None = None) -> pytest.MarkDecorator:
    """On our drain and on the original's; ``why`` the original fails."""
    marks = () if why is None else fails(why)
    return pytest.mark.parametrize("subject", ["ours", pytest.param("original", marks=marks)])


def fails(why: str) -> pytest.MarkDecorator:
    """By what is asserted, not by an error on the way there."""
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=f"original: {why}")


atomic = pytest.mark.parametrize("kind", ["dynalite"])


# --- when -----------------------------------------------------------------------------------------


@both()
def test_900_seconds_go_to_sqs_and_901_to_the_table(stage: Stage) -> None:
    drain = stage.drain()
    for id, ahead in (("near", 900), ("far", 901)):
        text = json.dumps(stage.job(id))
        drain.send_message(QueueUrl=stage.url, MessageBody=text, At=stage.now + ahead)
    assert stage.delays() == {"near": 900}
    assert list(stage.table()) == ["far"]


@both()
def test_what_is_due_within_the_horizon_is_handed_over(stage: Stage) -> None:
    stage.put(899, "first")
    stage.put(900, "last")
    stage.drain().drain(stage.queue)
    assert stage.delays() == {"first": 899}
    assert list(stage.table()) == ["last"]
    stage.now += 300  # the next poll: still ten minutes ahead
    stage.drain().drain(stage.queue)
    assert stage.delays() == {"first": 899, "last": 600}
    assert not stage.table()


@both("the seconds are cut off")
def test_nothing_is_early(stage: Stage) -> None:
    ahead = {"a": 0.001, "b": 600.5, "c": 899.999}
    for id, seconds in ahead.items():
        stage.put(seconds, id)
    stage.drain().drain(stage.queue)
    assert stage.delays() == {"a": 1, "b": 601, "c": 900}


@both("a negative delay is refused, and nobody looks")
def test_what_is_overdue_arrives_at_once(stage: Stage) -> None:
    stage.put(-5000, "old")
    stage.drain().drain(stage.queue)
    assert stage.delays() == {"old": 0}
    assert not stage.table()


def test_many_pages_arrive_in_order_of_time(stage: Stage) -> None:
    ids = [stage.put(400 - n, padding="x" * 30_000) for n in range(40)]  # 1.2 MB: two pages
    assert stage.drain().drain(stage.queue).sent == 40
    assert list(stage.arrived()) == ids[::-1]


# --- two at once ----------------------------------------------------------------------------------


@atomic
@both("who deletes an item does not learn whether it was there")
def test_two_drains_in_two_threads(stage: Stage) -> None:
    ids = stage.fill(22)
    both_found = threading.Barrier(2)
    waits = threading.local()

    def on_step(step: str, job_ids: Sequence[str]) -> None:
        if step == "found" and not hasattr(waits, "over"):
            waits.over = True
            both_found.wait(SECONDS)

    threads = [
        threading.Thread(target=stage.drain(on_step).drain, args=[stage.queue]) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stage.arrived() == dict.fromkeys(ids, 1)
    assert not stage.table()


class Process:
    """program.py, on a stage."""

    def __init__(self, stage: Stage, **told: Any) -> None:
        facts = {
            "subject": stage.subject,
            "queue": stage.queue,
            "now": stage.now,
            "dynamodb": {"endpoint_url": stage.dynamodb_url, **KEYS},
            "sqs": stage.world.served.connection(),
            **told,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.relay.dynamodb.program", json.dumps(facts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def until_found(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "found\n"

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> int:
        self._process.communicate(timeout=SECONDS)
        return self._process.returncode


@atomic
@both("who deletes an item does not learn whether it was there")
def test_three_drains_in_three_processes(stage: Stage) -> None:
    ids = stage.fill(12)
    processes = [Process(stage, gate=True) for _ in range(3)]
    for process in processes:
        process.until_found()
    for process in processes:
        process.go_on()
    assert [process.end() for process in processes] == [0, 0, 0]
    assert stage.arrived() == dict.fromkeys(ids, 1)
    assert not stage.table()


def test_a_claim_that_lives_is_left_alone(stage: Stage) -> None:
    stage.fill(3)
    assert Process(stage, die_at="claimed").end() == -signal.SIGKILL
    stage.now += CLAIM - 2
    drained = stage.drain().drain(stage.queue)
    assert (drained.sent, drained.taken, drained.again_at) == (0, 3, stage.now - CLAIM + 122)
    stage.now += 2
    assert stage.drain().drain(stage.queue).sent == 3


# --- kill -9 --------------------------------------------------------------------------------------

LOST = fails("everything is deleted before it is sent")
STEPS = ["found", "claimed", "sent", "deleted"]


@pytest.mark.parametrize(
    ("subject", "step"),
    [
        *(("ours", step) for step in STEPS),
        ("original", "found"),
        pytest.param("original", "claimed", marks=LOST),
        pytest.param("original", "sent", marks=LOST),
    ],
)
def test_killed_at_a_step_nothing_is_lost(stage: Stage, step: str) -> None:
    ids = stage.fill(12, ahead=400)
    assert Process(stage, die_at=step).end() == -signal.SIGKILL
    stage.now += CLAIM
    stage.drain().drain(stage.queue)
    arrived = stage.arrived()
    assert set(arrived) == set(ids)
    assert not stage.table()
    # Only the ten that were sent and not yet deleted come twice.
    twice = [id for id, times in arrived.items() if times > 1]
    assert twice == (ids[:10] if step == "sent" else [])
    assert max(arrived.values()) <= 2


@both("a FIFO queue takes no delay with a message, and nobody looks")
@pytest.mark.parametrize("step", ["claimed", "sent"])
def test_at_a_fifo_queue_nothing_comes_twice(stage: Stage, step: str) -> None:
    stage.use(stage.world.name(".fifo"))
    ids = stage.fill(12, ahead=-30)
    assert Process(stage, die_at=step).end() == -signal.SIGKILL
    stage.now += CLAIM
    stage.drain().drain(stage.queue)
    assert [message.body["job_id"] for message in stage.messages()] == ids
    assert not stage.table()


@pytest.mark.timeout(1800 if FULL else 300)
@atomic
def test_random_kills_lose_nothing(stage: Stage, rng: random.Random) -> None:
    many, kills = (10_000, 60) if FULL else (120, 4)
    ids = [f"job-{n}" for n in range(many)]
    stage.now = time.time()  # the processes have the real clock
    for n, id in enumerate(ids):
        stage.put(-n / 1000, id)  # one time for all, and dynalite's index would mix some of them up
    crew: list[Process] = []
    try:
        crew += [Process(stage, rounds=True, now=None, claim=5.0) for _ in range(2)]
        for n in range(kills):
            time.sleep(rng.uniform(0.3, 0.9))  # anywhere in its work
            crew[n % 2].kill()
            assert crew[n % 2].end() == -signal.SIGKILL
            crew[n % 2] = Process(stage, rounds=True, now=None, claim=5.0)
        patience = time.monotonic() + (900 if FULL else SECONDS)
        while stage.dynamodb.scan(TableName=stage.queue, Limit=1)["Items"]:
            assert time.monotonic() < patience, f"{len(stage.table())} are left"
            time.sleep(0.1)
    finally:
        for process in crew:
            process.kill()
            assert process.end() == -signal.SIGKILL
    queue, after, arrived = stage.db.queue(stage.queue), 0, []
    while page := queue.peek(1000, after=after):
        arrived += [message.body["job_id"] for message in page]
        after = page[-1].id
    assert set(arrived) == set(ids)
    twice = len(arrived) - many
    print(f"{many} messages, {kills} kills: 0 lost, {twice} twice")
    assert twice <= 10 * kills  # what was sent and not yet deleted


# --- the same id again ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "step"),
    [
        *(("ours", step) for step in STEPS),
        pytest.param("original", "found", marks=fails("it deletes the new one")),
        ("original", "claimed"),
        ("original", "sent"),
    ],
)
def test_a_job_that_is_put_again_meanwhile_is_kept(stage: Stage, step: str) -> None:
    stage.put(60, "job", try_=1)
    later = stage.now + 3600

    def on_step(at: str, job_ids: Sequence[str]) -> None:
        if at == step:
            stage.put(3600, "job", try_=2)

    stage.drain(on_step).drain(stage.queue)
    assert "job" in stage.table()
    kept = stage.table()["job"]
    assert float(kept["perform_at"]["N"]) == later
    assert kept["sqs_message_body"]["M"]["try_"] == {"N": "2"}
    stage.now += 3000
    stage.drain().drain(stage.queue)
    assert stage.messages()[-1].body["try_"] == 2
    # Before it was claimed nobody has sent the old one; afterwards it was on its way.
    assert len(stage.messages()) == (1 if step == "found" else 2)
    assert not stage.table()


@both("it sends what it has read")
def test_a_job_that_is_put_again_for_the_same_time(stage: Stage) -> None:
    stage.put(60, "job", try_=1)

    def on_step(at: str, job_ids: Sequence[str]) -> None:
        if at == "found":
            stage.put(60, "job", try_=2)

    stage.drain(on_step).drain(stage.queue)
    assert [message.body["try_"] for message in stage.messages()] == [2]


@pytest.mark.parametrize("step", ["claimed", "sent", "deleted"])
def test_at_a_fifo_queue_another_body_for_the_same_time_arrives(stage: Stage, step: str) -> None:
    """SQS must not take it for what it was sent before."""
    stage.use(stage.world.name(".fifo"))
    stage.put(-1, "job", try_=1)

    def on_step(at: str, job_ids: Sequence[str]) -> None:
        if at == step:
            stage.put(-1, "job", try_=2)

    stage.drain(on_step).drain(stage.queue)
    stage.drain().drain(stage.queue)
    assert [message.body["try_"] for message in stage.messages()] == [1, 2]
    assert not stage.table()


def test_at_a_fifo_queue_the_same_again_is_the_same_in_any_order(stage: Stage) -> None:
    """DynamoDB's maps have no order, and two reads of one item need not show the same."""
    stage.use(stage.world.name(".fifo"))
    parts = {"DataType": "String", "StringValue": "x"}
    other = {"DataType": "String", "StringValue": "y"}
    store = stage.drain()
    attributes: dict[str, Any]
    for body, attributes in (
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"p": parts, "q": parts}),
        ({"b": {"d": 3, "c": 2}, "a": 1}, {"q": dict(reversed(parts.items())), "p": parts}),
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"p": parts, "q": other}),  # this one is another
    ):
        store.put(stage.queue, stage.job("job", **body), stage.now - 1, attributes=attributes)
        assert store.drain(stage.queue).sent == 1
    assert len(stage.messages()) == 2


@both()
def test_the_last_of_two_wins(stage: Stage) -> None:
    stage.put(60, "job", try_=1)
    stage.put(90, "job", try_=2)
    stage.drain().drain(stage.queue)
    assert [message.body["try_"] for message in stage.messages()] == [2]


# --- SQS refuses ----------------------------------------------------------------------------------


@both("what has failed is not looked at")
def test_an_entry_that_is_refused_stays(stage: Stage) -> None:
    small = {"MaximumMessageSize": "1024"}
    stage.sqs.set_queue_attributes(QueueUrl=stage.url, Attributes=small)
    for n in range(5):
        stage.put(60 + n, f"job-{n}", padding="x" * (2000 if n == 2 else 0))
    stage.drain().drain(stage.queue)
    assert set(stage.arrived()) == {"job-0", "job-1", "job-3", "job-4"}
    large = {"MaximumMessageSize": "4096"}
    stage.sqs.set_queue_attributes(QueueUrl=stage.url, Attributes=large)
    stage.drain().drain(stage.queue)
    assert stage.arrived() == {f"job-{n}": 1 for n in range(5)}
    assert not stage.table()


@both("a batch that is too long is refused as a whole")
def test_ten_that_are_too_large_together(stage: Stage) -> None:
    ids = [stage.put(60 + n, padding="\n" * 65_000) for n in range(10)]  # 130 KB each, as JSON
    stage.drain().drain(stage.queue)
    assert stage.arrived() == dict.fromkeys(ids, 1)


def test_a_server_that_takes_less_than_sqs(stage: Stage) -> None:
    ids = stage.fill(10)
    sqs = stage.sqs_client()
    answer(sqs, "SendMessageBatch", "BatchRequestTooLong", times=3)
    stage.drain(sqs=sqs).drain(stage.queue)
    assert stage.arrived() == dict.fromkeys(ids, 1)


@both("everything is deleted before it is sent")
@pytest.mark.parametrize("trouble", ["throttled", "unreachable", "forbidden", "failing"])
def test_sqs_fails(stage: Stage, trouble: str) -> None:
    ids = stage.fill(12)
    sqs = stage.sqs_client()
    codes = {
        "throttled": "RequestThrottled",
        "forbidden": "AccessDeniedException",
        "failing": "InternalError",
    }
    if trouble == "unreachable":
        error = EndpointConnectionError(endpoint_url=stage.url)

        def fail(**_: Any) -> None:
            raise error

        sqs.meta.events.register("before-send.sqs.SendMessageBatch", fail)
    else:
        answer(sqs, "SendMessageBatch", codes[trouble], times=1, after=1)
    stage.drain(sqs=sqs).drain(stage.queue)
    # Without a wait for claims to end: SQS has certainly not got what is left.
    stage.drain().drain(stage.queue)
    assert stage.arrived() == dict.fromkeys(ids, 1)


@pytest.mark.parametrize("end", ["", ".fifo"])
def test_the_answer_of_sqs_is_lost(stage: Stage, end: str) -> None:
    """Then it may have happened: whoever comes after the claim sends again."""
    stage.use(stage.world.name(end))
    ids = stage.fill(5, ahead=-5)
    sqs = stage.sqs_client()
    lose(sqs, "SendMessageBatch", ReadTimeoutError(endpoint_url=stage.url))
    drained = stage.drain(sqs=sqs).drain(stage.queue)
    assert (drained.sent, drained.failed) == (0, 5)
    assert stage.drain().drain(stage.queue).sent == 0
    stage.now += CLAIM
    assert stage.drain().drain(stage.queue).sent == 5
    assert stage.arrived() == dict.fromkeys(ids, 1 if end else 2)


# --- DynamoDB refuses -----------------------------------------------------------------------------


@both("what was deleted before is lost")
def test_dynamodb_throttles_in_the_middle(stage: Stage) -> None:
    ids = stage.fill(12)
    dynamodb = stage.dynamodb_client()
    operation = "UpdateItem" if stage.subject == "ours" else "DeleteItem"
    answer(dynamodb, operation, THROTTLED, times=2, after=5)
    stage.drain(dynamodb=dynamodb).drain(stage.queue)
    stage.drain().drain(stage.queue)
    assert stage.arrived() == dict.fromkeys(ids, 1)
    assert not stage.table()


def test_throttled_it_says_so_and_stops(stage: Stage) -> None:
    stage.fill(12)
    dynamodb = stage.dynamodb_client()
    answer(dynamodb, "UpdateItem", THROTTLED, times=10)
    drained = stage.drain(dynamodb=dynamodb).drain(stage.queue)
    assert (drained.sent, drained.failed) == (0, 0)
    assert THROTTLED in (drained.trouble or "")
    answer(dynamodb, "Query", THROTTLED)
    drained = stage.drain(dynamodb=dynamodb).drain(stage.queue)
    assert THROTTLED in (drained.trouble or "")
    assert stage.drain(dynamodb=dynamodb).drain(stage.queue).sent == 12
