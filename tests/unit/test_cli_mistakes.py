"""The command line when something is wrong: what it says, how it exits, what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fairturn
from fairturn.cli.session import Session, clean, secrets, shown, sqlite_file
from tests.unit.conftest import Fairturn


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["send"], 2, "QUEUE"),
        (["sendd", "x"], 2, 'Did you mean "send"?'),
        (["stats", "--nope"], 2, "--nope"),
        (["send", "emails", "x", "--delay", "soon"], 2, "is not a duration"),
        (["send", "emails", "x", "--at", "soon"], 2, "is not a time"),
        (["send", "emails", "x", "--header", "novalue"], 2, "name=value"),
        (["send", "emails", "x", "--delay", "1", "--at", "+1m"], 2, "not both"),
        (["send", "emials", "x"], 2, "Did you mean 'emails'?"),
        (["send", "other", "x"], 2, "fairturn queue create other"),
        (["send", "emails", "x", "--file", "/nowhere/at/all"], 2, "exactly one"),
        (["send", "emails", "--file", "/nowhere/at/all"], 2, "cannot read"),
        (["stats", "--db", "bogus://x"], 2, "is not a database URL"),
        (
            ["stats", "--db", "mysql://ann:se/cret@host/db"],
            2,
            "'mysql://ann:***@host/db' is not a valid URL",
        ),
        (["relay", "emails"], 2, "fairturn relay takes no argument 'emails'"),
        (["queue", "create", ""], 2, "must not be empty"),
        (["receive", "emails", "-n", "0"], 2, "between 1"),
        (["channel", "policy", "emails", "t", "--rate", "fast"], 2, "must look like"),
        (["top", "--every", "0"], 2, "--every must be at least 0.1 s"),
        (["send", "emails"], 2, "stdin is empty"),
        (["explain", "emails"], 2, "give ID or --key, exactly one"),
        (["cancel", "emails", "1", "--key", "k"], 2, "give ID or --key, exactly one"),
        (["reschedule", "emails", "2"], 2, "give --at, --delay or --priority: there is nothing"),
        (["reschedule", "emails", "2", "--at", "+1m", "--delay", "1"], 2, "--delay or --at, not"),
        (["stats", "--db", ""], 2, "$FAIRTURN_URL"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_told_without_a_traceback(
    arguments: list[str], code: int, text: str, emails: Fairturn
) -> None:
    ran = emails(*arguments)
    assert ran.code == code
    assert ran.err.startswith("error: ")
    assert text in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_a_file_that_is_no_database(cli: Fairturn, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to be one" * 99)
    ran = cli("stats", "--db", f"sqlite:///{tmp_path}/text.db")
    assert ran.code == 1
    assert ran.err.startswith("error: ")


# --- queues that are not there ------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["queue pause", "queue drop --yes", "queue purge --yes", "stats", "peek", "dead list"],
)
def test_nobody_creates_a_queue_to_drop_it(command: str, emails: Fairturn) -> None:
    ran = emails(*command.split(), "unknown")
    assert ran.code == 2
    assert "queue create" not in ran.err
    assert "See them all: fairturn queue list" in ran.err


@pytest.mark.parametrize("command", ["send {} 1", "receive {}", "queue set {} --lease 5"])
def test_a_queue_that_may_be_meant_is_offered(command: str, emails: Fairturn) -> None:
    ran = emails(*command.format("unknown").split())
    assert ran.code == 2
    assert "fairturn queue create unknown" in ran.err


# --- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["max_concurrency", "weight", "burst", "max_size"])
@pytest.mark.parametrize("channel", ["t", "--default"])
def test_zero_is_refused_as_in_python(name: str, channel: str, emails: Fairturn, url: str) -> None:
    with fairturn.connect(url) as db, pytest.raises(fairturn.InvalidArgument) as refused:
        db.queue("emails").channel("t").set_policy(**{name: 0})
    ran = emails("channel", "policy", "emails", channel, f"--{name.replace('_', '-')}", 0)
    assert (ran.code, ran.err) == (2, f"error: {refused.value}\n")


@pytest.mark.parametrize("option", ["--max-concurrency", "--burst"])
def test_zero_is_refused_for_a_queue(option: str, emails: Fairturn) -> None:
    assert emails("queue", "set", "emails", option, 0).code == 2
    assert emails("queue", "create", "new", option, 0).code == 2
    assert [row["queue"] for row in emails("queue", "list", "--json").json] == ["emails"]


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--lease", "the default is 30s"),
        ("--max-attempts", "0 means no end, the default is 5"),
        ("--retention", "0 means not at all, the default is 0"),
        ("--failure-retention", "the default is 7d"),
        ("--max-body", "the default is 16MiB"),
        ("--burst", "the default is 1"),
    ],
)
def test_what_cannot_be_taken_away_says_so(option: str, text: str, emails: Fairturn) -> None:
    ran = emails("queue", "set", "emails", option, "none")
    assert ran.code == 2
    assert "cannot be removed" in ran.err
    assert text in ran.err


def test_a_full_channel(emails: Fairturn) -> None:
    emails("channel", "policy", "emails", "t7", "--max-size", 1)
    assert emails("send", "emails", "1", "--channel", "t7").code == 0
    ran = emails("send", "emails", "1", "--channel", "t7")
    assert ran.code == 2
    assert "fairturn channel policy emails t7 --max-size N" in ran.err
    assert "set_policy" not in ran.err


# --- databases that are not there ---------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "stats", "queue list", "queue pause q", "queue set q --lease 5", "send q 1", "receive q",
        "peek q", "doctor", "top --once", "maintain", "trace k", "channel list q", "dead list q",
    ],
)  # fmt: skip
def test_a_spelling_mistake_makes_no_database(command: str, cli: Fairturn, tmp_path: Path) -> None:
    typo = f"sqlite:///{tmp_path}/typo.db"
    ran = cli(*command.split(), "--db", typo)
    assert ran.code == 2
    assert f"{tmp_path}/typo.db of --db does not exist" in ran.err
    assert f"fairturn queue create NAME --db {typo}" in ran.err
    assert "of $FAIRTURN_URL does not exist" in cli(*command.split()).err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["queue create q", "migrate", "bench --seconds 0.05"])
def test_what_may_make_a_database(command: str, cli: Fairturn, tmp_path: Path) -> None:
    assert cli(*command.split(), "--db", f"sqlite:///{tmp_path}/new.db").code == 0
    assert (tmp_path / "new.db").exists()


def test_no_database_was_named(
    cli: Fairturn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRTURN_URL")
    ran = cli("stats")
    assert ran.code == 2
    assert "there is no fairturn.db here" in ran.err
    assert not list(tmp_path.iterdir())
    assert cli("queue", "create", "q").code == 0
    assert cli("stats").code == 0


def test_the_file_of_a_url() -> None:
    assert sqlite_file("sqlite:///a%20b.db?x=1") == Path("a b.db")
    assert sqlite_file("sqlite:////var/lib/a.db") == Path("/var/lib/a.db")
    for url in ("sqlite://", "sqlite:///:memory:", "postgresql://localhost/a"):
        assert sqlite_file(url) is None


# --- what must not be shown ---------------------------------------------------------------------


def test_a_suggested_command_has_no_stars_for_a_password() -> None:
    session = Session("postgresql://me:hush@h/d")
    assert session.command("migrate").endswith('migrate --db "$FAIRTURN_URL"')
    session = Session("postgresql://me@h/d")
    assert session.command("migrate").endswith("migrate --db postgresql://me@h/d")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush-hush@127.0.0.1:1/x",
        "postgresql://me:hush%2Dhush@127.0.0.1:1/x",
        "postgresql://me:hush@hush-hush@127.0.0.1:1/x",
        "postgresql://127.0.0.1:1/x?user=me&password=hush-hush",
        "mysql://me:hush-hush@127.0.0.1:1/x",
    ],
)
@pytest.mark.parametrize("command", [["stats"], ["doctor"], ["doctor", "--json"], ["migrate"]])
def test_no_password_is_ever_shown(url: str, command: list[str], cli: Fairturn) -> None:
    ran = cli(*command, "--db", url)
    assert ran.code == 1
    assert "hush" not in ran.out + ran.err


def test_hiding_secrets() -> None:
    assert shown("postgresql://a:p%40ss@h/d") == "postgresql://a:***@h/d"
    assert shown("postgresql://a:p@ss@h/d?sslmode=require&password=x") == (
        "postgresql://a:***@h/d?sslmode=require&password=***"
    )
    assert shown("sqlite:////tmp/a:b@c.db") == "sqlite:////tmp/a:b@c.db"
    assert secrets("postgresql://host/db") == []
    assert set(secrets("mysql://u:a%20b@h/d")) == {"a%20b", "a b"}


def test_control_characters_do_not_reach_the_terminal(emails: Fairturn) -> None:
    emails("send", "emails", "\x1b[31mred", "--channel", "a\x1b]0;title\x07", "--key", "[bold]k")
    for command in (["peek", "emails"], ["receive", "emails"], ["channel", "list", "emails"]):
        ran = emails(*command)
        assert "\x1b" not in ran.out + ran.err
        assert "\x07" not in ran.out + ran.err
    assert "[bold]k" in emails("peek", "emails").out
    assert clean("a\tb\nc\x00") == "a b\nc\\x00"


def test_a_missing_driver_says_what_to_install() -> None:
    code = "import sys; sys.modules['psycopg'] = None\nfrom fairturn.cli import main\nmain()"
    command = [sys.executable, "-c", code, "stats", "--db", "postgresql://localhost/app"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "psycopg is not installed: pip install" in ran.stderr
    assert "Traceback" not in ran.stderr
