"""The command line on SQLite: what it prints, what --json gives, how it exits."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn.cli.app import app
from tests.unit.conftest import Fairturn, received

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cli.md"


def commands(of: Any = app, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command as its words."""
    found: list[tuple[str, ...]] = []
    for name in of:
        if name.startswith("-"):
            continue
        inner = commands(of[name], (*words, name))
        found += inner or [(*words, name)]
    return found


# --- help and documentation ---------------------------------------------------------------------


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_help_is_short_and_has_an_example(words: tuple[str, ...], cli: Fairturn) -> None:
    ran = cli(*words, "--help")
    assert ran.code == 0
    shown = "lease ack" if words == ("ack",) else " ".join(words)  # one command, two places
    assert f"Example: fairturn {shown}" in re.sub(r"\s+", " ", ran.out)
    assert "--db" in ran.out
    assert "--json" in ran.out
    assert len(ran.out.splitlines()) < 45


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_is_on_the_page(words: tuple[str, ...]) -> None:
    assert f"fairturn {' '.join(words)}" in PAGE.read_text()


def test_every_option_on_the_page_exists(cli: Fairturn) -> None:
    helps = " ".join(cli(*words, "--help").out for words in commands()) + cli("--help").out
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE.read_text())):
        assert option in helps, f"{option} is on the page, but no command has it"


def test_bare_command_shows_help(cli: Fairturn) -> None:
    ran = cli()
    assert ran.code == 0
    assert "Usage: fairturn COMMAND" in ran.out


def test_version(cli: Fairturn) -> None:
    assert cli("--version").out.strip() == fairturn.__version__


def test_without_the_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['cyclopts'] = None\nfrom fairturn.cli import main\nmain()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = " ".join(f"'{need}'" for need in project["optional-dependencies"]["cli"])
    assert f"pip install {needs}" in ran.stderr
    assert "pip install '.[cli]'" in ran.stderr


def test_python_m_fairturn(url: str) -> None:
    command = [sys.executable, "-m", "fairturn", "queue", "create", "emails", "--db", url]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "queue 'emails' created\n")


def test_the_demo_does_not_claim_the_environment(cli: Fairturn) -> None:
    text = re.sub(r"[\s│]+", " ", cli("demo", "--help").out)
    assert "never touches the database of $FAIRTURN_URL" in text
    assert "(demo: always a new file)" in text


# --- migrate ------------------------------------------------------------------------------------


def test_migrate(cli: Fairturn) -> None:
    assert "up to date" in cli("migrate").out
    assert cli("migrate", "--json").json == {"applied": []}


def test_migrate_sql_touches_no_database(cli: Fairturn, tmp_path: Path) -> None:
    ran = cli("migrate", "--sql")
    assert "CREATE TABLE" in ran.out
    names = [one["name"] for one in cli("migrate", "--sql", "--json").json]
    assert names == sorted(names)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql"])
def test_migrate_sql_of_every_dialect(dialect: str, cli: Fairturn) -> None:
    assert "CREATE TABLE" in cli("migrate", "--sql", "--dialect", dialect).out


def test_dialect_belongs_to_sql(cli: Fairturn) -> None:
    assert cli("migrate", "--dialect", "mysql").code == 2


# --- queue --------------------------------------------------------------------------------------


def test_create_takes_every_setting(cli: Fairturn) -> None:
    options = "--lease 1m --max-attempts 8 --backoff 1s:2:1h --retention 2h --dead-retention 7d"
    options += (
        " --dead-letter graves --max-body 1MiB --expires 1h30m --max-concurrency 5 --rate 9/s"
    )
    assert cli("queue", "create", "emails", *options.split(), "--json").json == {
        "queue": "emails",
        "created": True,
    }
    settings = cli("queue", "show", "emails", "--json").json
    assert settings["lease"] == 60
    assert settings["max_attempts"] == 8
    assert settings["backoff"] == {"initial": 1, "factor": 2, "maximum": 3600}
    assert settings["retention"] == 7200
    assert settings["dead_retention"] == 7 * 86400
    assert settings["dead_letter"] == "graves"
    assert settings["max_body"] == 1024**2
    assert settings["expires"] == 5400
    assert settings["max_concurrency"] == 5
    assert settings["rate"] == "9/s"
    shown = cli("queue", "show", "emails").out
    assert "graves" in shown
    assert "9/s" in shown


def test_create_twice_changes_nothing_and_says_so(emails: Fairturn) -> None:
    ran = emails("queue", "create", "emails", "--lease", "5")
    assert ran.code == 0
    assert "exists" in ran.out
    assert "fairturn queue set emails" in ran.out
    assert emails("queue", "show", "emails", "--json").json["lease"] == 30


def test_set_changes_only_what_is_named(emails: Fairturn) -> None:
    emails("queue", "set", "emails", "--max-concurrency", "3", "--rate", "5/s", "--burst", "7")
    emails("queue", "set", "emails", "--expires", "1h", "--dead-letter", "graves")
    settings = emails(
        "queue", "set", "emails", "--rate", "none", "--expires", "none", "--json"
    ).json
    assert settings["rate"] is None
    assert settings["max_concurrency"] == 3
    assert settings["burst"] == 7
    assert settings["expires"] is None
    assert settings["dead_letter"] == "graves"


def test_set_without_a_setting_is_a_usage_error(emails: Fairturn) -> None:
    ran = emails("queue", "set", "emails")
    assert ran.code == 2
    assert "nothing to set" in ran.err


def test_list(cli: Fairturn) -> None:
    cli("migrate")
    ran = cli("queue", "list")
    assert ran.out == ""
    assert "fairturn queue create" in ran.err
    cli("queue", "create", "b")
    cli("queue", "create", "a")
    cli("send", "a", "1")
    cli("queue", "pause", "b")
    rows = cli("queue", "list", "--json").json
    assert [(row["queue"], row["ready"], row["paused"]) for row in rows] == [
        ("a", 1, False),
        ("b", 0, True),
    ]
    assert "paused" in cli("queue", "list").out


def test_pause_and_resume(emails: Fairturn) -> None:
    emails("send", "emails", "1")
    assert "resume" in emails("queue", "pause", "emails").out
    assert emails("receive", "emails").out == ""
    assert "fairturn queue resume emails" in emails("explain", "emails", "1").out
    assert emails("queue", "resume", "emails").code == 0
    assert emails("receive", "emails").out


@pytest.mark.parametrize("command", ["purge", "drop"])
def test_what_destroys_needs_yes(command: str, emails: Fairturn) -> None:
    emails("send", "emails", "1")
    ran = emails("queue", command, "emails")
    assert ran.code == 2
    assert "--yes" in ran.err
    assert emails("stats", "emails", "--json").json["ready"] == 1
    assert emails("queue", command, "emails", "--yes").code == 0
    if command == "purge":
        assert emails("stats", "emails", "--json").json["ready"] == 0
    else:
        assert emails("queue", "list", "--json").json == []


def test_what_destroys_nothing_needs_no_yes(emails: Fairturn) -> None:
    assert emails("queue", "purge", "emails", "--json").json["removed"] == 0
    assert emails("dead", "drop", "emails", "--json").json["dropped"] == 0
    ran = emails("queue", "purge", "emails", "--reset")  # this takes the totals
    assert ran.code == 2
    assert "its totals" in ran.err
    assert emails("queue", "drop", "emails").code == 2


# --- send ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "body"),
    [
        ('{"a": 1}', {"a": 1}),
        ("hello", "hello"),
        ("42", 42),
        ('"42"', "42"),
        ("NaN", "NaN"),
        ("", ""),
        ("-5", -5),
        ("{broken", "{broken"),
    ],
)
def test_body_is_json_if_it_parses(typed: str, body: Any, emails: Fairturn) -> None:
    assert emails("send", "emails", typed).out == "sent 1\n"
    assert emails("peek", "emails", "--json").json[0]["body"] == body


def test_body_from_stdin_a_file_and_after_dashes(emails: Fairturn, tmp_path: Path) -> None:
    emails("send", "emails", "-", stdin=b'{"x": 2}\n')
    emails("send", "emails", stdin=b"text\n")
    (tmp_path / "body").write_text('["file"]')
    emails("send", "emails", "--file", f"{tmp_path}/body")
    emails("send", "emails", "--", "--db")
    bodies = [m["body"] for m in emails("peek", "emails", "--json").json]
    assert bodies == [{"x": 2}, "text", ["file"], "--db"]


def test_bytes(emails: Fairturn) -> None:
    assert emails("send", "emails", "-", stdin=b"\xff\x00").code == 2
    assert emails("send", "emails", "-", "--bytes", stdin=b"\xff\x00").code == 0
    assert emails("receive", "emails", "--json").json["body_base64"] == "/wA="


def test_send_options(emails: Fairturn) -> None:
    options = "--channel t7 --priority 5 --delay 5m --key k --version 2 --type mail"
    options += " --header a=b -H c=1 --max-attempts 2 --expires 1h --lease 9"
    assert emails("send", "emails", "1", *options.split()).code == 0
    [message] = emails("peek", "emails", "--json").json
    assert message["channel"] == "t7"
    assert message["priority"] == 5
    assert message["state"] == "scheduled"
    assert message["key"] == "k"
    assert message["version"] == 2
    assert message["type"] == "mail"
    assert message["headers"] == {"a": "b", "c": "1"}
    assert message["max_attempts"] == 2


def test_send_at(emails: Fairturn) -> None:
    emails("send", "emails", "1", "--at", "2040-01-31T09:00Z")
    assert emails("peek", "emails", "--json").json[0]["due_at"] == "2040-01-31T09:00:00Z"


def test_keys(emails: Fairturn) -> None:
    assert emails("send", "emails", "1", "--key", "k", "--json").json["outcome"] == "sent"
    ran = emails("send", "emails", "2", "--key", "k")
    assert ran.code == 2
    assert "--on-conflict ignore" in ran.err
    ignored = emails("send", "emails", "2", "--key", "k", "--on-conflict", "ignore")
    assert ignored.code == 0
    assert "nothing was sent" in ignored.out
    replaced = emails("send", "emails", "2", "--key", "k", "--on-conflict", "replace", "--json")
    assert replaced.json == {"id": 1, "queue": "emails", "outcome": "replaced"}


def test_lines(emails: Fairturn) -> None:
    text = b"".join(b'{"n": %d}\n' % i for i in range(2500)) + b"\n\nlast"
    ran = emails("send", "emails", "--lines", "--channel", "bulk", "--json", stdin=text)
    assert ran.json["sent"] == 2501
    assert emails("stats", "emails", "--json").json["ready"] == 2501
    assert emails("peek", "emails", "-n", "1", "--json").json[0]["body"] == {"n": 0}


def test_body_too_large(cli: Fairturn) -> None:
    cli("queue", "create", "small", "--max-body", "10")
    ran = cli("send", "small", "x" * 100)
    assert ran.code == 2
    assert "--max-body" in ran.err


# --- insight ------------------------------------------------------------------------------------


def test_stats(emails: Fairturn) -> None:
    emails("queue", "create", "other")
    emails("send", "emails", "1")
    found = emails("stats", "--json").json
    assert found["ready"] == 1
    assert found["queues"]["other"]["ready"] == 0
    assert found["queues"]["emails"]["sent"] == 1
    table = emails("stats").out.splitlines()
    assert table[0].split()[:2] == ["queue", "ready"]
    assert [line.split()[0] for line in table[1:]] == ["emails", "other", "all"]
    assert "since its creation" in emails("stats", "emails").out


def test_peek_pages(emails: Fairturn) -> None:
    emails("send", "emails", "--lines", stdin=b"1\n2\n3\n")
    ran = emails("peek", "emails", "-n", "2")
    assert len(ran.out.splitlines()) == 3
    assert "--after 2" in ran.err
    assert [m["id"] for m in emails("peek", "emails", "--after", "2", "--json").json] == [3]
    assert emails("peek", "emails", "--state", "dead").out == ""
    assert emails("peek", "emails", "--state", "wrong").code == 2


def test_explain_failures_and_trace(emails: Fairturn) -> None:
    emails("send", "emails", "1", "--key", "k")
    emails("lease", "kill", "emails", *received(emails), "no such user", "--reference", "trace-7")
    ran = emails("explain", "emails", "--key", "k")
    assert "no such user" in ran.out
    assert "fairturn dead redrive emails" in ran.out
    assert emails("explain", "emails", "1", "--json").json["state"] == "dead"
    [failure] = emails("failures", "emails", "--json").json
    assert failure["error"] == "no such user"
    assert failure["reference"] == "trace-7"
    assert "no such user" in emails("failures", "emails", "--id", "1").out
    assert [step["kind"] for step in emails("trace", "k", "--json").json] == ["message", "error"]
    assert "no such user" in emails("trace", "k").out
    assert emails("trace", "unknown").code == 1
    assert emails("explain", "emails", "99").code == 2
    assert emails("explain", "emails").code == 2


def test_dead(emails: Fairturn) -> None:
    for number in range(3):
        emails("send", "emails", number)
    for _ in range(3):
        emails("lease", "kill", "emails", *received(emails), "broken")
    assert len(emails("dead", "list", "emails", "--json").json) == 3
    assert "broken" in emails("dead", "list", "emails").out
    assert emails("dead", "redrive", "emails", "--limit", "1", "--json").json["redriven"] == 1
    assert emails("dead", "drop", "emails").code == 2
    assert emails("dead", "drop", "emails", "--yes", "--json").json["dropped"] == 2
    assert emails("dead", "list", "emails", "--json").json == []


def test_cancel_and_reschedule(emails: Fairturn) -> None:
    emails("send", "emails", "1", "--key", "k")
    assert emails("reschedule", "emails", "--key", "k", "--delay", "1h").code == 0
    assert emails("peek", "emails", "--json").json[0]["state"] == "scheduled"
    assert emails("cancel", "emails", "1").code == 0
    assert emails("cancel", "emails", "1").code == 1
    emails("send", "emails", "2")
    emails("receive", "emails")
    ran = emails("cancel", "emails", "2")
    assert ran.code == 2
    assert "--force" in ran.err
    assert emails("cancel", "emails", "2", "--force").code == 0


def test_channels_and_policies(emails: Fairturn) -> None:
    emails("send", "emails", "1", "--channel", "t7")
    policy = ("channel", "policy", "emails", "t7")
    assert emails(*policy, "--json").json["own"] is False
    ran = emails(
        *policy, "--max-concurrency", "2", "--rate", "100/min", "--burst", "5", "--ordered"
    )
    assert "at most 2 at once, 100/min burst 5, ordered" in ran.out
    own = emails(*policy, "--json").json
    assert own["own"] is True
    assert own["policy"]["rate"] == "100/min"
    [channel] = emails("channel", "list", "emails", "--json").json
    assert channel["policy"]["max_concurrency"] == 2
    assert "at most 2 at once" in emails("channel", "list", "emails").out
    assert emails(*policy, "--clear", "--json").json["changed"] is True
    assert emails(*policy, "--clear", "--json").json["changed"] is False
    assert emails("channel", "policy", "emails", "--default", "--weight", "3").code == 0
    assert emails(*policy, "--json").json["policy"]["weight"] == 3
    assert emails("channel", "policy", "emails").code == 2
    assert emails(*policy, "--clear", "--weight", "2").code == 2


def test_maintain(emails: Fairturn) -> None:
    done = emails("maintain", "--json").json
    assert done == {"activated": 0, "recovered": 0, "killed": 0, "purged": 0}
    emails("send", "emails", "--lines", stdin=b"1\n2\n3\n")
    emails("queue", "purge", "emails", "--yes")
    assert emails("maintain", "--limit", "1", "--json").json["purged"] == 3


def test_top_once(emails: Fairturn) -> None:
    emails("send", "emails", "1")
    found = emails("top", "--once", "--every", "0.1", "--json").json
    assert found["queues"]["emails"]["ready"] == 1
    assert found["queues"]["emails"]["per_second"]["sent"] == 0
    assert found["queues"]["emails"]["oldest_ready_seconds"] >= 0
    assert "emails" in emails("top", "--once", "--every", "0.1").out
