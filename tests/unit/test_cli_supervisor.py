"""``fairturn worker --processes`` and ``--reload``: real processes that die, change and stop."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.unit.programs import APP, Home, Program, eventually, running
from tests.unit.test_cli_program import Terminal

pytestmark = pytest.mark.programs

READY = r"process \d \(pid (\d+)\) is ready"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, f"sqlite:///{tmp_path}/jobs.db")


def stop(program: Program) -> None:
    program.signal(signal.SIGTERM)
    assert program.wait() == 0, program.text


def test_two_processes_and_one_that_is_killed(home: Home) -> None:
    with running(home, "--processes", "2", "--name", "web") as program:
        pids = program.until(READY, times=2)
        assert sorted(permit.name for permit in home.permits()) == ["web-1", "web-2"]
        os.kill(int(pids[1]), signal.SIGKILL)
        program.until(rf"process 2 \(pid {pids[1]}\) was killed by SIGKILL; replaced in 0\.1 s")
        assert len(set(program.until(READY, times=3))) == 3
        home.send("welcome", to="ann")
        home.until_noted("welcome ann")
        stop(program)
        assert program.records()[-1]["message"].startswith("stopped: 1 done")
        # The two that stopped have closed theirs; the killed one's ends by itself.
        assert len(home.permits()) <= 1


def test_a_handler_that_ends_its_process(home: Home) -> None:
    with running(home, "--processes", "2") as program:
        program.until(READY, times=2)
        home.send("leave", code=3)
        program.until(r"process \d \(pid \d+\) ended with exit code 3")
        program.until(READY, times=3)
        stop(program)


def test_a_second_signal_gives_back(home: Home) -> None:
    with running(home, "--processes", "2") as program:
        program.until(READY, times=2)
        home.send("patient")
        home.until_noted("patient began")
        program.signal(signal.SIGTERM)
        program.until("stopping; a second signal")
        stop(program)
        stats = home.stats()
        assert (stats.ready, stats.leased, stats.failed) == (1, 0, 0)


def test_what_runs_may_finish_though_all_are_signalled(home: Home) -> None:
    """As systemd does it: each process gets the signal, and again from its supervisor."""
    with running(home, "--processes", "2") as program:
        pids = program.until(READY, times=2)
        home.send("patient")
        home.until_noted("patient began")
        program.signal(signal.SIGTERM)
        program.until("stopping")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the idle one may have left already
                os.kill(int(pid), signal.SIGTERM)
        home.go()
        assert program.wait() == 0
        assert home.noted("patient ended")
        assert home.stats().acked == 1


def test_without_their_supervisor_they_stop(home: Home) -> None:
    with running(home, "--processes", "2") as program:
        program.until(READY, times=2)
        home.send("patient")
        home.until_noted("patient began")
        program.signal(signal.SIGKILL)
        program.until("the supervisor has ended: stopping", times=2)
        home.go()
        eventually(lambda: home.stats().acked == 1, "the running handler may finish")
        eventually(lambda: not home.permits(), "both have left")


def test_what_cannot_start_is_told_once(home: Home) -> None:
    home.write("def (")
    with running(home, "--processes", "3") as program:
        assert program.wait() == 1
        [error] = program.records()
        assert "shop.py, line 1: invalid syntax" in error["message"]


def test_metrics_of_all(home: Home) -> None:
    with running(home, "--processes", "2", "--metrics-port", "0") as program:
        [port] = program.until(r"metrics on http://127\.0\.0\.1:(\d+)/metrics")
        pids = program.until(READY, times=2)

        def asked(path: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                return answer.read().decode()

        def counted(metric: str) -> float:
            found = re.search(rf"^{re.escape(metric)} (\S+)$", asked("/metrics"), re.MULTILINE)
            return float(found[1]) if found else 0

        done = 'fairturn_worker_messages_total{queue="emails",task="double",outcome="completed"}'
        assert counted("fairturn_worker_processes") == 2
        assert '"ready": true' in asked("/ready")
        for n in range(10):
            home.send("double", n=n)
        eventually(lambda: counted(done) == 10, "ten are counted")
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)
        program.until(READY, times=4)
        assert counted(done) == 10  # a counter never goes down
        stop(program)


# --- reload ---------------------------------------------------------------------------------------


def test_a_change_restarts(home: Home) -> None:
    source = APP.format(url=home.url)
    with running(home, "--reload") as program:
        program.until(READY)
        home.send("welcome", to="ann")
        home.until_noted("welcome ann from version 1")
        home.write(source.replace("VERSION = 1", "VERSION = 2"))
        program.until(r"shop\.py changed: restarting")
        program.until(READY, times=2)
        home.send("welcome", to="bob")
        home.until_noted("welcome bob from version 2")
        home.write("def (")
        program.until("invalid syntax")
        program.until("waiting for a changed file")
        home.write(source.replace("VERSION = 1", "VERSION = 3"))
        program.until(READY, times=3)
        home.send("welcome", to="cleo")
        home.until_noted("welcome cleo from version 3")
        stop(program)


def test_an_app_that_is_broken_at_first(home: Home) -> None:
    home.write("import nothing_of_this_name")
    with running(home, "--reload", "--processes", "2") as program:
        program.until("it imports 'nothing_of_this_name'")
        program.until("waiting for a changed file")
        home.write(APP.format(url=home.url))
        program.until(READY, times=2)
        stop(program)


def test_it_may_be_stopped_while_it_waits(home: Home) -> None:
    home.write("def (")
    with running(home, "--reload") as program:
        program.until("waiting for a changed file")
        stop(program)


def test_in_a_terminal(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    source = APP.format(url=home.url).replace("note(f", "print(f")
    home.write(source)
    monkeypatch.chdir(home.path)
    terminal = Terminal("worker", "shop:app", "--processes", "2", "--reload")
    terminal.until("10 at once in each of 2 processes")
    terminal.until("2 of 2 processes")
    home.send("welcome", to="ann")
    terminal.until("welcome ann from version 1")  # printed by a handler
    old = {permit.id for permit in home.permits()}
    home.write(source.replace("VERSION = 1", "VERSION = 2"))
    terminal.until("shop.py changed: restarting")
    eventually(lambda: not old & {permit.id for permit in home.permits()}, "the old ones leave")
    home.send("welcome", to="bob")
    terminal.until("welcome bob from version 2")
    terminal.type("\x03")
    assert terminal.end() == 0
    assert "stopped: 2 done" in terminal.seen


def test_a_print_without_a_supervisor_in_a_terminal(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads what its processes print; when it is gone, a handler's print() must not fail."""
    loud = 'print("x" * 1_000_000, flush=True)\n    note("patient ended")'
    home.write(APP.format(url=home.url).replace('note("patient ended")', loud))
    monkeypatch.chdir(home.path)
    terminal = Terminal("worker", "shop:app", "--processes", "2")
    terminal.until("2 of 2 processes")
    home.send("patient")
    home.until_noted("patient began")
    terminal.child.kill()
    assert terminal.end() == -signal.SIGKILL
    eventually(lambda: len(home.permits()) == 1, "the idle one has left")
    home.go()
    eventually(lambda: home.stats().acked == 1, "the other may finish")
    assert home.stats().failed == 0
    eventually(lambda: not home.permits(), "and leaves")
