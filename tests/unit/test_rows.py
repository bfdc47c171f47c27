"""The rows of core/rows.py fit each other, and a message reads them."""

from __future__ import annotations

import pickle

import pytest

from fairturn.core.errors import UsageError
from fairturn.core.message import Message
from fairturn.core.rows import (
    ChannelRow,
    HistoryRow,
    LeaseRow,
    MessageRow,
    PeekRow,
    SendRow,
    StatsRow,
    message_row,
    send_row,
)
from fairturn.core.values import COUNTERS, STATES

LEASED = MessageRow(*range(len(MessageRow._fields)))
ADDED = (
    "state",
    "result",
    "error",
    "finished_at",
    "expires_at",
    "max_attempts",
    "progress",
    "note",
)


def test_a_peeked_row_begins_like_a_leased_one() -> None:
    assert PeekRow._fields == (*MessageRow._fields, *ADDED)


@pytest.mark.parametrize("row", [LEASED, LeaseRow(1, 1)], ids=["leased", "by its numbers"])
def test_what_only_a_peek_reads_has_a_value_in_the_others(row: MessageRow | LeaseRow) -> None:
    assert STATES[row.state] == "leased"
    assert {getattr(row, name) for name in ADDED if name != "state"} == {None}


def test_counts_stand_in_the_order_of_the_counters() -> None:
    assert HistoryRow._fields == ("minute", *COUNTERS)
    first = StatsRow._fields.index(COUNTERS[0])
    assert StatsRow._fields[first : first + len(COUNTERS)] == COUNTERS


def test_rows_by_the_thousand_are_the_same_rows() -> None:
    assert type(message_row(LEASED)) is MessageRow
    assert message_row(tuple(LEASED)) == LEASED
    assert send_row(("c", b"x", 0, *SendRow("c", b"x", 0)[3:])) == SendRow("c", b"x", 0)


def test_a_send_joins_a_group_and_keeps_the_rest() -> None:
    row = SendRow(*range(len(SendRow._fields)))
    member = row.of_group("g")
    assert type(member) is SendRow
    assert member == row._replace(group="g")


def test_a_channel_without_a_policy_has_none() -> None:
    assert ChannelRow.of(["c", 1, 2, 3, *[None] * 8]) == ("c", 1, 2, 3, None)
    own = (None, None, None, 1, 1, 0, 0, None)
    assert ChannelRow.of(["c", 1, 2, 3, *own]).policy == own


def test_a_lease_by_its_numbers_knows_nothing_else() -> None:
    unread = [name for name in MessageRow._fields if name not in ("id", "token")]
    for name in unread:
        with pytest.raises(UsageError, match="message 7 was not read"):
            getattr(LeaseRow(7, 2), name)
    assert LeaseRow(7, 2, 99).lease_until == 99
    with pytest.raises(AttributeError):
        LeaseRow(7, 2).nothing  # noqa: B018


def test_a_lease_by_its_numbers_survives_pickling() -> None:
    copied = pickle.loads(pickle.dumps(Message("q", LeaseRow(7, 2))))
    assert (copied.id, copied.token, copied.queue) == (7, 2, "q")
    with pytest.raises(UsageError):
        copied.body  # noqa: B018
