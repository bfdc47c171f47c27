"""``fairturn task list`` and ``send``, and the workers that ``fairturn top`` shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fairturn
from tests.unit.conftest import Fairturn
from tests.unit.programs import PROGRAM, Home, running

pytestmark = pytest.mark.programs

SHOP = """
from __future__ import annotations
import fairturn

app = fairturn.App({url!r})
slowly = fairturn.Backoff(5, 3, 60)


@app.task(queue="emails", retry=fairturn.Backoff(1, max_attempts=5), channel=lambda to, **_: to)
def welcome(to: str, copies: int = 1) -> None:
    '''Say hello.

    And more.'''


@app.task(timeout=90, result=True, retry={{ValueError: None, OSError: slowly}})
async def report(context: fairturn.AsyncContext, days: list[int]) -> int:
    return len(days)


@app.task(retry=False, executor="process")
def once(name: str = "x") -> None: ...
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "shop.py").write_text(SHOP.format(url=f"sqlite:///{tmp_path}/jobs.db"))
    yield f"sqlite:///{tmp_path}/jobs.db"
    sys.modules.pop("shop").app.close()


def only(url: str, queue: str) -> fairturn.Message:
    with fairturn.connect(url) as db:
        [message] = db.queue(queue).peek(10, state=None)
        return message


# --- list -----------------------------------------------------------------------------------------


def test_list(shop: str, cli: Fairturn, tmp_path: Path) -> None:
    ran = cli("task", "list", "shop:app")
    assert ran.code == 0
    head, once, report, welcome = ran.out.splitlines()
    assert head.split("  ")[0] == "task"
    assert "once(name: str = 'x')" in once
    assert "process" in once
    assert "report(days: list[int])" in report
    assert "ValueError: no; OSError: 5 s, times 3, at most 60 s; else as the queue" in report
    assert "90 s" in report
    assert "welcome(to: str, copies: int = 1)  emails   thread" in welcome
    assert "5 attempts, 1 s, times 2, at most 60 min" in welcome
    assert welcome.endswith("Say hello.")
    assert not list(tmp_path.glob("jobs.db*"))  # no database was asked


def test_list_as_json(shop: str, cli: Fairturn) -> None:
    once, report, welcome = cli("task", "list", "shop", "--json").json
    assert once["retry"] == "no"
    assert (report["timeout"], report["result"], report["executor"]) == (90, True, "async")
    assert welcome == {
        "task": "welcome",
        "queue": "emails",
        "executor": "thread",
        "retry": "5 attempts, 1 s, times 2, at most 60 min",
        "timeout": None,
        "result": False,
        "signature": "(to: str, copies: int = 1)",
        "about": "Say hello.",
    }


def test_no_tasks(tmp_path: Path, shop: str, cli: Fairturn) -> None:
    (tmp_path / "shop.py").write_text("import fairturn\napp = fairturn.App('sqlite:///jobs.db')\n")
    assert "decorate a function with @app.task" in cli("task", "list", "shop").err


# --- send -----------------------------------------------------------------------------------------


def test_send(shop: str, cli: Fairturn) -> None:
    with fairturn.connect(shop) as db:
        db.queue("emails").create()
    ran = cli("task", "send", "shop:app", "welcome", '{"to": "ann"}')
    assert (ran.code, ran.out) == (0, "sent 1\n")
    message = only(shop, "emails")
    assert (message.body, message.type, message.channel) == ({"to": "ann"}, "welcome", "ann")
    assert (message.max_attempts, message.priority) == (5, 0)


def test_send_with_options(shop: str, cli: Fairturn) -> None:
    with fairturn.connect(shop) as db:
        db.queue("emails").create()
    options = ["--key", "k", "--channel", "vip", "--priority", "7", "--delay", "1h", "--json"]
    arguments = b'{"to": "ann", "copies": 2}'
    ran = cli("task", "send", "shop:app", "welcome", "-", *options, stdin=arguments)
    assert ran.json == {"id": 1, "task": "welcome", "queue": "emails", "outcome": "sent"}
    message = only(shop, "emails")
    assert (message.key, message.channel, message.priority) == ("k", "vip", 7)
    assert message.state == "scheduled"
    assert message.body == {"to": "ann", "copies": 2}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["welcom", "{}"], "no task is called 'welcom'. Did you mean 'welcome'?"),
        (["x"], "no task is called 'x'. The app has once, report, welcome"),
        (["welcome"], "welcome(): missing a required argument: 'to'"),
        (["welcome", '{"to": 7}'], "welcome(to): not a string: 7"),
        (["welcome", '{"too": "x", "to": "y"}'], "no argument is called 'too'"),
        (["report", '{"days": [1, "x"]}'], "report(days)[1]: not an int: 'x'"),
        (["welcome", "[1]"], "not an object of arguments by name"),
        (["welcome", "{to: 1}"], "the arguments are not JSON"),
        (["welcome", '{"to": "ann"}', "--timeout", "1"], "--timeout limits --wait"),
        (["welcome", '{"to": "ann"}', "--delay", "1", "--at", "+5m"], "delay"),
    ],
)
def test_mistakes(words: list[str], told: str, shop: str, cli: Fairturn) -> None:
    ran = cli("task", "send", "shop:app", *words)
    assert ran.code == 2, ran
    assert told in ran.err
    assert "Traceback" not in ran.err


def test_waiting_too_long(shop: str, cli: Fairturn) -> None:
    with fairturn.connect(shop) as db:
        db.queue("default").create()
    ran = cli("task", "send", "shop:app", "report", '{"days": []}', "--wait", "--timeout", "0")
    assert ran.code == 4
    assert "message 1 is not finished yet: is a worker running?" in ran.err


# --- with a worker --------------------------------------------------------------------------------


def ask(home: Home, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *words]
    return subprocess.run(command, cwd=home.path, capture_output=True, text=True, timeout=60)


def test_wait_and_top(tmp_path: Path) -> None:
    home = Home(tmp_path, f"sqlite:///{tmp_path}/jobs.db")
    with running(home, "--name", "web") as program:
        program.until("worker web is ready")
        ran = ask(home, "task", "send", "shop:app", "double", '{"n": 21}', "--wait")
        assert (ran.returncode, ran.stdout) == (0, "42\n")
        ran = ask(home, "task", "send", "shop:app", "double", '{"n": 4}', "--wait", "--json")
        told = json.loads(ran.stdout)
        assert (told["state"], told["result"], told["task"]) == ("done", 8, "double")
        ran = ask(home, "task", "send", "shop:app", "welcome", '{"to": "ann"}', "--wait")
        assert ran.returncode == 0
        assert ran.stdout.startswith("welcome is done")
        ran = ask(home, "task", "send", "shop:app", "giveup", "--wait")
        assert ran.returncode == 1
        assert "giveup is dead: never" in ran.stderr

        home.send("patient")
        home.until_noted("patient began")
        ran = ask(home, "top", "--once", "--every", "0.2", "--db", home.url)
        table = [line.split() for line in ran.stdout.splitlines()]
        assert ["1", "worker", "leases", "up", "permit", "ends"] in table
        assert any(row[:2] == ["web", "1"] for row in table)
        ran = ask(home, "top", "--once", "--every", "0.2", "--db", home.url, "--json")
        top: dict[str, Any] = json.loads(ran.stdout)
        [worker] = top["workers"]
        assert (worker["worker"], worker["leases"]) == ("web", 1)
        assert worker["age_seconds"] > 0
        assert 0 < worker["expires_in_seconds"] <= 30
        assert top["queues"]["emails"]["leased"] == 1
