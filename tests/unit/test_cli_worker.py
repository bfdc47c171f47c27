"""``fairturn worker`` as a program, in one process: signals, logs, terminals, mistakes."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairturn
from fairturn.cli.app import run
from tests import servers
from tests.unit.conftest import Fairturn
from tests.unit.programs import APP, Home, eventually, running
from tests.unit.test_cli_program import Terminal

pytestmark = pytest.mark.programs

READY = r"worker \S+ is ready"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, f"sqlite:///{tmp_path}/jobs.db")


def test_it_works_until_sigterm(home: Home) -> None:
    with running(home) as program:
        program.until(READY)
        home.send("welcome", to="ann")
        home.until_noted("welcome ann")
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
        records = program.records()
        assert records[-1]["message"] == "stopped: 1 done, 0 failed"
        assert all({"time", "level", "logger", "message"} <= record.keys() for record in records)
        assert home.stats().acked == 1
        assert home.permits() == []


def test_what_runs_may_finish(home: Home) -> None:
    with running(home) as program:
        program.until(READY)
        home.send("patient")
        home.until_noted("patient began")
        program.signal(signal.SIGINT)
        program.until("stopping: up to 30 s")
        home.send("welcome", to="late")
        home.go()
        assert program.wait() == 0
        assert home.noted("patient ended")
        stats = home.stats()
        assert (stats.acked, stats.ready) == (1, 1)  # nothing more was claimed


def test_a_second_signal_gives_back(home: Home) -> None:
    with running(home) as program:
        program.until(READY)
        home.send("patient")
        home.until_noted("patient began")
        program.signal(signal.SIGTERM)
        program.until("stopping")
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
        stats = home.stats()
        assert (stats.ready, stats.leased, stats.failed) == (1, 0, 0)
        assert not home.noted("patient ended")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_lets_handlers_finish(number: int, home: Home) -> None:
    """A terminal signals the whole group, systemd all processes of the service."""
    with running(home) as program:
        program.until(READY)
        home.send("apart")
        home.until_noted("apart began")
        os.killpg(program.child.pid, number)
        program.until("stopping")
        home.go()
        assert program.wait() == 0
        assert home.noted("apart ended")
        assert (home.stats().acked, home.stats().failed) == (1, 0)


def test_the_grace_time(home: Home) -> None:
    with running(home, "--grace", "0s") as program:
        program.until(READY)
        home.send("patient")
        home.until_noted("patient began")
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
        assert home.stats().ready == 1


@pytest.mark.server
def test_on_postgresql_an_old_schema_ends_it(tmp_path: Path) -> None:
    home = Home(tmp_path, servers.postgres_url("cli_worker"))
    with running(home) as program:
        assert program.wait() == 1
        [error] = program.records()
        assert "fairturn migrate" in error["message"]
        assert home.url in error["message"]
    with fairturn.connect(home.url) as db:
        db.migrate()
    with running(home, "--name", "web") as program:
        program.until("worker web is ready")
        home.send("welcome", to="ann")
        home.until_noted("welcome ann")
        assert [permit.name for permit in home.permits()] == ["web"]
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
        assert home.stats().acked == 1


def test_metrics(home: Home) -> None:
    with running(home, "--metrics-port", "0") as program:
        [port] = program.until(r"metrics on http://127\.0\.0\.1:(\d+)/metrics")
        program.until(READY)
        home.send("welcome", to="ann")
        home.until_noted("welcome ann")

        def asked(path: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                return answer.read().decode()

        assert '"ready": true' in asked("/ready")
        line = r'messages_total\{queue="emails",task="welcome",outcome="acked"\} 1\n'
        eventually(lambda: re.search(line, asked("/metrics")), "the message is counted")
        home.send("patient")
        home.until_noted("patient began")
        program.signal(signal.SIGTERM)
        program.until("stopping")
        with pytest.raises(urllib.error.HTTPError) as refused:
            asked("/ready")
        assert (refused.value.code, "stopping" in refused.value.read().decode()) == (503, True)
        home.go()
        assert program.wait() == 0


def test_a_taken_metrics_port(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with running(home, "--metrics-port", str(taken.getsockname()[1])) as program:
            assert program.wait() == 1
            assert "metrics cannot be served on 127.0.0.1" in program.text


def test_an_app_with_its_own_logging_keeps_it(home: Home) -> None:
    logging = 'import logging\nlogging.basicConfig(format="mine: %(message)s", level="INFO")\n'
    home.write(logging + APP.format(url=home.url))
    with running(home) as program:
        program.until("mine: worker .* is ready")
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
        assert all(line.startswith("mine: ") for line in program.lines)


def test_text_logs_without_a_terminal(home: Home) -> None:
    with running(home, "--log", "text", "--log-level", "debug") as program:
        program.until(r"\d\d:\d\d:\d\d worker \S+ is ready")
        program.signal(signal.SIGTERM)
        assert program.wait() == 0
        assert "\x1b" not in program.text


def test_in_a_terminal(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.path)
    terminal = Terminal("worker", "shop:app", "--queue", "emails=3")
    terminal.until("fairturn worker")
    terminal.until("emails (weight 3)")
    terminal.until("is ready")
    terminal.until("working")
    home.send("welcome", to="ann")
    terminal.until("1\x1b[0m done")  # in green
    terminal.type("\x03")
    assert terminal.end() == 0
    assert "stopped: 1 done" in terminal.seen
    assert '{"time"' not in terminal.seen


# --- mistakes -------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory to import ``shop`` from, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("shop", None)


@pytest.mark.parametrize(
    ("source", "name", "code", "told"),
    [
        ("", "shopp", 2, "no module is called 'shopp', neither in "),
        ("", "shopp:app", 2, "Did you mean 'shop'?"),
        ("", "nothing.like:this", 2, "no module is called 'nothing'"),
        ("", "shop.py", 2, "'shop.py' is a file; name the module: shop:app"),
        ("", "./shop.py:jobs", 2, "name the module: shop:jobs"),
        ("", "shop:", 2, "'shop' has no 'app'. It has no App: make one with"),
        ("", ":app", 2, "write MODULE:ATTRIBUTE"),
        ("app = 7", "shop:app", 2, "shop:app is of type int, not a fairturn.App"),
        ("def app(): pass", "shop:app", 2, "shop:app is a function, not a fairturn.App"),
        ("jobs = fairturn.App('sqlite:///x.db')", "shop", 2, "Its App is shop:jobs"),
        (
            "a = fairturn.App('sqlite:///x.db')\nb = fairturn.App('sqlite:///y.db')",
            "shop:app",
            2,
            "Its Apps are shop:a, shop:b",
        ),
        ("import redis_of_mine", "shop", 1, "it imports 'redis_of_mine', which is not installed"),
        ("{}['NOT']", "shop", 1, "KeyError: 'NOT'\n    shop.py, line 2: {}['NOT']\nCorrect it;"),
        ("def (", "shop", 1, "shop.py, line 2: invalid syntax\n    def ("),
        ("raise SystemExit(3)", "shop", 1, "it ended the program (SystemExit: 3)"),
        ("app = fairturn.App('sqlite:///x.db')", "shop", 2, "the app has no tasks"),
    ],
)  # fmt: skip
def test_mistakes_in_the_app(
    source: str, name: str, code: int, told: str, here: Path, cli: Fairturn
) -> None:
    (here / "shop.py").write_text(f"import fairturn\n{source}\n")
    ran = cli("worker", name, "--log", "text")
    assert ran.code == code
    assert told in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--queue", "letters"], "no task uses queue 'letters'"),
        (["--queue", "emails=many"], "--queue 'emails=many': write emails or emails=3"),
        (["--queue", "emails", "--queue", "emails=2"], "--queue names 'emails' twice"),
        (["--queue", "emails=0"], "must be at least 1"),
        (["--reserve", "urgent=5"], "--reserve takes PRIORITY=LIMIT"),
        (["--reserve", "5"], "--reserve '5': write 0=5 10=8"),
        (["--reserve", "0=50"], "but concurrency is 10"),
        (["--concurrency", "0"], "concurrency must be at least 1"),
        (["--processes", "0"], "--processes must be at least 1"),
        (["--log-level", "loud"], "Choose from"),
    ],
)
def test_mistakes_in_the_options(options: list[str], told: str, here: Path, cli: Fairturn) -> None:
    Home(here, f"sqlite:///{here}/jobs.db")
    ran = cli("worker", "shop:app", "--log", "text", *options)
    assert ran.code == 2, ran.err
    assert told in ran.err
    assert "Traceback" not in ran.err


def test_the_apps_own_database_wins(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Home(here, "sqlite:///jobs.db")
    monkeypatch.setenv("FAIRTURN_URL", "sqlite:///elsewhere.db")
    assert run(["task", "list", "shop:app"]) == 0
    assert "--db" not in capsys.readouterr().err
    assert run(["task", "list", "shop:app", "--db", "sqlite:///elsewhere.db"]) == 0
    assert "--db is not used: the app shop:app has its own" in capsys.readouterr().err
