"""``fairturn events`` and the setting that switches them on, on SQLite."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from fairturn.cli.session import Session
from fairturn.execution.sync.waker import Ticket
from tests.unit.conftest import Fairturn, Ran, received


@pytest.fixture
def told(cli: Fairturn) -> Fairturn:
    """A queue that writes events, and some of them: created, leased, progress, deleted."""
    assert cli("queue", "create", "emails", "--events").code == 0
    cli("send", "emails", "1", "--key", "k", "--channel", "t7", "--expires", "1h")
    lease = received(cli)
    cli("lease", "progress", "emails", *lease, "40%", "--note", "half")
    cli("ack", "emails", *lease)
    return cli


def kinds(ran: Ran) -> list[str]:
    return [json.loads(line)["kind"] for line in ran.out.splitlines()]


def cursor(ran: Ran) -> str:
    """As a script takes it."""
    last = ran.err.splitlines()[-1]
    assert last.startswith("cursor: ")
    return last.removeprefix("cursor: ")


def test_one_line_per_event(told: Fairturn) -> None:
    ran = told("events", "--no-follow")
    assert ran.code == 0
    shown = [
        re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  ", "", x) for x in ran.out.splitlines()
    ]
    assert shown == [
        "created   emails  1  key k  channel t7",
        'leased    emails  1  key k  channel t7  {"attempts": 1, "deliveries": 1}',
        'progress  emails  1  key k  channel t7  {"progress": 0.4, "note": "half"}',
        "deleted   emails  1  key k  channel t7",
    ]


def test_json(told: Fairturn) -> None:
    ran = told("events", "--no-follow", "--json")
    assert kinds(ran) == ["created", "leased", "progress", "deleted"]
    first = json.loads(ran.out.splitlines()[0])
    assert first.pop("at").endswith("Z")
    assert first.pop("cursor")
    assert first == {
        "kind": "created",
        "queue": "emails",
        "id": 1,
        "key": "k",
        "channel": "t7",
        "delay": 0,
        "data": {},
    }


def test_a_delay_is_told(told: Fairturn) -> None:
    after = cursor(told("events", "--no-follow"))
    told("send", "emails", "2", "--delay", "5m")
    assert told("events", "--no-follow", "--after", after).out.rstrip().endswith("in 5 min")


def test_resume_from_the_cursor(told: Fairturn) -> None:
    before = told("events", "--no-follow", "--json")
    after = cursor(before)
    assert told("events", "--no-follow", "--after", after).out == ""
    told("send", "emails", "2")
    ran = told("events", "--no-follow", "--after", after, "--json")
    assert kinds(ran) == ["created"]
    assert cursor(ran) != after
    # Each line has its own cursor too, and `start` is the beginning.
    second = json.loads(before.out.splitlines()[1])["cursor"]
    assert kinds(told("events", "--no-follow", "--after", second, "--json"))[0] == "progress"
    assert len(kinds(told("events", "--no-follow", "--after", "start", "--json"))) == 5


def test_the_cursor_of_now(told: Fairturn) -> None:
    ran = told("events", "--no-follow", "--after", "now")
    assert ran.out == ""
    told("send", "emails", "2")
    assert kinds(told("events", "--no-follow", "--after", cursor(ran), "--json")) == ["created"]


def test_of_some_kinds_and_of_one_queue(told: Fairturn) -> None:
    told("queue", "create", "other", "--events")
    told("send", "other", "1")
    assert kinds(told("events", "--no-follow", "--queue", "other", "--json")) == ["created"]
    ran = told("events", "--no-follow", "--kind", "leased", "deleted", "--json")
    assert kinds(ran) == ["leased", "deleted"]
    ran = told("events", "--no-follow", "--kind", "leased", "--kind", "progress", "--json")
    assert kinds(ran) == ["leased", "progress"]


def test_a_group_that_closed(told: Fairturn) -> None:
    told("group", "send", "g", "1", "--queue", "emails")
    told("group", "cancel", "g", "--yes")
    ran = told("events", "--no-follow", "--kind", "closed")
    assert '"outcome": "cancelled"' in ran.out
    assert "None" not in ran.out


def test_nobody_has_switched_events_on(emails: Fairturn) -> None:
    ran = emails("events", "--no-follow")
    assert "no queue writes events. Switch them on: fairturn queue set emails --events" in ran.err
    ran = emails("events", "--no-follow", "--queue", "emails")
    assert "queue 'emails' writes no events" in ran.err
    assert ran.code == 0


def test_the_setting(cli: Fairturn) -> None:
    def on() -> bool:
        return cli("queue", "show", "emails", "--json").json["events"]

    cli("queue", "create", "emails")
    assert not on()
    assert re.search(r"writes events +no", cli("queue", "show", "emails").out)
    cli("queue", "set", "emails", "--events")
    assert on()
    cli("queue", "set", "emails", "--lease", "5")
    assert on()
    assert re.search(r"writes events +yes", cli("queue", "show", "emails").out)
    cli("queue", "set", "emails", "--no-events")
    assert not on()
    cli("queue", "create", "silent", "--no-events")
    assert not cli("queue", "show", "silent", "--json").json["events"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--queue", "unknown"], "no queue is called 'unknown'"),
        (["--kind", "nope"], "nope"),
        (["--after", "nonsense"], "is no cursor"),
    ],
)
def test_mistakes(arguments: list[str], text: str, told: Fairturn) -> None:
    ran = told("events", "--no-follow", *arguments)
    assert ran.code == 2
    assert text in ran.err
    assert "cursor: " not in ran.err


def test_ctrl_c_while_it_sleeps(told: Fairturn, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(_ticket: Ticket, _seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Ticket, "wait", pressed)
    ran = told("events", "--after", "start", "--json")
    assert ran.code == 0
    assert len(kinds(ran)) == 4
    assert told("events", "--no-follow", "--after", cursor(ran)).out == ""


def test_what_was_not_printed_comes_again(told: Fairturn, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = Session.emit_line, iter([True, True])

    def emit_line(session: Session, value: Any) -> None:
        if not next(left, False):
            raise KeyboardInterrupt
        real(session, value)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "emit_line", emit_line)
        ran = told("events", "--no-follow", "--json")
    assert (ran.code, kinds(ran)) == (0, ["created", "leased"])
    ran = told("events", "--no-follow", "--json", "--after", cursor(ran))
    assert kinds(ran) == ["progress", "deleted"]


def test_follow_in_a_process_of_its_own(cli: Fairturn, url: str) -> None:
    """It prints each event as it comes, and a real Ctrl-C ends it with 0."""
    cli("queue", "create", "emails", "--events")
    cli("send", "emails", "0")
    command = [sys.executable, "-m", "fairturn", "events", "--after", "start", "--json"]
    with subprocess.Popen(
        [*command, "--db", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background inherit an ignored Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["id"] == 1  # it is there, and follows
        for number in (2, 3):
            cli("send", "emails", number)
            assert json.loads(process.stdout.readline())["id"] == number
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
        said = process.stderr.read()
    assert process.returncode == 0
    assert re.fullmatch(r"cursor: \S+\n", said)
