"""Everything that has to know the settings, policies and send options agrees with their tables.

The tables are the dataclasses Settings and Policy (core/settings.py) and Send (core/sends.py). A
line that was added there and forgotten elsewhere fails here, and the failure says where to add it.
The databases are held to the tables by test_settings_sql.py.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn import InvalidArgument, Policy, Send, testing
from fairturn.backends.sqlite.common import Queue as SqliteQueue
from fairturn.cli import show
from fairturn.cli.commands import queues
from fairturn.core.kinds import Count, Line
from fairturn.core.rows import SendRow
from fairturn.core.schedules import ScheduleStatus
from fairturn.core.sends import SCHEDULED, SEND_OPTIONS
from fairturn.core.settings import (
    POLICY_FIELDS,
    QUEUE_DEFAULTS,
    QUEUE_SETTINGS,
    PolicyRow,
    policy_row,
    policy_value,
)
from fairturn.operations import sends
from fairturn.tasks.task import TaskOptions
from tests.samples import BESIDE, sample, typed
from tests.unit.conftest import Fairturn
from tools import generate_tables

ROOT = Path(__file__).parents[2]
LINES = {
    f"{table}.{name}": line
    for table, lines in (
        ("Settings", QUEUE_SETTINGS),
        ("Policy", POLICY_FIELDS),
        ("Send", SEND_OPTIONS),
    )
    for name, line in lines.items()
}
BY_CREATE = {name: line for name, line in QUEUE_SETTINGS.items() if line.by == "create"}
BY_LIMIT = {name: line for name, line in QUEUE_SETTINGS.items() if line.by == "set_limit"}


# --- the lines themselves -----------------------------------------------------------------------
@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_line_says_what_it_is_for(line: Line) -> None:
    assert line.help
    assert "\n" not in line.help
    assert not line.help.endswith(".")  # it stands in the middle of sentences
    assert line.help[0].islower()


@pytest.mark.parametrize("name", QUEUE_SETTINGS)
def test_a_setting_is_read_as_it_was_written(name: str) -> None:
    line = QUEUE_SETTINGS[name]
    for value in (line.default, sample(line)):
        columns = dict(zip(line.columns, line.encode(value), strict=True))
        assert line.decode(columns) == value


def test_no_two_settings_share_a_column() -> None:
    columns = [column for line in QUEUE_SETTINGS.values() for column in line.columns]
    assert sorted(columns) == sorted(QUEUE_DEFAULTS)


@pytest.mark.parametrize(
    "line", [pytest.param(x, id=i) for i, x in LINES.items() if isinstance(x.kind, Count)]
)
def test_a_number_is_held_to_its_bounds(line: Line) -> None:
    assert isinstance(line.kind, Count)
    low, high = line.kind.low, line.kind.high
    assert {abs(line.encode(low)[0]), abs(line.encode(high)[0])} == {abs(low), abs(high)}
    for wrong in (low - 1, high + 1, 1.5, "7", True):
        with pytest.raises(InvalidArgument, match=line.name):
            line.encode(wrong)


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_only_what_may_be_none_is_none(line: Line) -> None:
    if line.nullable or line.name in ("policy", "meta", "headers"):
        line.encode(None)
    else:
        with pytest.raises((InvalidArgument, fairturn.InvalidName)):
            line.encode(None)


# --- Python -------------------------------------------------------------------------------------
DOORS = [fairturn.Queue, fairturn.AsyncQueue]


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword arguments of a method with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}


@pytest.mark.parametrize("door", DOORS)
def test_create_takes_every_setting(door: Any) -> None:
    assert defaults(door.create) == dict.fromkeys(BY_CREATE), (
        "add the setting to create() of aio/queue.py, None by default, hand it to "
        "queues.create(), and run make generate"
    )


@pytest.mark.parametrize("door", DOORS)
def test_set_limit_takes_every_limit(door: Any) -> None:
    assert defaults(door.set_limit) == {name: line.default for name, line in BY_LIMIT.items()}


@pytest.mark.parametrize("door", [fairturn.Channel, fairturn.AsyncChannel])
def test_set_policy_takes_every_field(door: Any) -> None:
    wanted = {name: line.default for name, line in POLICY_FIELDS.items()}
    assert defaults(door.set_policy) == wanted, "add the field to set_policy() of aio/queue.py"


@pytest.mark.parametrize("door", DOORS)
def test_send_takes_every_option(door: Any) -> None:
    wanted = {name: line.default for name, line in SEND_OPTIONS.items()}
    assert defaults(door.send) == wanted, "add the option to send() of aio/queue.py"


@pytest.mark.parametrize("door", [fairturn.Schedule, fairturn.AsyncSchedule])
def test_a_schedule_takes_every_option_of_its_messages(door: Any) -> None:
    wanted = {name: SEND_OPTIONS[name].default for name in SCHEDULED}
    given = {name: value for name, value in defaults(door.set).items() if name in SEND_OPTIONS}
    del given["at"]  # when it is due; of a message that is something else
    assert given == wanted, "add the option to set() of aio/schedule.py"
    names = {field.name for field in fields(ScheduleStatus)}
    assert set(SCHEDULED) <= names, "add the option to ScheduleStatus of core/schedules.py"


@pytest.mark.parametrize("name", QUEUE_SETTINGS)
@pytest.mark.parametrize(
    "connect", [lambda: fairturn.connect("sqlite://"), testing.memory_database]
)
def test_a_setting_that_is_given_is_stored(name: str, connect: Callable[[], Any]) -> None:
    """Through create() and set(), or the method that sets it, of SQLite and of the model."""
    line, value = QUEUE_SETTINGS[name], sample(QUEUE_SETTINGS[name])
    where = f"{name} is lost on its way from the method to the database"
    with connect() as db:
        queue = db.queue("q")
        queue.create(**({name: value} if line.by == "create" else {}))
        if line.by != "create":
            queue.set_limit(**{name: value}) if line.by == "set_limit" else queue.pause()
        assert getattr(queue.settings(), name) == value, where
        if line.by == "create":
            queue.set(**{name: line.default})
            assert queue.settings() == fairturn.Settings(
                "q", created_at=queue.settings().created_at
            )


@pytest.mark.parametrize("name", POLICY_FIELDS)
def test_a_policy_that_is_given_is_stored(name: str) -> None:
    value = sample(POLICY_FIELDS[name])
    with fairturn.connect("sqlite://") as db:
        queue = db.queue("q")
        queue.create()
        queue.channel("c").set_policy(**{name: value})
        assert [own.policy for own in queue.channels()] == [Policy(**{name: value})]


def test_the_row_of_a_policy_has_the_columns_of_its_fields() -> None:
    columns = tuple(column for line in POLICY_FIELDS.values() for column in line.columns)
    assert PolicyRow._fields == columns, "add the column to PolicyRow of core/settings.py"
    whole = Policy(**{name: sample(line) for name, line in POLICY_FIELDS.items()})
    assert policy_value(policy_row(whole)) == whole


def test_the_row_of_a_send_has_the_columns_of_its_options() -> None:
    columns = {column for line in SEND_OPTIONS.values() for column in line.columns}
    where = "add the column to SendRow of core/rows.py, with the default of the option"
    assert {*columns, "body", "json"} == set(SendRow._fields), where
    assert sends.encode(Send(b"")) == SendRow("", b"", 0), where


@pytest.mark.parametrize("name", SEND_OPTIONS)
def test_a_send_option_changes_the_row(name: str) -> None:
    line, beside = SEND_OPTIONS[name], BESIDE.get(name, {})
    given = {**beside, name: sample(line)}
    without = sends.encode(Send(1, **beside))._asdict()
    row = sends.encode(Send(1, **given))._asdict()
    changed = {column for column in row if row[column] != without[column]}
    wanted = set(line.columns) | ({"once_us"} if name == "once" else set())
    assert changed == wanted, f"hand {name} on in encode() of operations/sends.py"
    if name not in BESIDE:
        assert [row[column] for column in line.columns] == list(line.encode(sample(line)))


def test_the_options_of_tasks_have_the_defaults_of_sends() -> None:
    for field in fields(TaskOptions):
        if field.name in SEND_OPTIONS and field.name != "channel":
            assert field.default == SEND_OPTIONS[field.name].default, field.name


def test_sqlite_reads_settings_that_exist() -> None:
    names = SqliteQueue._fields
    assert set(names[names.index("name") + 1 :]) <= set(QUEUE_DEFAULTS)


# --- the command line -----------------------------------------------------------------------------
# `fairturn queue pause`, `fairturn channel policy --default`, and what is for programs.
NOT_TYPED = {"paused", "policy", "meta"}


def test_every_setting_is_an_option() -> None:
    names = {line.name for line in queues.TYPED}
    missing = QUEUE_SETTINGS.keys() - NOT_TYPED - names
    assert not missing, "add its kind to FORMS of cli/options.py, or the setting to NOT_TYPED"


@pytest.mark.parametrize("line", queues.TYPED, ids=lambda line: line.name)
def test_an_option_sets_its_setting(cli: Fairturn, line: Any) -> None:
    for command in (["queue", "create", "q"], ["queue", "set", "old"]):
        cli("queue", "create", "old")
        assert cli(*command, *typed(line)).code == 0
        facts = cli("queue", "show", command[2], "--json").json
        value = sample(line)
        if line.name == "backoff":
            value = {"initial": 2, "factor": 3, "maximum": 60}
        assert facts[line.name] == value


@pytest.mark.parametrize("line", POLICY_FIELDS.values(), ids=POLICY_FIELDS)
def test_an_option_sets_its_field_of_a_policy(emails: Fairturn, line: Any) -> None:
    assert emails("channel", "policy", "emails", "c", *typed(line)).code == 0
    [own] = emails("channel", "list", "emails", "--json").json
    assert own["policy"][line.name] == sample(line)
    whole = Policy(**{line.name: sample(line), "rate": "7/min"})
    shown = line.phrase.format(sample(line))
    assert shown in show.policy(whole), "the phrase of its line is not shown"


@pytest.mark.parametrize("name", [name for name, line in SEND_OPTIONS.items() if line.cli])
def test_an_option_sets_its_option_of_a_send(
    emails: Fairturn, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Send] = []

    def send_many(self: Any, messages: list[Send]) -> list[fairturn.Sent]:
        sent.extend(messages)
        return [fairturn.Sent(1)]

    monkeypatch.setattr(fairturn.Queue, "send_many", send_many)
    words = list(typed(SEND_OPTIONS[name]))
    for other in BESIDE.get(name, {}):
        words += typed(SEND_OPTIONS[other])
    assert emails("send", "emails", "1", *words).code == 0
    found = getattr(sent[0], name)
    found = found.timestamp() if name == "at" else found
    assert found == sample(SEND_OPTIONS[name])


def test_show_has_a_line_for_every_setting(emails: Fairturn) -> None:
    shown = emails("queue", "show", "emails").out
    for name, line in QUEUE_SETTINGS.items():
        # The limit is one line, a pause stands in the heading, and meta is for programs.
        assert line.label or line.by != "create" or name == "meta", f"{name} needs a label"
        assert line.label in shown


# --- the pages ------------------------------------------------------------------------------------
def test_pages_and_routines_are_made_from_the_lines() -> None:
    files = generate_tables.files()
    found = [name for _, text, _ in files for name in re.findall(r"-- made from: (\w+)", text)]
    assert sorted(found) == sorted(generate_tables.TABLES)
    for path, text, wanted in files:
        assert text == wanted, f"{path.name} is behind: run make generate"


def test_the_page_of_the_command_line_names_every_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    lines = [*POLICY_FIELDS.values(), *(line for line in SEND_OPTIONS.values() if line.cli)]
    for line in lines:
        assert f"{typed(line)[0]}" in text, f"docs/cli.md does not name {typed(line)[0]}"
