"""core/check.py: names, numbers, durations, moments, rates, payloads."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairturn
from fairturn import InvalidArgument, InvalidBody, InvalidName, Sent
from fairturn.core import check, limits
from fairturn.core.values import EPOCH

# --- names --------------------------------------------------------------------------------------

GOOD_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(GOOD_TEXT)
def test_a_name_is_good_by_its_bytes(text):
    size = len(text.encode())
    if 0 < size <= limits.NAME_BYTES:
        assert check.name(text, "key") is text
    else:
        with pytest.raises(InvalidName):
            check.name(text, "key")


@given(st.text())
def test_a_name_never_raises_anything_else(text):
    if "\0" in text or not text or len(text.encode("utf-8", "surrogatepass")) > limits.NAME_BYTES:
        with pytest.raises(InvalidName, match="key"):
            check.name(text, "key")


@pytest.mark.parametrize("size", [1, 254, 255])
def test_names_up_to_the_limit(size):
    assert check.name("x" * size, "queue")


@pytest.mark.parametrize(
    "value",
    ["", "x" * 256, "é" * 128, "\U0001f9f5" * 64, "a\0", "\ud800", "a\udfff", 5, None, b"x"],
)
def test_names_that_no_backend_can_hold(value):
    with pytest.raises(InvalidName, match="thing"):
        check.name(value, "thing")


def test_only_a_channel_may_be_empty():
    assert check.name("", "channel", empty=True) == ""
    assert check.optional_name(None, "key") is None
    with pytest.raises(InvalidName):
        check.optional_name("", "key")


class Text(str):
    __slots__ = ()


def test_a_subclass_of_str_is_a_name():
    assert check.name(Text("x"), "key") == "x"


# --- integers -----------------------------------------------------------------------------------


@given(st.integers(-5, 5))
def test_integers_in_their_range(n):
    if -2 <= n <= 2:
        assert check.integer(n, "n", -2, 2) == n
    else:
        with pytest.raises(InvalidArgument):
            check.integer(n, "n", -2, 2)


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, b"1", 1j])
def test_what_is_no_integer(value):
    with pytest.raises(InvalidArgument):
        check.integer(value, "n", 0, 10)


def test_a_Sent_is_an_integer_and_comes_out_plain():
    value = check.integer(Sent(7), "id", 0, 10)
    assert value == 7
    assert type(value) is int


# --- durations ----------------------------------------------------------------------------------


@given(st.integers(0, limits.DURATION_MAX // limits.SECOND))
def test_whole_seconds_are_exact(seconds):
    assert check.microseconds(seconds, "delay") == seconds * limits.SECOND


@given(st.integers(0, limits.DURATION_MAX))
def test_a_timedelta_is_exact(us):
    assert check.microseconds(timedelta(microseconds=us), "delay") == us


@given(st.floats(0, 1e9))
def test_a_float_is_within_half_a_microsecond(seconds):
    us = check.microseconds(seconds, "delay")
    assert abs(us - seconds * 1e6) <= max(0.5, math.ulp(seconds * 1e6))


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -1e-6,
        timedelta(microseconds=-1),
        float("nan"),
        float("inf"),
        float("-inf"),
        True,
        "5",
        None,
        [5],
        1e300,
        1.7e308,
        101 * 366 * 86_400,
        timedelta(days=40_000),
        10**400,
    ],
)
def test_what_is_no_duration(value):
    with pytest.raises(InvalidArgument, match="delay"):
        check.microseconds(value, "delay")


def test_a_tiny_negative_float_is_nothing():
    assert check.microseconds(-1e-9, "delay") == 0


# --- moments ------------------------------------------------------------------------------------


@given(
    st.datetimes(
        min_value=datetime(1970, 1, 1),
        max_value=datetime(9999, 12, 30),
        timezones=st.sampled_from(
            [UTC, timezone(timedelta(hours=-11)), timezone(timedelta(hours=13))]
        ),
    )
)
def test_a_datetime_is_exact_to_the_microsecond(value):
    us = check.instant(value, "at")
    exact = (value - EPOCH) // timedelta(microseconds=1)
    assert us == max(exact, 0)


@given(st.integers(0, limits.TIME_MAX // limits.SECOND))
def test_seconds_since_the_epoch(seconds):
    assert check.instant(seconds, "at") == seconds * limits.SECOND


@pytest.mark.parametrize("value", [datetime(1901, 1, 1, tzinfo=UTC), -5, -1e9])
def test_before_the_epoch_is_the_epoch(value):
    assert check.instant(value, "at") == 0


@pytest.mark.parametrize(
    "value",
    [
        datetime(2030, 1, 1),
        "2030-01-01",
        None,
        True,
        float("nan"),
        float("inf"),
        1e13,
        10**400,
        timedelta(1),
    ],
)
def test_what_is_no_moment(value):
    with pytest.raises(InvalidArgument, match="at"):
        check.instant(value, "at")


def test_delay_or_at():
    assert check.due(None, None) == (None, 0)
    assert check.due(5, None) == (None, 5_000_000)
    assert check.due(None, 5) == (5_000_000, 0)
    with pytest.raises(InvalidArgument, match="not both"):
        check.due(5, 5)


# --- rates --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5/s", (5, 1)),
        ("100/min", (100, 60)),
        ("1000/h", (1000, 3600)),
        ("10/30s", (10, 30)),
        ("1/day", (1, 86_400)),
        ("7 / 2 hour", (7, 7200)),
        ("3/m", (3, 60)),
        ("2/second", (2, 1)),
        (None, (None, None)),
    ],
)
def test_rates(text, expected):
    count, seconds = expected
    assert check.rate(text) == (count, None if seconds is None else seconds * limits.SECOND)


@pytest.mark.parametrize(
    "text",
    ["", "5", "/s", "5/", "0/s", "-1/s", "1.5/s", "5/0s", "5/fortnight", "5 s", 5, b"5/s", "٥/s",
     "1000001/s", "5/100000d", "9" * 30 + "/s", "5/s5/s"],
)  # fmt: skip
def test_what_is_no_rate(text):
    with pytest.raises(InvalidArgument):
        check.rate(text)


@given(st.integers(1, 1_000_000), st.integers(1, 1000), st.sampled_from(["s", "min", "h", "day"]))
def test_a_rate_comes_back_as_the_same_rate(count, times, unit):
    rate = check.rate(f"{count}/{times}{unit}")
    assert check.rate(check.rate_text(*rate)) == rate


# --- payloads -----------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(GOOD_TEXT, inner),
    max_leaves=20,
)


@given(JSON)
def test_json_comes_back(value):
    raw, is_json = check.payload(value, "the body")
    assert is_json == 1
    assert json.loads(raw) == value


@given(st.binary())
def test_bytes_go_as_they_are(value):
    for kind in (bytes, bytearray, memoryview):
        assert check.payload(kind(value), "the body") == (value, 0)


LOOP: list[object] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "value",
    [{1}, object(), float("nan"), [float("inf")], "\ud800", {"a": b"x"}, LOOP, {(1, 2): 3}, 1j],
)
def test_what_is_no_payload(value):
    with pytest.raises(InvalidBody, match="the body"):
        check.payload(value, "the body")


def test_a_deep_body_is_refused_not_crashed():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidBody):
        check.payload(deep, "the body")


def test_bounds():
    assert check.bounded_payload("xx", "the memo", 4) == (b'"xx"', 1)
    with pytest.raises(InvalidArgument, match="the memo"):
        check.bounded_payload("xxx", "the memo", 4)


def test_headers():
    assert check.headers(None) is None
    assert check.headers({}) is None
    assert check.headers({"a": 1}) == b'{"a":1}'
    with pytest.raises(InvalidBody):
        check.headers(["a"])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        check.headers({"a": "x" * limits.HEADERS_BYTES})


# --- errors as text -----------------------------------------------------------------------------


@given(st.text(max_size=200))
def test_error_texts_can_be_stored_anywhere(text):
    cleaned = check.error_text(text)
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned


def test_error_texts_are_cut():
    cleaned = check.error_text("x" * 50_000)
    assert len(cleaned) <= limits.ERROR_CHARS
    assert cleaned.endswith("(text cut)")


def test_exceptions_by_class_and_message():
    assert check.error_text(KeyError("x")) == "KeyError: 'x'"
    assert check.error_text(7) == "7"


def test_a_fresh_users_mistakes() -> None:
    """Each was met by somebody who used it for the first time, and raised something obscure."""
    db = fairturn.connect("sqlite://")
    queue = db.queue("q")
    refused: list[Callable[[], object]] = [
        lambda: fairturn.connect(None),  # type: ignore[arg-type]
        lambda: fairturn.connect("postgresql+psycopg://localhost/x"),
        lambda: fairturn.connect("sqlite:///x.db?mode=ro"),
        lambda: queue.create(policy={"max_concurrency": 1}),  # type: ignore[arg-type]
        lambda: queue.channel("c").set_policy(paused="no"),  # type: ignore[arg-type]
        lambda: queue.ack("x"),  # type: ignore[arg-type]
        lambda: queue.ack(5),  # type: ignore[arg-type]
        lambda: queue.send_many("abc"),
        lambda: queue.send_many({"a": 1}),
        lambda: queue.send_many(5),  # type: ignore[arg-type]
        lambda: db.permit(ttl=0),
    ]
    for mistake in refused:
        with pytest.raises(fairturn.InvalidArgument):
            mistake()
    db.close()


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    db = fairturn.connect(f"sqlite:///{tmp_path}/missing/x.db")
    with pytest.raises(fairturn.DatabaseUnavailable, match="directory"):
        db.queues()
    db.close()
