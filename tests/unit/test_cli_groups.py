"""The command line and groups, debounce, progress and waiting, on SQLite."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from itertools import count
from typing import Any

import pytest

import fairturn
from fairturn.core.values import Outcome
from fairturn.sync.group import Group
from fairturn.sync.queue import Queue
from tests.unit.conftest import Fairturn, Ran, received


def opened(cli: Fairturn, *options: str) -> Ran:
    return cli("group", "send", "g", "1", "--queue", "emails", *options)


def worked(cli: Fairturn) -> None:
    assert cli("receive", "emails", "-n", 10, "--ack").code == 0


# --- groups ---------------------------------------------------------------------------------------


def test_the_life_of_a_group(emails: Fairturn) -> None:
    ran = opened(emails, "--end", '{"print": 7}')
    assert ran.out == "sent 2\n"  # 1 is the end work
    assert "fairturn group start g" in ran.err
    emails("group", "send", "g", "--lines", stdin=b"2\n3\n")  # the queue is known by now
    [one] = emails("group", "list", "--json").json
    assert (one["group"], one["queue"], one["state"], one["held"]) == ("g", "emails", "open", 3)
    assert emails("receive", "emails").out == ""
    assert "group 'g' is started: 3 waiting" in emails("group", "start", "g").out
    assert "was started already" in emails("group", "start", "g").out
    worked(emails)
    ran = emails("group", "wait", "g")
    assert (ran.code, ran.out) == (0, "group 'g' ended: 3 sent, 3 done, 0 dead\n")
    assert "no groups are open" in emails("group", "list").err
    status = emails("group", "status", "g", "--json").json
    assert (status["state"], status["sent"], status["done"]) == ("ended", 3, 3)
    end = emails("receive", "emails", "--json").json
    assert end["body"] == {"print": 7}
    assert end["headers"]["fairturn.group"]["done"] == 3
    assert end["group"] is None


def test_group_send_takes_the_options_of_send(emails: Fairturn) -> None:
    ran = opened(emails, "--key", "k", "--channel", "t7", "--priority", "3", "-H", "a=b", "--json")
    assert ran.json == {"id": 1, "queue": "emails", "outcome": "sent"}
    [message] = emails("peek", "emails", "--json").json
    assert (message["key"], message["channel"], message["priority"]) == ("k", "t7", 3)
    assert (message["group"], message["state"], message["headers"]) == ("g", "held", {"a": "b"})


def test_group_list_and_status_for_a_person(emails: Fairturn) -> None:
    opened(emails)
    heads, row = emails("group", "list").out.splitlines()
    assert " ".join(heads.split()) == "group queue state held waiting leased sent done dead age"
    assert " ".join(row.split()[:9]) == "g emails open 1 0 0 1 0 0"
    ran = emails("group", "status", "g")
    assert ran.out.splitlines()[0].split() == ["g", "open"]
    assert "fairturn group start g" in ran.err


def test_send_with_a_group_says_that_it_is_held(emails: Fairturn) -> None:
    ran = emails("send", "emails", "1", "--group", "g")
    assert (ran.out, ran.err) == (
        "sent 1\n",
        "held until the group is started: fairturn group start g\n",
    )
    emails("group", "start", "g")
    ran = emails("send", "emails", "2", "--group", "g")
    assert (ran.out, ran.err) == ("sent 2\n", "")
    assert [m["group"] for m in emails("peek", "emails", "--json").json] == ["g", "g"]


def test_what_an_open_group_has_stays(emails: Fairturn) -> None:
    opened(emails, "--end", "1")
    ran = opened(emails, "--end", "2", "--on-dead", "abort")
    assert ran.code == 0
    assert "open already: its end, abort and on-dead stay as they are" in ran.err


def test_cancel_asks_and_sends_the_abort_work(emails: Fairturn) -> None:
    opened(emails, "--abort", '"sorry"')
    ran = emails("group", "cancel", "g")
    assert ran.code == 2
    assert "cancelling group 'g' with 1 unfinished member cannot be undone" in ran.err
    assert emails("group", "cancel", "g", "--yes").out == "group 'g' is cancelled\n"
    assert emails("receive", "emails", "--json").json["body"] == "sorry"
    ran = emails("group", "wait", "g", "--json")
    assert (ran.code, ran.json["state"]) == (1, "cancelled")
    ran = emails("group", "cancel", "g", "--yes")
    assert ran.code == 1
    assert "group 'g' is closed: it was cancelled at 20" in ran.err
    assert "fairturn group send g BODY --queue QUEUE" in ran.err


def test_a_death_aborts(emails: Fairturn) -> None:
    opened(emails, "--on-dead", "abort")
    emails("group", "start", "g")
    lease = received(emails)
    assert emails("lease", "kill", "emails", *lease, "oops").code == 0
    ran = emails("group", "wait", "g")
    assert (ran.code, ran.out) == (1, "group 'g' was aborted by a death: 1 sent, 0 done, 1 dead\n")


def test_waiting_for_a_group_that_is_not_finished(emails: Fairturn) -> None:
    opened(emails)
    ran = emails("group", "wait", "g", "--timeout", 0)
    assert (ran.code, ran.out) == (4, "")
    assert "group 'g': not started, 1 held. Wait again" in ran.err
    emails("group", "start", "g")
    ran = emails("group", "wait", "g", "--timeout", 0, "--json")
    assert (ran.code, ran.json["timed_out"], ran.json["waiting"]) == (4, True, 1)


def test_who_waits_for_a_start_is_told_how(
    emails: Fairturn, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(emails)

    def interrupted(_group: Group, _timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Group, "wait", interrupted)
    ran = emails("group", "wait", "g")
    assert (ran.code, ran.err) == (130, "it is not started yet: fairturn group start g\n")


def test_a_started_empty_group_ends(emails: Fairturn) -> None:
    opened(emails)
    emails("cancel", "emails", 1)
    text = "group 'g' is started and ended: it had no unfinished members\n"
    assert emails("group", "start", "g").out == text


@pytest.mark.parametrize("command", ["status", "start", "cancel"])
def test_no_such_group(command: str, emails: Fairturn) -> None:
    ran = emails("group", command, "nowhere")
    assert ran.code == 1
    assert "no group is called 'nowhere'" in ran.err
    assert "fairturn group list" in ran.err
    emails("group", "send", "import-7", "1", "--queue", "emails")
    assert "Did you mean 'import-7'?" in emails("group", command, "import-8").err


def test_waiting_for_no_such_group(emails: Fairturn) -> None:
    ran = emails("group", "wait", "nowhere")
    assert (ran.code, ran.out) == (3, "")
    assert "no group is called 'nowhere'" in ran.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["group", "send", "g", "1"], "no group 'g' is open. Give --queue"),
        (["group", "send", "g", "1", "--queue", "other"], "fairturn queue create other"),
        (["group", "send", "g", "1", "--queue", "emails", "--on-dead", "x"], "on-dead"),
        (["group", "send", "g", "--queue", "emails"], "stdin is empty"),
        (["group", "send", "", "1", "--queue", "emails"], "must not be empty"),
        (["send", "emails", "1", "--debounce", "5"], "--debounce needs --key and --on-conf"),
        (["send", "emails", "1", "--max-wait", "5"], "--max-wait limits --debounce"),
        (["lease", "progress", "emails", "1", "1"], "such as 40%, or a --note"),
        (["lease", "progress", "emails", "1", "1", "1.5"], "is not a progress: write 0.4 or 40%"),
        (["wait", "emails"], "give ID or --key, exactly one"),
        (["wait", "emails", "1", "--key", "k"], "give ID or --key, exactly one"),
        (["wait", "unknown", "1"], "no queue is called 'unknown'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes(arguments: list[str], text: str, emails: Fairturn) -> None:
    ran = emails(*arguments)
    assert ran.code == 2
    assert text in ran.err
    assert ran.out == ""


def test_explain_a_held_message(emails: Fairturn) -> None:
    opened(emails, "--end", "1")
    assert (
        "end or abort message of a group, and is sent when that closes"
        in emails("explain", "emails", 1).out
    )
    ran = emails("explain", "emails", 2)
    assert "its group 'g' has not been started. Start it: fairturn group start g" in ran.out


# --- debounce -------------------------------------------------------------------------------------


def test_debounce(emails: Fairturn) -> None:
    options = ["--key", "k", "--on-conflict", "replace", "--debounce", "1h", "--max-wait", "90m"]
    assert emails("send", "emails", "1", *options).out == "sent 1\n"
    assert emails("send", "emails", "2", *options).out == "replaced 1\n"
    [message] = emails("peek", "emails", "--json").json
    assert (message["body"], message["state"]) == (2, "scheduled")
    ran = emails("send", "emails", "1", *options, "--delay", "1")
    assert ran.code == 2
    assert "--debounce is itself a delay: leave out --delay and --at" in ran.err


# --- progress -------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["0.4", "40%"])
def test_progress_is_shown(typed: str, emails: Fairturn) -> None:
    opened(emails)
    emails("group", "start", "g")
    printed = emails("receive", "emails").out
    assert "group g" in printed
    _, id, _, token, *_ = printed.split()  # message ID token TOKEN
    ran = emails("lease", "progress", "emails", id, token, typed, "--note", "page 7")
    assert ran.out == "message 1: 40 % page 7\n"
    [message] = emails("peek", "emails", "--json").json
    assert (message["progress"], message["note"], message["group"]) == (0.4, "page 7", "g")
    heads, row = emails("peek", "emails").out.splitlines()
    assert {"group", "progress"} <= set(heads.split())
    assert "40 % page 7" in row
    [shown] = emails("top", "--once", "--every", "0.1", "--json").json["progress"]
    assert shown == {
        "queue": "emails",
        "id": 1,
        "key": None,
        "channel": "",
        "group": "g",
        "note": "page 7",
        "progress": 0.4,
    }
    assert "40 % page 7" in emails("top", "--once", "--every", "0.1").out


def test_where_there_is_no_progress_there_is_no_column(emails: Fairturn) -> None:
    emails("send", "emails", "1")
    heads = emails("peek", "emails").out.splitlines()[0].split()
    assert not {"group", "progress"} & set(heads)
    assert emails("top", "--once", "--every", "0.1", "--json").json["progress"] == []


def test_the_progress_of_a_lost_lease(emails: Fairturn) -> None:
    ran = emails("lease", "progress", "emails", 1, 1, "1")
    assert ran.code == 1
    assert "lost" in ran.err


# --- wait -----------------------------------------------------------------------------------------


def test_wait_done(emails: Fairturn) -> None:
    emails("send", "emails", "1", "--key", "k")
    lease = received(emails)
    emails("lease", "complete", "emails", *lease, '{"rows": 3}')
    ran = emails("wait", "emails", 1)
    assert (ran.code, ran.out) == (0, 'message 1 is done\n{"rows": 3}\n')
    ran = emails("wait", "emails", "--key", "k", "--json")
    assert (ran.code, ran.json["state"], ran.json["result"]) == (0, "done", {"rows": 3})


def test_wait_dead(emails: Fairturn) -> None:
    emails("send", "emails", "1")
    lease = received(emails)
    emails("lease", "kill", "emails", *lease, "no such user")
    ran = emails("wait", "emails", 1)
    assert (ran.code, ran.out) == (1, "message 1 is dead: no such user\n")
    assert "fairturn failures emails --id 1" in ran.err
    assert emails("wait", "emails", 1, "--json").json["error"] == "no such user"


def test_wait_gone(emails: Fairturn) -> None:
    ran = emails("wait", "emails", 7)
    assert (ran.code, ran.out.startswith("message 7 is gone")) == (3, True)
    assert emails("wait", "emails", "--key", "k").out.startswith("the message is gone")
    assert emails("wait", "emails", 7, "--json").json["state"] == "gone"


def test_wait_timed_out(emails: Fairturn) -> None:
    emails("send", "emails", "1", "--key", "k")
    ran = emails("wait", "emails", "--key", "k", "--timeout", 0)
    assert (ran.code, ran.out) == (4, "")
    assert "message 1, which is ready, is not finished yet" in ran.err
    lease = received(emails)
    emails("lease", "progress", "emails", *lease, "40%")
    ran = emails("wait", "emails", 1, "--timeout", 0, "--json")
    assert (ran.code, ran.json["timed_out"], ran.json["progress"]) == (4, True, 0.4)
    assert "message 1, which is leased, 40 %, is not finished yet" in ran.err


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A message that makes progress, and what was asked for each time."""
    asked: list[dict[str, Any]] = []
    outcomes = iter(
        [
            Outcome("leased", 5, progress=0.25),
            Outcome("leased", 5, progress=0.5, note="half"),
            Outcome("done", 5, result=[1]),
        ]
    )

    def wait(_queue: Queue, **options: Any) -> Outcome:
        asked.append(options)
        return next(outcomes)

    monkeypatch.setattr(Queue, "wait", wait)
    return asked


def test_wait_partial_prints_each_change(emails: Fairturn, told: list[dict[str, Any]]) -> None:
    ran = emails("wait", "emails", "--key", "k", "--partial")
    assert ran.out.splitlines() == [
        "message 5 is leased: 25 %",
        "message 5 is leased: 50 % half",
        "message 5 is done",
        "[1]",
    ]
    assert ran.code == 0
    # After the first look by id: the key may be another message's by then.
    assert [(one["id"], one["key"]) for one in told] == [(None, "k"), (5, None), (5, None)]


def test_wait_partial_json_is_a_stream(emails: Fairturn, told: list[dict[str, Any]]) -> None:
    lines = emails("wait", "emails", 5, "--partial", "--json").out.splitlines()
    assert [json.loads(line)["progress"] for line in lines] == [0.25, 0.5, None]
    assert json.loads(lines[-1])["state"] == "done"
    assert len(told) == 3


def test_wait_in_a_process_of_its_own(emails: Fairturn, url: str) -> None:
    emails("send", "emails", "1")
    command = [sys.executable, "-m", "fairturn", "wait", "emails", "1", "--partial", "--json"]
    with (
        fairturn.connect(url) as db,
        subprocess.Popen([*command, "--db", url], stdout=subprocess.PIPE, text=True) as process,
    ):
        [message] = db.queue("emails").receive()
        assert process.stdout is not None
        for step in count(1):  # until it has had its first look, and then a change to tell
            message.progress(step / 10_000)
            if select.select([process.stdout], [], [], 0.02)[0]:
                break
        assert json.loads(process.stdout.readline())["state"] == "leased"
        message.complete("late")
        assert json.loads(process.stdout.read().splitlines()[-1])["result"] == "late"
    assert process.returncode == 0
