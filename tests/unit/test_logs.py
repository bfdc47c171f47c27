"""Log records know the message that is worked on, wherever its handler runs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn.observe import logs

log = logging.getLogger("tests.shop")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def record(message: str = "hello", **extra: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "shop", "levelname": "INFO", "msg": message, **extra})
    assert logs.ContextFilter().filter(made)
    return made


def as_json(made: logging.LogRecord) -> dict[str, Any]:
    text = logs.JsonFormatter().format(made)
    assert "\n" not in text
    return json.loads(text)


# --- which message ------------------------------------------------------------------------------
def test_records_of_handlers_say_which_message(tmp_path: Path) -> None:
    """Of coroutines that take turns and of threads alike, whoever the logger is."""
    stream = io.StringIO()
    logs.setup(True, "INFO", stream)
    app = fairturn.App(f"sqlite:///{tmp_path}/jobs.db")
    everybody = asyncio.Barrier(3)
    done: list[str] = []

    @app.task(queue="emails", channel=lambda to: f"tenant-{to}")
    async def welcome(to: str) -> None:
        log.info("first %s", to)
        await everybody.wait()  # all three are under way
        log.info("second %s", to)
        await asyncio.to_thread(log.info, "third %s", to)
        done.append(to)

    @app.task(queue="emails", channel=lambda to: f"tenant-{to}")
    def goodbye(to: str) -> None:
        log.info("first %s", to)
        done.append(to)

    async def main() -> dict[str, int]:
        queue = app.async_db.queue("emails")
        await queue.create()
        sent = {to: int(await welcome.send_async(to)) for to in ("ann", "bob", "cid")}
        sent |= {to: int(await goodbye.send_async(to)) for to in ("dan", "eve")}
        async with app.worker():
            while len(done) < 5:
                await asyncio.sleep(0.005)
            log.info("nobody's")
        await app.close_async()
        return sent

    sent = asyncio.run(main())
    told = [line for line in lines(stream) if line["logger"] == "tests.shop"]
    assert len(told) == 3 * 3 + 2 + 1
    for line in told:
        if line["message"] == "nobody's":
            assert not line.keys() & set(logs.FIELDS)
            continue
        to = line["message"].split()[1]
        assert {field: line[field] for field in logs.FIELDS} == {
            "queue": "emails",
            "message_id": sent[to],
            "attempt": 1,
            "task": "welcome" if to in ("ann", "bob", "cid") else "goodbye",
            "channel": f"tenant-{to}",
        }


def test_the_workers_own_records_say_it_too(tmp_path: Path) -> None:
    stream = io.StringIO()
    logs.setup(True, "INFO", stream)
    app = fairturn.App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(queue="emails", retry=fairturn.Backoff(initial=0, max_attempts=2))
    def welcome(to: str) -> None:
        raise ValueError("no mailbox")

    async def main() -> int:
        await app.async_db.queue("emails").create()
        sent = await welcome.send_async("ann")
        async with app.worker():
            await welcome.wait_async(sent, timeout=30)
        await app.close_async()
        return int(sent)

    sent = asyncio.run(main())
    told = [line for line in lines(stream) if line.get("task") == "welcome"]
    assert [(line["level"], line["attempt"]) for line in told] == [("WARNING", 1), ("ERROR", 2)]
    assert all((line["message_id"], line["queue"]) == (sent, "emails") for line in told)
    assert "no mailbox" in told[1]["message"]


def test_a_handler_in_a_process_of_its_own(tmp_path: Path) -> None:
    """It logs as its worker does, and knows its message."""
    (tmp_path / "shop.py").write_text(
        textwrap.dedent("""
        import logging
        import fairturn

        app = fairturn.App("sqlite:///jobs.db")

        @app.task(executor="process", result=True, channel="tenant-7")
        def welcome(to: str) -> None:
            logging.getLogger("shop").info("hello %s", to)
        """)
    )
    program = textwrap.dedent("""
        import asyncio
        from fairturn.observe import logs
        from shop import app, welcome

        async def main():
            await app.async_db.queue("default").create()
            sent = await welcome.send_async("ann")
            async with app.worker():
                await welcome.wait_async(sent, timeout=30)
            await app.close_async()

        if __name__ == "__main__":
            logs.setup(True, "INFO")
            asyncio.run(main())
        """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stderr.splitlines()]
    [line] = [line for line in told if line["logger"] == "shop"]
    assert line["message"] == "hello ann"
    assert {field: line[field] for field in logs.FIELDS} == {
        "queue": "default",
        "message_id": 1,
        "attempt": 1,
        "task": "welcome",
        "channel": "tenant-7",
    }


def test_a_format_of_ones_own_has_the_fields_everywhere() -> None:
    made = record()
    text = logging.Formatter("%(queue)s %(message_id)s %(attempt)s %(task)s %(channel)s")
    assert text.format(made) == "None None None None None"


def test_what_the_record_says_itself_stays() -> None:
    made = logging.makeLogRecord({"queue": "mine", "message_id": 7})
    logs.ContextFilter().filter(made)
    assert (made.queue, made.message_id, made.task) == ("mine", 7, None)  # type: ignore[attr-defined]


# --- as JSON, as text ---------------------------------------------------------------------------
def test_one_object_on_one_line() -> None:
    moment = datetime(2031, 5, 6, 7, 8, 9, 250_000, UTC).timestamp()
    told = as_json(record("two\nlines of ünïcode", created=moment, queue="emails", attempt=2))
    assert told == {
        "time": "2031-05-06T07:08:09.250Z",
        "level": "INFO",
        "logger": "shop",
        "message": "two\nlines of ünïcode",
        "queue": "emails",
        "attempt": 2,
    }


def test_exceptions_and_stacks() -> None:
    try:
        raise ValueError("no mailbox")
    except ValueError:
        told = as_json(record(exc_info=sys.exc_info(), stack_info="Stack (…)"))
    assert told["exception"].startswith("Traceback (most recent call last):\n")
    assert told["exception"].endswith("\nValueError: no mailbox")
    assert told["stack"] == "Stack (…)"


def test_extra_values_are_there() -> None:
    told = as_json(record(user=7, at=datetime(2031, 1, 1, tzinfo=UTC), cart=["a", {"b": None}]))
    assert (told["user"], told["cart"]) == (7, ["a", {"b": None}])
    assert told["at"] == "2031-01-01 00:00:00+00:00"


def test_extra_values_cannot_pretend() -> None:
    told = as_json(record(time="never", level="none", logger="x"))
    assert told["level"] == "INFO"
    assert told["logger"] == "shop"
    assert told["time"] != "never"


@pytest.mark.parametrize("odd", [float("nan"), {(1, 2): 3}, [[...]], {1, 2}, object()])
def test_odd_values_lose_no_line(odd: Any) -> None:
    if isinstance(odd, list):
        odd.append(odd)  # a circle
    told = as_json(record("hello", odd=odd))
    assert told["message"] == "hello"
    assert "odd" in told


def test_text_for_people() -> None:
    moment = datetime(2031, 5, 6, 7, 8, 9, 250_000, UTC).timestamp()
    try:
        raise ValueError("no mailbox")
    except ValueError:
        made = record(
            "hello", created=moment, queue="emails", message_id=7, exc_info=sys.exc_info()
        )
    first, *rest = logs.TextFormatter().format(made).split("\n")
    assert first == "2031-05-06T07:08:09.250Z INFO    shop: hello [queue=emails message_id=7]"
    assert rest[-1] == "ValueError: no mailbox"
    assert logs.TextFormatter().format(record()).endswith(" INFO    shop: hello")


# --- setting up ---------------------------------------------------------------------------------
def test_importing_installs_nothing() -> None:
    program = (
        "import logging, fairturn.observe.logs as l; print(logging.root.handlers, l.settings())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[] None\n"


def test_setup_replaces_its_own_handler_only() -> None:
    root = logging.getLogger()
    mine = logging.StreamHandler(io.StringIO())
    mine.setFormatter(logs.JsonFormatter())
    root.addHandler(mine)
    first = logs.setup(False, logging.WARNING)
    assert logs.settings() == (False, logging.WARNING)
    second = logs.setup(True, "debug")
    assert logs.settings() == (True, logging.DEBUG)
    assert first not in root.handlers
    assert {mine, second} <= set(root.handlers)
    assert root.level == logging.DEBUG


def test_an_unknown_level_is_refused() -> None:
    before = list(logging.getLogger().handlers)
    with pytest.raises(fairturn.InvalidArgument, match=r"no log level is called 'loud'.*WARNING"):
        logs.setup(True, "loud")
    assert logging.getLogger().handlers == before
