"""Round after round, and the commands."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from fairturn.core.errors import InvalidArgument
from fairturn.relay.destination import DestinationError
from fairturn.relay.dynamodb import DynamoStore
from fairturn.relay.dynamodb.drain import Drained
from fairturn.relay.dynamodb.run import Rounds
from tests.relay.dynamodb import command
from tests.relay.dynamodb.stage import THROTTLED, Stage, answer, babble
from tests.server.serve_programs import SECONDS, wait_for


class Running:
    """``run`` in a thread, until the test has seen enough."""

    def __init__(self, run: Callable[[threading.Event], None]) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: run(self._stop))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("every", [0, 0.5, 841, 900, float("nan")])
def test_polls_must_be_closer_than_the_horizon(every: float) -> None:
    with pytest.raises(InvalidArgument, match="must be between 1 and 840 seconds: SQS keeps"):
        DynamoStore(None, None).run(every=every)


def test_the_first_poll_is_at_once_and_no_table_holds_up_another(stage: Stage) -> None:
    stage.now = time.time()
    good = stage.queue
    stage.put(10, "here")
    bad = stage.world.name()
    store = DynamoStore(stage.dynamodb, stage.sqs)
    store.create_table(bad)  # and there is no such queue
    with Running(lambda stop: store.run([bad, good], 840, stop)):
        wait_for(lambda: "here" in stage.arrived())
    assert not stage.table()


def test_a_fifo_queue_gets_its_messages_when_they_are_due(stage: Stage) -> None:
    stage.use(stage.world.name(".fifo"))
    stage.now = time.time()
    stage.put(1.5, "later")
    store = DynamoStore(stage.dynamodb, stage.sqs)
    assert store.drain(stage.queue).sent == 0
    with Running(lambda stop: store.run([stage.queue], 840, stop)):
        wait_for(lambda: bool(stage.messages()))
    assert stage.messages()[0].created_at.timestamp() >= stage.now + 1.5


def test_what_becomes_due_at_a_fifo_queue_during_a_poll_waits_for_no_other(stage: Stage) -> None:
    stage.use(stage.world.name(".fifo"))
    stage.put(-1, "due")
    stage.put(0.5, "soon")

    def on_step(step: str, job_ids: Sequence[str]) -> None:
        if step == "sent":
            stage.now += 1

    store = stage.drain(on_step)
    with Running(lambda stop: store.run([stage.queue], 840, stop)):
        wait_for(lambda: "soon" in stage.arrived())


def test_what_was_sent_and_not_deleted_is_deleted_soon(stage: Stage) -> None:
    """While the claim lasts: afterwards another would send it again."""
    stage.put(10, "job")
    dynamodb = stage.dynamodb_client()
    answer(dynamodb, "DeleteItem", THROTTLED)
    store = stage.drain(dynamodb=dynamodb)
    with Running(lambda stop: store.run([stage.queue], 840, stop)):
        wait_for(lambda: "job" in stage.arrived() and not stage.table())
    assert stage.arrived() == {"job": 1}


@pytest.mark.parametrize("operation", ["GetQueueUrl", "Query", "UpdateItem"])
def test_an_answer_that_is_not_from_aws_is_asked_for_again(stage: Stage, operation: str) -> None:
    stage.put(10, "job")
    dynamodb, sqs = stage.dynamodb_client(), stage.sqs_client()
    babble(sqs if operation == "GetQueueUrl" else dynamodb, operation)
    store = stage.drain(dynamodb=dynamodb, sqs=sqs)
    with Running(lambda stop: store.run([stage.queue], 840, stop)):
        wait_for(lambda: "job" in stage.arrived())


def test_an_answer_that_is_not_from_aws_is_told(stage: Stage) -> None:
    dynamodb = stage.dynamodb_client()
    store = DynamoStore(dynamodb, stage.sqs)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("ListTables", store.tables),
        ("DescribeTable", store.tables),
        ("Query", lambda: store.count(stage.queue)),
        ("Query", lambda: store.waiting(stage.queue)),
    ]
    for operation, call in calls:
        babble(dynamodb, operation)
        with pytest.raises(DestinationError, match="the answer did not come from AWS"):
            call()


class Script:
    """A poll that answers what it is told to."""

    def __init__(self, *answers: Drained | Exception) -> None:
        self._answers = list(answers)
        self.polls: list[str] = []
        self.tables = ["one"]

    def poll(self, queue: str, stop: threading.Event) -> Drained:
        self.polls.append(queue)
        answer = self._answers.pop(0) if self._answers else Drained()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run(self, stop: threading.Event, every: float = 840) -> None:
        Rounds(self.poll, lambda queue, since: None, lambda: self.tables, every, stop).run()


def test_after_trouble_it_polls_again_soon() -> None:
    script = Script(Drained(trouble="throttled"), DestinationError("there is no table"))
    with Running(script.run):
        wait_for(lambda: len(script.polls) == 3)


def test_when_another_drains_claim_ends_it_looks_again() -> None:
    script = Script(Drained(again_at=time.time() + 0.2))
    with Running(script.run):
        wait_for(lambda: len(script.polls) == 2)


class Pauses(threading.Event):
    """It notes what a table's thread would wait, and ends the run then."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        if threading.current_thread().name.startswith("table "):
            self.noted.append(timeout)
            self.set()
        return super().wait(timeout)


@pytest.mark.parametrize(("lasts", "pause"), [(0, 300), (200, 100), (500, 0), (-3600, 300)])
def test_polls_begin_every_so_many_seconds_however_long_they_last(lasts: int, pause: int) -> None:
    """Or what is found by the next one is late. A clock may be set back meanwhile."""
    now, stop = [5000.0], Pauses()

    def poll(queue: str, stop: threading.Event) -> Drained:
        now[0] += lasts
        return Drained()

    Rounds(poll, lambda queue, since: None, lambda: ["one"], 300, stop, lambda: now[0]).run()
    assert stop.noted == [pause]


def test_a_signal_that_another_thread_receives_is_heard() -> None:
    """Python runs the handler in the main thread, which must not sleep until its next look."""
    asleep = threading.Event()

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if threading.current_thread() is threading.main_thread():
                asleep.set()
            return super().wait(timeout)

    def poll(queue: str, stop: threading.Event) -> Drained:
        assert asleep.wait(SECONDS)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        return Drained()

    stop = Stop()
    before = signal.signal(signal.SIGUSR1, lambda *_: stop.set())
    try:
        Rounds(poll, lambda queue, since: None, lambda: ["one"], 840, stop).run()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert stop.is_set()


def test_tables_that_come_and_go() -> None:
    script = Script()
    with Running(lambda stop: script.run(stop, every=1)):
        wait_for(lambda: "one" in script.polls)
        script.tables = ["two"]
        wait_for(lambda: "two" in script.polls)
        script.tables = []
        ended = [f"table {name}" for name in ("one", "two")]
        wait_for(lambda: not any(thread.name in ended for thread in threading.enumerate()))


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        Script(ZeroDivisionError("ours")).run(threading.Event())


def test_what_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fairturn.relay")
    told = Drained(sent=3, failed=1, reasons=["job 'a': no"], trouble="throttled")
    script = Script(told)
    with Running(script.run):
        wait_for(lambda: len(script.polls) == 2)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("ERROR", "queue 'one': job 'a': no") in said
    assert ("WARNING", "queue 'one': throttled; trying again") in said
    assert ("INFO", "queue 'one': 3 handed over, 1 failed, 0 rescheduled meanwhile") in said


# --- the commands ---------------------------------------------------------------------------------


def where(stage: Stage) -> tuple[str, ...]:
    return ("--endpoint-url", stage.dynamodb_url, "--sqs-endpoint-url", stage.world.served.url)


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = command.main(words)
    out, err = capsys.readouterr()
    return code, out, err


def test_create_table_and_status(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    name = stage.world.name()
    there = where(stage)
    made = call(capsys, "create-table", name, *there)
    assert made == (0, f"table {name!r} created\n", "")
    made = call(capsys, "create-table", name, *there)
    assert made == (0, f"table {name!r} is there already, with the right layout\n", "")
    stage.now = time.time()
    for ahead in (-5000, 60, 5000):
        stage.put(ahead)
    _, out, _ = call(capsys, "status", stage.queue, name, *there)
    head, *rows = (line.split("  ") for line in out.splitlines())
    assert [cell.strip() for cell in head if cell] == [
        *("queue", "waiting", "within 15 min", "overdue", "first due")
    ]
    cells = [[cell.strip() for cell in row if cell] for row in rows]
    assert cells[0][:4] == [stage.queue, "3", "2", "1"]
    assert cells[0][4].endswith("ago")
    assert cells[1] == [name, "0", "0", "0"]
    _, out, _ = call(capsys, "status", *there, "--json")
    found = next(one for one in json.loads(out) if one["queue"] == stage.queue)
    assert (found["queue"], found["waiting"], found["soon"], found["overdue"]) == (
        *(stage.queue, 3, 2, 1),
    )
    assert found["oldest"].endswith("Z")


def test_run_until_a_signal(stage: Stage) -> None:
    stage.now = time.time()
    ids = stage.fill(80, ahead=300)
    program = command.program("run", stage.queue, *where(stage))
    try:
        wait_for(lambda: bool(stage.messages()), lambda: program.err)
        program.signal(signal.SIGTERM)
        assert program.end() == 0
    finally:
        program.kill()
    table = stage.table()
    assert stage.arrived() == {id: 1 for id in ids if id not in table}
    assert not any("fairturn_claim" in one for one in table.values())  # nothing was in hand
    assert [line["message"] for line in program.logged()][-1] == "stopped"


@pytest.mark.parametrize("kind", ["moto"])
def test_mistakes_on_the_command_line(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = where(stage)
    code, _, err = call(capsys, "status", "nowhere", *there)
    assert (code, "Create it: fairturn relay dynamodb create-table nowhere" in err) == (1, True)
    code, _, err = call(capsys, "run", stage.queue, "--every", "15m", *there)
    assert (code, "between 1 and 840 seconds" in err) == (2, True)
    code, _, err = call(capsys, "status", "--endpoint-url", "nonsense")
    assert (code, "nonsense" in err) == (1, True)
    code, _, err = call(capsys, "status", "--endpoint-url", "http://127.0.0.1:1")
    assert (code, "cannot be reached. Check its URL" in err) == (1, True)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    code, _, err = call(capsys, "status")
    assert (code, "Give --region, or set AWS_REGION" in err) == (1, True)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    code, _, err = call(capsys, "status", "--region", "eu-west-3", *there)
    assert (code, "there are no AWS credentials. Set AWS_ACCESS_KEY_ID" in err) == (1, True)
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    code, _, err = call(capsys, "status", *there)
    assert (code, "pip install boto3" in err) == (1, True)
