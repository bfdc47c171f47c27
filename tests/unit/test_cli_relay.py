"""``fairturn relay …`` on the command line; what a relay does is in tests/relay."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

import fairturn
from tests.server.serve_programs import Program, program
from tests.unit.conftest import Fairturn
from tests.unit.programs import Home, eventually, running

pytestmark = pytest.mark.programs


@pytest.fixture
def there(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/there.db"
    with fairturn.connect(url) as db:
        db.queue("in").create()
    return url


def bodies(url: str) -> list[object]:
    with fairturn.connect(url) as db:
        return [message.body for message in db.queue("in").peek(1000)]


def arrived(url: str, *expected: object) -> None:
    eventually(lambda: bodies(url) == list(expected), f"{expected} at {url}")


# --- where they go --------------------------------------------------------------------------------
def test_set_makes_a_queue_that_gives_nothing_up(cli: Fairturn, url: str, there: str) -> None:
    ran = cli("relay", "set", "orders", f"{there}#in")
    assert ran.code == 0
    assert "was made" in ran.out
    with fairturn.connect(url) as db:
        settings = db.queue("orders").settings()
    assert settings.meta == {"destination": f"{there}#in"}
    assert settings.max_attempts == 0


def test_set_keeps_what_else_a_queue_has(emails: Fairturn, url: str, there: str) -> None:
    with fairturn.connect(url) as db:
        db.queue("emails").set(meta={"mine": 1}, max_attempts=7)
        assert emails("relay", "set", "emails", f"{there}#in").code == 0
        settings = db.queue("emails").settings()
        assert settings.meta == {"mine": 1, "destination": f"{there}#in"}
        assert settings.max_attempts == 7
        assert emails("relay", "unset", "emails").code == 0
        assert db.queue("emails").settings().meta == {"mine": 1}
    again = emails("relay", "unset", "emails")
    assert (again.code, "has no destination" in again.err) == (1, True)


def test_set_refuses_what_is_no_address_and_shows_no_password(cli: Fairturn) -> None:
    ran = cli("relay", "set", "orders", "postgresql://u:geheim@host/db")
    assert ran.code == 2
    assert "names no queue: write it after a #" in ran.err
    assert "geheim" not in ran.err
    ran = cli("relay", "set", "orders", "amqp://u:geheim@host/")
    assert ran.code == 0
    assert "geheim" not in ran.out + cli("relay", "status").out
    assert "amqp://u:***@host/" in cli("queue", "show", "orders").out


def test_status(emails: Fairturn, there: str) -> None:
    assert "no queue has a destination yet" in emails("relay", "status").err
    emails("relay", "set", "emails", f"{there}#in")
    emails("send", "emails", "1")
    emails("send", "emails", "2", "--delay", "1h")
    told = emails("relay", "status", "--json").json
    assert told["relays"] == []
    (row,) = told["queues"]
    assert (row["queue"], row["destination"]) == ("emails", f"{there}#in")
    assert (row["ready"], row["later"], row["trouble"]) == (1, 1, None)
    ran = emails("relay", "status")
    assert "emails" in ran.out
    assert "no relay is running. Start one: fairturn relay" in ran.err


def test_a_queue_without_a_destination_is_a_mistake(emails: Fairturn) -> None:
    ran = emails("relay", "run", "--queue", "emails")
    assert ran.code == 2
    assert "relay set emails ADDRESS" in ran.err


def test_a_queue_that_is_not_there_is_named(emails: Fairturn) -> None:
    ran = emails("relay", "--queue", "email")
    assert ran.code == 2
    assert "no queue is called 'email'. Did you mean 'emails'?" in ran.err


def test_no_queue_goes_to_itself(emails: Fairturn, url: str, there: str) -> None:
    ran = emails("relay", "set", "emails", f"{url}#emails")
    assert ran.code == 2
    assert "is the queue itself: name another one" in ran.err
    for other in (f"{url}#others", f"{there}#emails", "postgresql://host/db#emails"):
        assert emails("relay", "set", "emails", other).code == 0


# --- as a program ---------------------------------------------------------------------------------
def test_it_relays_until_sigterm(cli: Fairturn, url: str, there: str) -> None:
    cli("relay", "set", "orders", f"{there}#in")
    cli("send", "orders", '{"n": 1}')
    with program("relay", "--db", url) as relay:
        arrived(there, {"n": 1})
        relay.signal(signal.SIGTERM)
        assert relay.end() == 0
        last = relay.logged()[-1]["message"]
    assert last == "stopped: 1 handed over, 0 turned away for later, 0 dead"


def test_trouble_is_said_once_and_shown(cli: Fairturn, url: str, there: str) -> None:
    cli("relay", "set", "orders", f"{there}#nowhere")
    cli("send", "orders", "1")
    with program("relay", "--db", url) as relay:
        relay.until("is down for queue orders")
        told = cli("relay", "status", "--json").json
        assert told["relays"] == [f"{socket.gethostname()}:{relay.process.pid}"]
        assert f"1 relay running: {told['relays'][0]}" in cli("relay", "status").err
        (row,) = told["queues"]
        assert "fairturn queue create" in row["trouble"]
        assert 0 <= row["trouble_seconds"] < 60
        with fairturn.connect(there) as db:
            db.queue("nowhere").create()
        relay.until("is back for queue orders")
        assert relay.err.count("is down for queue orders") == 1
        relay.signal(signal.SIGTERM)
        assert relay.end() == 0
    told = cli("relay", "status", "--json").json
    assert (told["relays"], told["queues"][0]["trouble"]) == ([], None)


def test_without_a_destination_it_waits_for_one(emails: Fairturn, url: str, there: str) -> None:
    with program("relay", "--db", url) as relay:
        relay.until("no queue has a destination yet")
        emails("send", "emails", "7")
        emails("relay", "set", "emails", f"{there}#in")
        arrived(there, 7)
        _ended(relay)


def _ended(relay: Program) -> None:
    relay.signal(signal.SIGINT)
    assert relay.end() == 0


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_worker_relays_too(tmp_path: Path, there: str, processes: str) -> None:
    home = Home(tmp_path, f"sqlite:///{tmp_path}/jobs.db")
    with fairturn.connect(home.url) as db:
        db.queue("out").create(meta={"destination": f"{there}#in"})
        db.queue("out").send("by a worker")
    with running(home, "--relay", "--processes", processes) as worker:
        arrived(there, "by a worker")
        home.send("welcome", to="ann")
        home.until_noted("welcome ann")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
