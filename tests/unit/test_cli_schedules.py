"""The command line and schedules, on SQLite."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import fairturn
from tests.unit.conftest import Fairturn

NIGHTLY = ("--queue", "emails", "--cron", "0 3 * * *", "--timezone", "Europe/Rome")


def test_the_life_of_a_schedule(emails: Fairturn, url: str) -> None:
    ran = emails("schedule", "add", "digest", '{"to": "all"}', "--queue", "emails", "--every", "5m")
    assert ran.code == 0
    assert ran.out.startswith("schedule 'digest' added: every 5 min; next 20")
    again = emails("schedule", "add", "digest", "2", "--queue", "emails", "--every", "5m")
    assert again.out.startswith("schedule 'digest' set: every 5 min")
    [one] = emails("schedule", "list", "--json").json
    assert (one["schedule"], one["queue"], one["every"], one["body"]) == (
        "digest",
        "emails",
        300,
        2,
    )
    listed = emails("schedule", "list").out
    assert listed.splitlines()[0].split() == ["schedule", "queue", "when", "next", "last", "state"]
    assert "every 5 min" in listed
    assert emails("schedule", "pause", "digest").out == "schedule 'digest' is paused\n"
    assert "paused" in emails("schedule", "list").out
    ran = emails("schedule", "next", "digest")
    assert (ran.out, "fairturn schedule resume digest" in ran.err) == ("", True)
    assert "set: every 5 min; next when it is resumed" in (
        emails("schedule", "add", "digest", "3", "--queue", "emails", "--every", "5m").out
    )
    assert emails("schedule", "resume", "digest").out.startswith(
        "schedule 'digest' goes on; next 20"
    )
    assert emails("schedule", "trigger", "digest").out == "sent 1\n"
    assert emails("schedule", "trigger", "digest").out == "replaced 1\n"
    assert emails("receive", "emails", "--json").json["body"] == 3
    ran = emails("schedule", "trigger", "digest", "--json")
    assert ran.json == {"schedule": "digest", "id": 1, "outcome": "refused"}
    assert "removed: every 5 min" in emails("schedule", "remove", "digest").out
    assert "no schedules yet" in emails("schedule", "list").err


def test_show_tells_everything(emails: Fairturn) -> None:
    options = ("--channel", "t7", "--priority", "3", "-H", "a=b", "--lease", "5m", "--type", "mail")
    ran = emails("schedule", "add", "nightly", '"x"', *NIGHTLY, *options, "--json")
    assert ran.json["created"] is True
    found = emails("schedule", "show", "nightly", "--json").json
    assert (found["cron"], found["timezone"], found["missed"]) == (
        "0 3 * * *",
        "Europe/Rome",
        "once",
    )
    assert (found["channel"], found["priority"], found["lease"]) == ("t7", 3, 300)
    assert (found["headers"], found["type"], found["body"]) == ({"a": "b"}, "mail", "x")
    lines = dict(
        line.split(maxsplit=1)
        for line in emails("schedule", "show", "nightly").out.splitlines()
        if len(line.split()) > 1
    )
    assert lines["when"] == "0 3 * * * (Europe/Rome)"
    assert lines["headers"] == '{"a": "b"}'


def test_next_is_in_the_time_zone_of_the_schedule(emails: Fairturn) -> None:
    emails("schedule", "add", "nightly", *NIGHTLY)
    lines = emails("schedule", "next", "nightly", "-n", 3).out.splitlines()
    assert len(lines) == 3
    assert all(" 03:00:00 CE" in line and " in " in line for line in lines)
    ticks = emails("schedule", "next", "nightly", "--json").json
    assert len(ticks) == 5
    assert all(tick[11:19] == "03:00:00" for tick in ticks)


def test_a_single_time_and_where_bodies_come_from(
    emails: Fairturn, url: str, tmp_path: Path
) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"\xff\0")
    once = ("--queue", "emails", "--at", "2000-01-01T00:00Z")
    assert emails("schedule", "add", "none", *once).code == 0
    assert emails("schedule", "add", "stdin", "-", *once, stdin=b'{"a": 1}\n').code == 0
    assert emails("schedule", "add", "file", *once, "--file", file, "--bytes").code == 0
    assert emails("schedule", "add", "both", "1", *once, "--file", file).code == 2
    with fairturn.connect(url) as db:
        assert db.run_schedules().sent == 3
        bodies = {message.key: message.body for message in db.queue("emails").peek()}
    assert bodies == {
        "schedule:none": None,
        "schedule:stdin": {"a": 1},
        "schedule:file": b"\xff\0",
    }
    assert emails("schedule", "show", "file", "--json").json["body_base64"] == "/wA="
    assert "finished" in emails("schedule", "list").out
    assert "its only due time is over" in emails("schedule", "next", "none").err


def test_an_error_of_a_schedule_is_shown(emails: Fairturn, url: str) -> None:
    emails("schedule", "add", "lost", "--queue", "emails", "--at", "2000-01-01T00:00Z")
    emails("queue", "drop", "emails", "--yes")
    with fairturn.connect(url) as db:
        assert len(db.run_schedules().errors) == 1
    assert "no queue is called 'emails'" in emails("schedule", "list").out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("show", "nightyl"), "Did you mean 'nightly'?"),
        (("pause", "zzz"), "fairturn schedule list"),
        (("resume", "zzz"), "no schedule is called 'zzz'"),
        (("remove", "zzz"), "no schedule is called 'zzz'"),
        (("trigger", "zzz"), "no schedule is called 'zzz'"),
        (("next", "zzz"), "no schedule is called 'zzz'"),
        (("add", "x", "--queue", "emails"), "--cron, --every or --at, exactly one"),
        (("add", "x", "--queue", "nope", "--every", "5"), "fairturn queue create nope"),
        (("add", "x", "--queue", "emails", "--cron", "x"), "not a cron expression"),
        (("add", "x", "--queue", "emails", "--every", "x"), "not a duration"),
        (("add", "x", "--queue", "emails", "--every", "5", "-H", "x"), "not a header"),
        (
            ("add", "x", "--queue", "emails", "--every", "5", "--missed", "backfill"),
            '--overlap "allow"',
        ),
    ],
)
def test_mistakes(emails: Fairturn, words: tuple[str, ...], error: str) -> None:
    emails("schedule", "add", "nightly", *NIGHTLY)
    ran = emails("schedule", *words)
    assert ran.code == 2
    assert error in ran.err
    assert ran.out == ""


def test_without_cronsim_it_says_what_to_install(
    emails: Fairturn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    ran = emails("schedule", "add", "nightly", *NIGHTLY)
    assert (ran.code, "pip install 'cronsim" in ran.err) == (1, True)
    assert json.loads(emails("schedule", "list", "--json").out) == []
